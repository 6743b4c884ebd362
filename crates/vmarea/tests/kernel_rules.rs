//! The pages behind the second page offset of Linux 7.3.

mod bare;

use bare::{BASE, RW, file, process, vmas};
use vmarea::System;
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{FileKind, MmId, PAGE_SIZE, Pgoff};
use vmarea_soft_platform::Space;

fn page(n: u64) -> u64 {
    BASE + n * PAGE_SIZE
}

fn map_file(space: &Space, mm: MmId, at: u64, offset: u64) {
    let request = MmapRequest {
        addr: page(at),
        len: PAGE_SIZE,
        prot: RW,
        flags: MapFlags::PRIVATE | MapFlags::FIXED,
        file: Some(file(FileKind::Regular)),
        offset: offset * PAGE_SIZE,
        ..MmapRequest::default()
    };
    space.mmap(mm, &request).unwrap();
}

fn move_page(space: &Space, mm: MmId, from: u64, to: u64) {
    let request = MremapRequest {
        addr: page(from),
        old_len: PAGE_SIZE,
        new_len: PAGE_SIZE,
        flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
        new_addr: page(to),
        ..MremapRequest::default()
    };
    assert_eq!(space.mremap(mm, &request), Ok(page(to)));
}

/// The reverse map finds a written page of a file at its place, whatever its page offsets are.
#[test]
fn a_moved_page_of_a_file_is_found_by_its_anonymous_offset() {
    for policy in [Policy::LINUX, Policy::LINUX_6_18, Policy::VMAREA] {
        let system = System {
            swap: true,
            ..System::default()
        };
        let machine = Machine::new(policy, system);
        let mm = process(&machine);
        let space = machine.space();
        map_file(space, mm, 0, 5);
        let mapped = vmas(space, mm)[0];
        assert_eq!(mapped.pgoff(), Pgoff(5));
        machine.memory().with_files(|files| files.resize(7, 24));
        machine.store(mm, page(0), b"mine").unwrap();
        move_page(space, mm, 0, 16);
        let child = space.fork(mm).unwrap();
        let moved = vmas(space, child)[0];
        assert_eq!(moved.pgoff(), Pgoff(5));
        let own = policy.rules.anon_pgoff_of_files;
        let expected = if own {
            Pgoff::of_addr(page(0))
        } else {
            Pgoff(5)
        };
        assert_eq!(moved.offsets.anon_pgoff_at(page(16)), expected);
        machine.store(mm, page(16), b"ours").unwrap();
        let mut found = [0; 4];
        machine.load(child, page(16), &mut found).unwrap();
        assert_eq!(&found, b"mine");
        space.munmap(child, page(16), PAGE_SIZE).unwrap();
        space.swap_out(mm, page(16)).unwrap();
        machine.load(mm, page(16), &mut found).unwrap();
        assert_eq!(&found, b"ours");
        space
            .mprotect(mm, page(16), PAGE_SIZE, Prot::READ, None)
            .unwrap();
        space.validate_all().unwrap();
        map_file(space, mm, 17, 6);
        space.mprotect(mm, page(16), PAGE_SIZE, RW, None).unwrap();
        let apart = vmas(space, mm).len() == 2;
        assert_eq!(apart, own, "{}", policy.name);
        space.validate_all().unwrap();
    }
}
