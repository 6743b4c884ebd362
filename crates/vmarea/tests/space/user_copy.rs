//! Copies between the kernel and user memory, and access to futex words.

use crate::bare::{BASE, TASK_SIZE, file, machine, map_at};
use std::thread;
use vmarea::fault::Stopped;
use vmarea::mm::lifecycle::{ImportedAnon, ImportedVma};
use vmarea::prelude::*;
use vmarea::syscall::madvise::Advice;
use vmarea::types::{FileKind, Pgoff};
use vmarea::vma::VmaBody;
use vmarea_soft_platform::{Machine, Space};

const PAGE: usize = PAGE_SIZE as usize;

fn of_policy() -> (Machine, MmId) {
    machine(Policy::LINUX)
}

fn stopped(not_copied: usize, faulted: Faulted) -> Result<(), Stopped> {
    Err(Stopped {
        not_copied,
        faulted,
    })
}

fn read(space: &Space, mm: MmId, from: u64, len: usize) -> Result<Vec<u8>, Stopped> {
    let mut bytes = vec![0xee; len];
    space.copy_from_user(mm, from, &mut bytes).map(|()| bytes)
}

/// Returns a pattern of bytes that differs from page to page.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at + at / PAGE) as u8).collect()
}

#[test]
fn bytes_cross_pages() {
    let (machine, mm) = of_policy();
    let space = machine.space();
    map_at(space, mm, BASE, 4);
    for (offset, len) in [(0, 0), (0, 1), (5, 2 * PAGE), (PAGE - 1, 2), (0, 4 * PAGE)] {
        let addr = BASE + offset as u64;
        assert_eq!(read(space, mm, addr, len).unwrap().len(), len);
        let bytes = pattern(len);
        assert_eq!(space.copy_to_user(mm, addr, &bytes), Ok(()));
        assert_eq!(read(space, mm, addr, len), Ok(bytes));
        machine.validate().unwrap();
    }
}

#[test]
fn the_kernel_writes_to_the_copy_of_the_process() {
    let (machine, parent) = of_policy();
    let space = machine.space();
    map_at(space, parent, BASE, 1);
    machine.store(parent, BASE, &[7]).unwrap();
    let child = space.fork(parent).unwrap();
    assert_eq!(space.copy_to_user(child, BASE, &[8]), Ok(()));
    assert_eq!(read(space, parent, BASE, 1), Ok(vec![7]));
    assert_eq!(read(space, child, BASE, 1), Ok(vec![8]));
    let mut byte = [0];
    machine.load(parent, BASE, &mut byte).unwrap();
    assert_eq!(byte, [7]);
    machine.validate().unwrap();
}

#[test]
fn bytes_that_are_not_copied_are_counted() {
    let (machine, mm) = of_policy();
    let space = machine.space();
    map_at(space, mm, BASE, 4);
    let second = BASE + PAGE_SIZE;
    let len = 3 * PAGE;
    let missing = len - PAGE;
    let check = |reads: Result<(), Stopped>, writes| {
        let mut bytes = vec![0xee; len];
        assert_eq!(space.copy_from_user(mm, BASE, &mut bytes), reads);
        let copied = reads.map_or_else(|s| len - s.not_copied, |()| len);
        assert!(bytes[copied..].iter().all(|&byte| byte == 0xee));
        assert_eq!(space.copy_to_user(mm, BASE, &bytes), writes);
        machine.validate().unwrap();
    };
    let protect = |prot| space.mprotect(mm, second, PAGE_SIZE, prot, None).unwrap();
    protect(Prot::READ);
    check(Ok(()), stopped(missing, Faulted::NoAccess));
    protect(Prot::empty());
    let no_access = stopped(missing, Faulted::NoAccess);
    check(no_access, no_access);
    protect(Prot::READ | Prot::WRITE);
    space
        .madvise(mm, second, PAGE_SIZE, Advice::GuardInstall)
        .unwrap();
    let no_mapping = stopped(missing, Faulted::NoMapping);
    check(no_mapping, no_mapping);
    space.munmap(mm, second, PAGE_SIZE).unwrap();
    check(no_mapping, no_mapping);
    assert_eq!(no_mapping.map_err(Errno::from), Err(Errno::EFAULT));
}

#[test]
fn nothing_is_copied_beyond_user_space() {
    let (machine, mm) = of_policy();
    let space = machine.space();
    map_at(space, mm, TASK_SIZE - PAGE_SIZE, 1);
    let last = TASK_SIZE - 2;
    assert_eq!(space.copy_to_user(mm, last, &[1, 2]), Ok(()));
    for (addr, len) in [(last, 3), (TASK_SIZE, 1), (u64::MAX, 1), (u64::MAX - 1, 4)] {
        let bytes = vec![0xff; len];
        let nothing = stopped(len, Faulted::NoMapping);
        assert_eq!(space.copy_to_user(mm, addr, &bytes), nothing);
        assert_eq!(read(space, mm, addr, len).map(drop), nothing);
    }
    assert_eq!(read(space, mm, last, 2), Ok(vec![1, 2]));
    space.mm_exit(mm).unwrap();
    let gone = stopped(2, Faulted::NoMapping);
    assert_eq!(read(space, mm, last, 2).map(drop), gone);
}

