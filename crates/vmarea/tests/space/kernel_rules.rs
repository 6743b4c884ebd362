//! Rules of kernel versions that no stored sequence can show, because they depend on a limit of the
//! machine, and the pages behind the second page offset of Linux 7.3.

use crate::bare::{BASE, RW, file, map_at, process, vmas};
use vmarea::System;
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{Errno, FileKind, MmId, PAGE_SIZE, Pgoff};
use vmarea_soft_platform::{Machine, Space};

/// The limit on mappings of the machine near its limit.
const LIMIT: u32 = 64;

fn page(n: u64) -> u64 {
    BASE + n * PAGE_SIZE
}

/// Creates a process with two mappings, at pages 0 and 16, and as many others as leave room for
/// `room` more.
fn near_the_limit(policy: Policy, room: u32) -> (Machine, MmId) {
    let system = System {
        max_map_count: LIMIT,
        ..System::default()
    };
    let machine = Machine::new(policy, system);
    let mm = process(&machine);
    map_at(machine.space(), mm, page(0), 4);
    map_at(machine.space(), mm, page(16), 2);
    for n in 0..u64::from(LIMIT - room - 2) {
        map_at(machine.space(), mm, page(1000 + 2 * n), 1);
    }
    (machine, mm)
}

/// Linux 7.1 refuses every call near the limit, one that keeps the mapping as well; before, only
/// those that name a destination, and with more room.
#[test]
fn mremap_keeps_away_from_the_limit_on_mappings() {
    let fixed = MremapFlags::MAYMOVE | MremapFlags::FIXED;
    let calls = [
        ("keep", 0, 4, 4, MremapFlags::empty()),
        ("shrink", 0, 4, 3, MremapFlags::empty()),
        ("grow", 16, 2, 3, MremapFlags::empty()),
        ("move", 0, 4, 4, fixed),
        ("dontunmap", 0, 4, 4, fixed | MremapFlags::DONTUNMAP),
    ];
    // The least room with which each call succeeds.
    let expected = [
        (Policy::LINUX_6_18, [0, 0, 0, 6, 6]),
        (Policy::LINUX, [4, 4, 4, 4, 5]),
    ];
    for (policy, least) in expected {
        for ((name, at, old, new, flags), least) in calls.into_iter().zip(least) {
            for room in 0..8 {
                let (machine, mm) = near_the_limit(policy, room);
                let request = MremapRequest {
                    addr: page(at),
                    old_len: old * PAGE_SIZE,
                    new_len: new * PAGE_SIZE,
                    flags,
                    new_addr: page(40),
                    ..MremapRequest::default()
                };
                let got = machine.space().mremap(mm, &request);
                let refused = (room < least).then_some(Errno::ENOMEM);
                let version = policy.rules.version;
                assert_eq!(got.err(), refused, "{name}, room {room}, {version:?}");
                machine.space().validate_all().unwrap();
            }
        }
    }
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
