//! System calls with extreme or unaligned arguments.

use crate::bare::{BASE, HEAP, PRIVATE, TASK_SIZE, file, machine, map_at, process, vmas};
use vmarea::System;
use vmarea::mm::lifecycle::{ImportedAnon, ImportedVma};
use vmarea::policy::Policy;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::{MmapRequest, Placement};
use vmarea::syscall::mremap::MremapRequest;
use vmarea::syscall::process_madvise::Advised;
use vmarea::syscall::shm::{ShmFlags, ShmatRequest};
use vmarea::syscall::userfaultfd::WatchMode;
use vmarea::types::call_flags::{
    MapFlags, MbindFlags, MlockFlags, MremapFlags, Prot, from_register,
};
use vmarea::types::mempolicy::MpolMode;
use vmarea::types::{Errno, FileKind, MmId, PAGE_SIZE, PMD_SIZE, Pgoff, VmFlags, VmRange};
use vmarea::vma::VmaBody;
use vmarea_soft_platform::{Machine, Space};

#[test]
fn a_break_beyond_the_address_space_changes_nothing() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    map_at(space, mm, BASE, 4);
    space.brk(mm, HEAP + 3 * PAGE_SIZE).unwrap();
    let before = vmas(space, mm);
    let last_page = 0_u64.wrapping_sub(PAGE_SIZE);
    for brk in [
        u64::MAX,
        last_page,
        last_page + 1,
        last_page - 1,
        1 << 63,
        TASK_SIZE + 1,
        TASK_SIZE + PAGE_SIZE,
    ] {
        assert_eq!(space.brk(mm, brk), Ok(HEAP + 3 * PAGE_SIZE), "{brk:#x}");
        assert_eq!(vmas(space, mm), before, "{brk:#x}");
    }
}

/// Returns extreme values for an address, a length or an offset.
fn numbers() -> Vec<u64> {
    let mut numbers = Vec::new();
    for edge in [
        0,
        BASE,
        HEAP,
        1 << 46,
        TASK_SIZE,
        TASK_SIZE + PAGE_SIZE,
        1 << 52,
        1 << 62,
        1 << 63,
    ] {
        for by in [
            0,
            1,
            PAGE_SIZE - 1,
            PAGE_SIZE,
            PAGE_SIZE + 1,
            2 * PAGE_SIZE,
            PMD_SIZE,
        ] {
            numbers.push(edge + by);
            numbers.push(edge.wrapping_sub(by));
        }
    }
    numbers
}

/// No arguments break an invariant or cause an overflow, at which a debug build panics.
#[test]
fn no_call_overflows() {
    for policy in [
        Policy::LINUX,
        Policy::LINUX_5_10,
        Policy::THESIS,
        Policy::VMAREA,
    ] {
        let (machine, mm) = machine(policy);
        let space = machine.space();
        let again = || {
            map_at(space, mm, BASE, 4);
            space.validate_all().unwrap();
        };
        for &a in &numbers() {
            let _ = space.brk(mm, a);
            let _ = space.shmdt(mm, a, |_| Some(u64::MAX));
            for &b in &numbers() {
                let _ = space.munmap(mm, a, b);
                again();
                let _ = space.mprotect(mm, a, b, Prot::READ, None);
                let _ = space.madvise(mm, a, b, Advice::DontFork);
                let _ = space.mlock(mm, a, b, MlockFlags::ONFAULT);
                let _ = space.munlock(mm, a, b);
                let _ = space.mbind(mm, a, b, (MpolMode::PREFERRED, 1), MbindFlags::empty());
                let _ = space.remap_file_pages(mm, a, b, Prot::empty(), a, MapFlags::empty());
                let watched = std::num::NonZeroU32::MIN;
                let _ = space.userfaultfd_register(mm, watched, (a, b), WatchMode::MISSING);
                let _ = space.userfaultfd_unregister(mm, watched, (a, b));
                again();
                sweep_mapping(space, mm, a, b);
                again();
            }
        }
    }
}