#[test]
fn a_file_ends_and_a_device_has_no_pages() {
    let (machine, mm) = of_policy();
    let space = machine.space();
    let request = MmapRequest {
        addr: BASE,
        len: 2 * PAGE_SIZE,
        prot: Prot::READ | Prot::WRITE,
        flags: MapFlags::SHARED | MapFlags::FIXED,
        file: Some(file(FileKind::Shmem)),
        ..MmapRequest::default()
    };
    space.mmap(mm, &request).unwrap();
    machine.memory().with_files(|files| files.resize(7, 1));
    let bytes = pattern(2 * PAGE);
    let copied = space.copy_to_user(mm, BASE, &bytes);
    assert_eq!(copied, stopped(PAGE, Faulted::NoPage));
    assert_eq!(read(space, mm, BASE, PAGE), Ok(bytes[..PAGE].to_vec()));
    let range = VmRange::new(BASE + 8 * PAGE_SIZE, BASE + 9 * PAGE_SIZE);
    let device = ImportedVma {
        range,
        pgoff: Pgoff(0),
        anon_pgoff: None,
        body: VmaBody {
            flags: VmFlags::READ | VmFlags::WRITE | VmFlags::PFNMAP,
            ..VmaBody::default()
        },
        anon: ImportedAnon::Unfaulted,
    };
    space.mm_import(mm, &device).unwrap();
    let copied = space.copy_to_user(mm, range.start, &bytes[..PAGE]);
    assert_eq!(copied, stopped(PAGE, Faulted::NoPage));
}

#[test]
fn a_word_is_read_and_exchanged() {
    let (machine, mm) = of_policy();
    let space = machine.space();
    map_at(space, mm, BASE, 2);
    let addr = BASE + PAGE_SIZE - 4;
    let exchange = |current, new| space.compare_exchange_user_word(mm, addr, (current, new));
    assert_eq!(space.load_user_word(mm, addr), Ok(0));
    assert_eq!(exchange(1, 2), Ok(0));
    assert_eq!(space.load_user_word(mm, addr), Ok(0));
    assert_eq!(exchange(0, 2), Ok(0));
    assert_eq!(exchange(2, 3), Ok(2));
    assert_eq!(space.load_user_word(mm, addr), Ok(3));
    for offset in 1..4 {
        let word = space.load_user_word(mm, addr + offset);
        assert_eq!(word, Err(Faulted::NoPage));
    }
    space
        .mprotect(mm, BASE, PAGE_SIZE, Prot::READ, None)
        .unwrap();
    assert_eq!(space.load_user_word(mm, addr), Ok(3));
    assert_eq!(exchange(3, 4), Err(Faulted::NoAccess));
    let hole = space.load_user_word(mm, BASE + 2 * PAGE_SIZE);
    assert_eq!(hole, Err(Faulted::NoMapping));
    machine.validate().unwrap();
}

#[test]
fn no_exchange_is_lost() {
    const TIMES: u32 = 500;
    let (machine, mm) = of_policy();
    let space = machine.space();
    map_at(space, mm, BASE, 1);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..TIMES {
                    let mut seen = space.load_user_word(mm, BASE).unwrap();
                    loop {
                        let words = (seen, seen + 1);
                        let old = space.compare_exchange_user_word(mm, BASE, words).unwrap();
                        if old == seen {
                            break;
                        }
                        seen = old;
                    }
                }
            });
        }
    });
    assert_eq!(space.load_user_word(mm, BASE), Ok(2 * TIMES));
}

/// Threads copy to and from a range while it is unmapped, mapped again and protected.
#[test]
fn a_range_may_be_unmapped_during_a_copy() {
    let (machine, mm) = of_policy();
    let space = machine.space();
    map_at(space, mm, BASE, 4);
    let bytes = pattern(4 * PAGE);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..300 {
                    for copied in [
                        space.copy_to_user(mm, BASE, &bytes),
                        read(space, mm, BASE, 4 * PAGE).map(drop),
                    ] {
                        if let Err(Stopped {
                            not_copied,
                            faulted,
                        }) = copied
                        {
                            assert!(not_copied > 0 && not_copied.is_multiple_of(PAGE));
                            assert!(
                                matches!(faulted, Faulted::NoMapping | Faulted::NoAccess),
                                "{faulted:?}"
                            );
                        }
                    }
                }
            });
        }
        for round in 0..300 {
            let addr = BASE + round % 4 * PAGE_SIZE;
            space.munmap(mm, addr, PAGE_SIZE).unwrap();
            map_at(space, mm, addr, 1);
            let none = Prot::empty();
            space.mprotect(mm, addr, PAGE_SIZE, none, None).unwrap();
            let both = Prot::READ | Prot::WRITE;
            space.mprotect(mm, addr, PAGE_SIZE, both, None).unwrap();
        }
    });
    assert_eq!(space.copy_to_user(mm, BASE, &bytes), Ok(()));
    assert_eq!(read(space, mm, BASE, 4 * PAGE), Ok(bytes));
    machine.validate().unwrap();
}
