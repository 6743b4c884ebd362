//! An embedder's own environment: static dispatch to its platform, and threads that yield while
//! they wait.

use std::thread;
use vmarea::fault::{Access, Faulted};
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::mmu::NoMmu;
use vmarea::types::platform::{Environment, Wait};
use vmarea::types::{MmId, NoBytes, PAGE_SIZE};
use vmarea::vma::lock::VmaLock;
use vmarea::{Space, System};

#[derive(Debug, Default)]
struct Yielding;

impl Environment for Yielding {
    type VmaLock = VmaLock;
    type Platform = NoBytes;
    type Mmu = NoMmu;
    type Wait = Yield;
    type Writers = vmarea::types::writers::DefaultWriters;
}

#[derive(Debug)]
struct Yield;

impl Wait for Yield {
    const SLEEPS: bool = false;

    fn wait(_: usize, until: &mut dyn FnMut() -> bool) {
        while !until() {
            thread::yield_now();
        }
    }

    fn wake(_: usize) {}
}

fn map_fault_unmap(space: &Space<Yielding>, mm: MmId, addr: u64) {
    let request = MmapRequest {
        addr,
        len: PAGE_SIZE,
        prot: Prot::READ | Prot::WRITE,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
        ..MmapRequest::default()
    };
    assert_eq!(space.mmap(mm, &request), Ok(addr));
    assert_eq!(space.fault(mm, addr, Access::Write), Ok(Faulted::Done));
    assert_eq!(space.munmap(mm, addr, PAGE_SIZE), Ok(()));
}

#[test]
fn threads_share_an_address_space() {
    let space = Space::<Yielding>::in_environment(Policy::LINUX, System::default(), NoBytes);
    let mm = space
        .mm_create(Layout::default(), Limits::default())
        .unwrap();
    thread::scope(|scope| {
        for n in 1..4 {
            let space = &space;
            scope.spawn(move || {
                (0..100).for_each(|_| map_fault_unmap(space, mm, n << 32));
            });
        }
    });
    space.validate_all().unwrap();
}