fn sweep_mapping(space: &Space, mm: MmId, a: u64, b: u64) {
    for flags in [0, 1, 3, 5] {
        let request = MremapRequest {
            addr: BASE,
            old_len: a,
            new_len: b,
            flags: MremapFlags::from_bits_retain(flags),
            new_addr: a,
            ..MremapRequest::default()
        };
        let _ = space.mremap(mm, &request);
    }
    for kind in [
        FileKind::DevZero,
        FileKind::Hugetlb,
        FileKind::RegularHugeAligned,
    ] {
        let file = file(kind);
        for (addr, len, offset) in [(a, b, 0), (0, a, b), (BASE, PAGE_SIZE, a)] {
            let request = MmapRequest {
                addr,
                len,
                offset,
                prot: Prot::READ,
                flags: MapFlags::PRIVATE | MapFlags::NORESERVE,
                file: Some(file),
                ..MmapRequest::default()
            };
            if let Ok(at) = space.mmap(mm, &request) {
                let len = len.next_multiple_of(PMD_SIZE).min(TASK_SIZE - at);
                let _ = space.munmap(mm, at, len);
            }
        }
    }
    let segment = file(FileKind::SysvShm);
    let request = ShmatRequest {
        segment,
        len: b,
        addr: a,
        flags: ShmFlags::RND,
        placement: Placement::Search,
    };
    if let Ok(at) = space.shmat(mm, &request) {
        let _ = space.munmap(mm, at, b.min(TASK_SIZE - at));
    }
}

#[test]
fn lengths_that_wrap_are_what_linux_takes_them_for() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    map_at(space, mm, BASE, 4);
    let wraps = u64::MAX - 4094;
    assert_eq!(space.munmap(mm, BASE, wraps), Err(Errno::EINVAL));
    assert_eq!(
        space.mprotect(mm, BASE, wraps, Prot::READ, None),
        Err(Errno::ENOMEM)
    );
    assert_eq!(
        space.madvise(mm, BASE, wraps, Advice::DontFork),
        Err(Errno::EINVAL)
    );
    assert_eq!(space.mseal(mm, BASE, wraps, 0), Err(Errno::EINVAL));
    // These calls treat a length that wraps to 0 as 0, and do nothing.
    assert_eq!(space.mlock(mm, BASE, wraps, MlockFlags::empty()), Ok(()));
    assert_eq!(
        space.mbind(
            mm,
            BASE,
            wraps,
            (MpolMode::PREFERRED, 1),
            MbindFlags::empty()
        ),
        Ok(())
    );
    let fixed = MmapRequest {
        addr: u64::MAX,
        len: 1,
        flags: PRIVATE | MapFlags::FIXED,
        ..MmapRequest::default()
    };
    // The returned address would have the same value as -EPERM.
    assert_eq!(space.mmap(mm, &fixed), Err(Errno::EPERM));
    assert_eq!(vmas(space, mm).len(), 1);
}

#[test]
fn flags_above_the_32_bits_are_unknown_ones() {
    assert_eq!(from_register(3), 3);
    assert_eq!(from_register(1 << 32 | 3), 1 << 31 | 3);
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    map_at(space, mm, BASE, 1);
    let prot = Prot::from_bits_retain(from_register(1 << 40 | 1));
    assert_eq!(
        space.mprotect(mm, BASE, PAGE_SIZE, prot, None),
        Err(Errno::EINVAL)
    );
}

#[test]
fn the_last_page_of_a_file() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    let map = |kind, offset, len| {
        let file = file(kind);
        let request = MmapRequest {
            len,
            offset,
            prot: Prot::READ,
            flags: MapFlags::SHARED,
            file: Some(file),
            ..MmapRequest::default()
        };
        space.mmap(mm, &request).map(drop)
    };
    let last = (i64::MAX as u64) & !(PAGE_SIZE - 1);
    // The largest file offset is 2^63 - 1, so the last page of the largest file is incomplete.
    assert_eq!(
        map(FileKind::Regular, last, PAGE_SIZE),
        Err(Errno::EOVERFLOW)
    );
    assert_eq!(map(FileKind::Regular, last - PAGE_SIZE, PAGE_SIZE), Ok(()));
    assert_eq!(
        map(FileKind::Regular, last - PAGE_SIZE, 2 * PAGE_SIZE),
        Err(Errno::EOVERFLOW)
    );
    assert_eq!(map(FileKind::DevZero, last, PAGE_SIZE), Ok(()));
    assert_eq!(
        map(FileKind::DevZero, u64::MAX - (PAGE_SIZE - 1), PAGE_SIZE),
        Err(Errno::EOVERFLOW)
    );
}

