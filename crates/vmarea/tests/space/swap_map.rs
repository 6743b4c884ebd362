//! The swap map that the thesis's page checks read: a count, its continuation, and the cache flag.

use vmarea::System;
use vmarea::fault::Access;
use vmarea::mm::{Layout, Limits};
use vmarea::page::{Pte, SwapMap};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::MmId;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea_soft_platform::Machine;

const PAGE: u64 = vmarea::types::PAGE_SIZE;
const ARENA: u64 = 0x10_0000_0000;

#[test]
fn a_cell_of_the_swap_map_has_a_count_and_flags() {
    let machine = Machine::new(
        Policy::LINUX,
        System {
            swap: true,
            ..System::default()
        },
    );
    let space = machine.space();
    let layout = Layout {
        mmap_base: 0x7f00_0000_0000,
        ..Layout::default()
    };
    let parent = space.mm_create(layout, Limits::default()).unwrap();
    let request = MmapRequest {
        addr: ARENA,
        len: PAGE,
        prot: Prot::READ | Prot::WRITE,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
        ..MmapRequest::default()
    };
    space.mmap(parent, &request).unwrap();
    machine.store(parent, ARENA, b"kept").unwrap();
    let children: Vec<MmId> = (0..70).map(|_| space.fork(parent).unwrap()).collect();
    let slot = space.swap_out(parent, ARENA).unwrap();
    assert_eq!(
        space.swap_map(slot),
        SwapMap(SwapMap::MAX | SwapMap::COUNT_CONTINUED)
    );
    for child in &children[..60] {
        space.mm_exit(*child).unwrap();
    }
    assert_eq!(space.swap_map(slot), SwapMap(11));
    space.fault(parent, ARENA, Access::Read).unwrap();
    assert_eq!(space.swap_map(slot), SwapMap(10 | SwapMap::HAS_CACHE));
    let mut bytes = [0; 4];
    machine.load(children[60], ARENA, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
    let entry = |mm| space.mmap_read_lock(mm).unwrap().pages().get(ARENA);
    assert_eq!(entry(parent), entry(children[60]), "one frame for both");
    machine.store(parent, ARENA, b"mine").unwrap();
    machine.load(children[61], ARENA, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
    assert!(matches!(entry(parent), Pte::Anon { writable: true, .. }));
    space.validate_all().unwrap();
}