#[test]
fn a_low_wish_is_raised_to_the_larger_minimum() {
    for (sysctl, built_in, lowest) in [
        (PAGE_SIZE, 65_536, 65_536),
        (65_536, 65_536, 65_536),
        (131_072, 65_536, 131_072),
        (PAGE_SIZE, 0, PAGE_SIZE),
    ] {
        let system = System {
            mmap_min_addr: sysctl,
            built_in_min_addr: built_in,
            ..System::default()
        };
        let machine = Machine::new(Policy::LINUX, system);
        let mm = process(&machine);
        let request = MmapRequest {
            addr: PAGE_SIZE,
            len: PAGE_SIZE,
            flags: PRIVATE,
            ..MmapRequest::default()
        };
        assert_eq!(machine.space().mmap(mm, &request), Ok(lowest));
        // No capability is needed to map at or above `vm.mmap_min_addr`.
        let fixed = MmapRequest {
            addr: sysctl,
            flags: PRIVATE | MapFlags::FIXED,
            ..request
        };
        assert_eq!(machine.space().mmap(mm, &fixed), Ok(sysctl));
    }
}

/// All ranges in a list are checked before any advice is applied.
#[test]
fn lists_of_ranges_at_the_edges() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    map_at(space, mm, BASE, 4);
    let advise =
        |ranges: &[(u64, u64)]| space.process_madvise(mm, ranges, Advice::DontFork, Advised::Own);
    let good = (BASE, PAGE_SIZE);
    assert_eq!(advise(&[good, (BASE, u64::MAX)]), Err(Errno::EINVAL));
    assert_eq!(advise(&[good, (u64::MAX, 1)]), Err(Errno::EFAULT));
    assert_eq!(advise(&[(TASK_SIZE, PAGE_SIZE)]), Err(Errno::EFAULT));
    assert_eq!(advise(&[(BASE, i64::MAX as u64)]), Err(Errno::ENOMEM));
    assert_eq!(advise(&[(BASE + 1, 0)]), Ok(0));
    assert_eq!(advise(&[good, (BASE + 1, 1)]), Ok(PAGE_SIZE));
}

#[test]
fn an_import_from_a_vma_that_is_gone_is_refused() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    let vma = |start: u64, anon| ImportedVma {
        range: VmRange::new(start, start + PAGE_SIZE),
        pgoff: Pgoff::of_addr(start),
        anon_pgoff: None,
        body: VmaBody::default(),
        anon,
    };
    let first = space.mm_import(mm, &vma(BASE, ImportedAnon::New)).unwrap();
    let next = vma(BASE + 2 * PAGE_SIZE, ImportedAnon::SameAs(first));
    space.munmap(mm, BASE, PAGE_SIZE).unwrap();
    assert_eq!(space.mm_import(mm, &next), Err(Errno::EINVAL));
    let unfaulted = space.mm_import(mm, &vma(BASE, ImportedAnon::Unfaulted));
    let next = vma(
        BASE + 2 * PAGE_SIZE,
        ImportedAnon::SameAs(unfaulted.unwrap()),
    );
    assert_eq!(space.mm_import(mm, &next), Err(Errno::EINVAL));
    assert_eq!(space.maps(mm).count(), 1);
    space.validate_all().unwrap();
}

#[test]
fn an_imported_vma_with_an_ancestor_merges_only_with_its_own_kind() {
    for (anon, alone) in [(ImportedAnon::New, false), (ImportedAnon::Inherited, true)] {
        let (machine, mm) = machine(Policy::LINUX);
        let space = machine.space();
        let import = |page: u64, flags, anon| {
            let start = BASE + page * PAGE_SIZE;
            let vma = ImportedVma {
                range: VmRange::new(start, start + PAGE_SIZE),
                pgoff: Pgoff::of_addr(start),
                anon_pgoff: None,
                body: VmaBody {
                    flags: VmFlags::MAYRWX | flags,
                    ..VmaBody::default()
                },
                anon,
            };
            space.mm_import(mm, &vma).unwrap()
        };
        let writable = VmFlags::READ | VmFlags::WRITE | VmFlags::ACCOUNT;
        let first = import(0, writable, anon);
        import(
            1,
            VmFlags::READ | VmFlags::ACCOUNT,
            ImportedAnon::SameAs(first),
        );
        import(2, VmFlags::READ | VmFlags::ACCOUNT, ImportedAnon::Unfaulted);
        space.validate_all().unwrap();
        let both = Prot::READ | Prot::WRITE;
        space
            .mprotect(mm, BASE + PAGE_SIZE, PAGE_SIZE, both, None)
            .unwrap();
        assert_eq!(space.maps(mm).count(), 2, "{anon:?}");
        space
            .mprotect(mm, BASE + 2 * PAGE_SIZE, PAGE_SIZE, both, None)
            .unwrap();
        assert_eq!(space.maps(mm).count(), 1 + usize::from(alone), "{anon:?}");
        space.validate_all().unwrap();
        space.mm_exit(mm).unwrap();
        space.validate_all().unwrap();
    }
}
