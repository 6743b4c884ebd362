//! Reclaim: second chances for accessed pages, pages that must not be reclaimed, and reclaim
//! concurrent with everything else that changes pages.
//!
//! The software platform panics if a frame is freed or copied while a TLB can still access it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use vmarea::System;
use vmarea::fault::Faulted;
use vmarea::mm::{Layout, Limits, Retained};
use vmarea::page::Pte;
use vmarea::policy::Policy;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MlockFlags, MremapFlags, Prot};
use vmarea::types::{Errno, FrameId, MmId, PAGE_SIZE, PMD_SIZE};
use vmarea_soft_platform::{CPUS, Machine};

const BASE: u64 = 0x10_0000_0000;
/// Distance between the address ranges of two threads.
const APART: u64 = 1 << 30;
const RW: Prot = Prot::READ.union(Prot::WRITE);

fn machine(policy: Policy, swap_slots: u32) -> (Machine, MmId) {
    let system = System {
        swap: true,
        swap_slots,
        ..System::default()
    };
    let machine = Machine::new(policy, system);
    let layout = Layout {
        mmap_base: 0x7f00_0000_0000,
        ..Layout::default()
    };
    let mm = machine.space().mm_create(layout, Limits::default());
    (machine, mm.unwrap())
}

fn map(machine: &Machine, mm: MmId, addr: u64, pages: u64) {
    let request = MmapRequest {
        addr,
        len: pages * PAGE_SIZE,
        prot: RW,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
        ..MmapRequest::default()
    };
    assert_eq!(machine.space().mmap(mm, &request), Ok(addr));
}

fn store(machine: &Machine, mm: MmId, addr: u64, value: u64) {
    // A page that is being migrated must be retried.
    while machine.store(mm, addr, &value.to_ne_bytes()) == Ok(Faulted::Retry) {
        thread::yield_now();
    }
}

fn load(machine: &Machine, mm: MmId, addr: u64) -> u64 {
    let mut bytes = [0; 8];
    while machine.load(mm, addr, &mut bytes) == Ok(Faulted::Retry) {
        thread::yield_now();
    }
    u64::from_ne_bytes(bytes)
}

fn entry(machine: &Machine, mm: MmId, addr: u64) -> Pte {
    machine
        .space()
        .mmap_read_lock(mm)
        .unwrap()
        .pages()
        .get(addr)
}

fn frame(machine: &Machine, mm: MmId, addr: u64) -> FrameId {
    entry(machine, mm, addr).frame().unwrap()
}

#[test]
fn an_accessed_page_gets_a_second_chance() {
    let (machine, mm) = machine(Policy::LINUX, u32::MAX);
    let space = machine.space();
    map(&machine, mm, BASE, 1);
    store(&machine, mm, BASE, 7);
    let page = frame(&machine, mm, BASE);
    assert_eq!(space.reclaim_frame(page), Err(Retained::Accessed));
    let slot = space.reclaim_frame(page).unwrap();
    assert_eq!(entry(&machine, mm, BASE), Pte::Swap { slot });
    assert_eq!(machine.memory().frames(), 0);
    assert_eq!(space.reclaim_frame(page), Err(Retained::Unmapped));
    machine.validate().unwrap();
    for _ in 0..CPUS {
        assert_eq!(load(&machine, mm, BASE), 7);
    }
    machine.validate().unwrap();
}

/// One process has not accessed the page recently, but the other process has.
#[test]
fn an_access_by_any_process_counts() {
    let (machine, parent) = machine(Policy::LINUX, u32::MAX);
    let space = machine.space();
    map(&machine, parent, BASE, 1);
    store(&machine, parent, BASE, 7);
    let child = space.fork(parent).unwrap();
    let page = frame(&machine, parent, BASE);
    assert_eq!(space.reclaim_frame(page), Err(Retained::Accessed));
    assert_eq!(load(&machine, child, BASE), 7);
    assert_eq!(space.reclaim_frame(page), Err(Retained::Accessed));
    let slot = space.reclaim_frame(page).unwrap();
    for mm in [parent, child] {
        assert_eq!(entry(&machine, mm, BASE), Pte::Swap { slot });
    }
    store(&machine, child, BASE, 8);
    assert_eq!(load(&machine, parent, BASE), 7);
    assert_eq!(load(&machine, child, BASE), 8);
    machine.validate().unwrap();
}

#[test]
fn locked_and_pinned_pages_stay() {
    let (machine, mm) = machine(Policy::LINUX, u32::MAX);
    let space = machine.space();
    map(&machine, mm, BASE, 2);
    store(&machine, mm, BASE, 7);
    space
        .mlock(mm, BASE, PAGE_SIZE, MlockFlags::empty())
        .unwrap();
    // The child's mapping of the page is not locked, but the parent's is.
    let child = space.fork(mm).unwrap();
    let page = frame(&machine, child, BASE);
    for _ in 0..3 {
        assert_eq!(space.reclaim_frame(page), Err(Retained::Mlocked));
    }
    space.munlock(mm, BASE, PAGE_SIZE).unwrap();
    space.reclaim_frame(page).unwrap();

    let pin = space.pin_page(mm, BASE + PAGE_SIZE).unwrap();
    for _ in 0..3 {
        assert_eq!(space.reclaim_frame(pin.frame()), Err(Retained::Busy));
    }
    space.unpin_page(pin);
    machine.validate().unwrap();
}

#[test]
fn a_full_device_keeps_pages_in_memory() {
    let (machine, mm) = machine(Policy::LINUX, 2);
    let space = machine.space();
    map(&machine, mm, BASE, 3);
    let addr = |page| BASE + page * PAGE_SIZE;
    for page in 0..3 {
        store(&machine, mm, addr(page), page);
    }
    space.swap_out(mm, addr(0)).unwrap();
    space.swap_out(mm, addr(1)).unwrap();
    assert_eq!(space.swap_out(mm, addr(2)), Err(Errno::ENOSPC));
    let last = frame(&machine, mm, addr(2));
    assert_eq!(space.reclaim_frame(last), Err(Retained::Accessed));
    assert_eq!(space.reclaim_frame(last), Err(Retained::NoSlot));
    machine.validate().unwrap();
    // A page that is swapped in makes room for another one.
    assert_eq!(load(&machine, mm, addr(0)), 0);
    space.reclaim_frame(last).unwrap();
    for page in 0..3 {
        assert_eq!(load(&machine, mm, addr(page)), page);
    }
    machine.validate().unwrap();
}

/// Repeatedly tries to reclaim all frames in ascending order until `done`, and adds the number of
/// pages swapped out to `out`.
fn clock(machine: &Machine, done: &AtomicBool, out: &AtomicU64) {
    let space = machine.space();
    while !done.load(Ordering::Relaxed) {
        for index in 0..space.frame_bound() {
            let frame = space.frame_at(index);
            let reclaimed = frame.is_some_and(|frame| space.reclaim_frame(frame).is_ok());
            out.fetch_add(u64::from(reclaimed), Ordering::Relaxed);
        }
    }
}

/// Until `done`, writes a stamp to each page, after checking that the page has the previous stamp.
fn write_and_verify(machine: &Machine, mm: MmId, at: u64, pages: u64, done: &AtomicBool) {
    let mut pass = 0;
    while pass < 3 || !done.load(Ordering::Relaxed) {
        for page in 0..pages {
            let addr = at + page * PAGE_SIZE;
            let before = load(machine, mm, addr);
            assert!(pass == 0 || before == (pass << 32 | page), "{addr:x}");
            store(machine, mm, addr, (pass + 1) << 32 | page);
        }
        pass += 1;
    }
}

/// Forks, moves, protects, locks, migrates, merges and unmaps pages at `at`; checks their bytes.
fn change(machine: &Machine, mm: MmId, at: u64, round: u64) {
    const PAGES: u64 = 8;
    let space = machine.space();
    let (len, to) = (PAGES * PAGE_SIZE, at + 64 * PAGE_SIZE);
    map(machine, mm, at, PAGES);
    let verify = |mm, at, what| {
        for page in 0..PAGES {
            let found = load(machine, mm, at + page * PAGE_SIZE);
            assert_eq!(found, (round << 8) | (page / 2), "{what}, page {page}");
        }
    };
    for page in 0..PAGES {
        store(
            machine,
            mm,
            at + page * PAGE_SIZE,
            (round << 8) | (page / 2),
        );
    }
    let child = space.fork(mm).unwrap();
    space.mprotect(mm, at, len, Prot::READ, None).unwrap();
    verify(mm, at, "protected");
    space.mprotect(mm, at, len, RW, None).unwrap();
    let request = MremapRequest {
        addr: at,
        old_len: len,
        new_len: len,
        flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
        new_addr: to,
        ..MremapRequest::default()
    };
    space.mremap(mm, &request).map(drop).unwrap();
    verify(mm, to, "moved");
    store(machine, child, at, 1);
    store(machine, child, at, round << 8);
    verify(child, at, "in the child");
    space.mm_exit(child).unwrap();
    space.mlock(mm, to, len, MlockFlags::empty()).unwrap();
    for page in 0..PAGES {
        // The clock runs, but a locked page is there.
        let entry = entry(machine, mm, to + page * PAGE_SIZE);
        assert!(matches!(entry, Pte::Anon { .. }), "{entry:?}");
    }
    space.munlock(mm, to, len).unwrap();
    space.madvise(mm, to, len, Advice::from_number(12)).unwrap();
    // Reclaim may have the page, or have taken it out.
    if let Pte::Anon { frame, .. } = entry(machine, mm, to)
        && let Ok(migrating) = space.migrate_begin(frame)
    {
        space.migrate_end(migrating).unwrap();
    }
    let _ = space.ksm_merge((mm, to), (mm, to + PAGE_SIZE));
    space
        .madvise(mm, to, len / 2, Advice::from_number(21))
        .unwrap();
    verify(mm, to, "at the end");
    space.munmap(mm, to, len).unwrap();
}

fn reclaim_beside_everything(policy: Policy) {
    let (machine, mm) = machine(policy, u32::MAX);
    map(&machine, mm, BASE, 64);
    map(&machine, mm, BASE + APART, 64);
    let done = AtomicBool::new(false);
    let out = AtomicU64::new(0);
    /// Tells the other threads to stop when dropped, even after a panic.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    thread::scope(|scope| {
        let (machine, done, out) = (&machine, &done, &out);
        for thread in 0..2 {
            scope.spawn(move || {
                write_and_verify(machine, mm, BASE + thread * APART, 64, done);
            });
            scope.spawn(move || clock(machine, done, out));
        }
        let _ends = Ends(done);
        let mut round = 1;
        while round < 80 || out.load(Ordering::Relaxed) < 200 {
            change(machine, mm, BASE + 8 * APART, round);
            round += 1;
        }
    });
    machine.validate().unwrap();
    let space = machine.space();
    space.munmap(mm, BASE, 9 * APART).unwrap();
    machine.validate().unwrap();
    assert_eq!((space.frames_in_use(), space.swap_slots_in_use()), (0, 0));
}

#[test]
fn reclaim_runs_beside_everything_else() {
    reclaim_beside_everything(Policy::LINUX);
}

#[test]
fn reclaim_runs_beside_merges_of_all_kinds() {
    reclaim_beside_everything(Policy::VMAREA);
}

/// Pages that a child shares are swapped out while the parent's pages become a huge page.
#[test]
fn a_collapse_loses_no_page_that_is_swapped_out_meanwhile() {
    const PAGES: u64 = PMD_SIZE / PAGE_SIZE;
    let at = |page: u64| BASE + page * PAGE_SIZE;
    let mut collapsed = 0;
    for round in 0..100 {
        let (machine, mm) = machine(Policy::LINUX, 1024);
        map(&machine, mm, BASE, PAGES);
        for page in 0..PAGES {
            store(&machine, mm, at(page), page);
        }
        let child = machine.space().fork(mm).unwrap();
        // A collapse requires a writable page.
        store(&machine, mm, BASE, 0);
        let last = PAGES - 1 - round;
        thread::scope(|scope| {
            scope.spawn(|| {
                for page in (PAGES / 2..=last).rev() {
                    let out = machine.space().swap_out(child, at(page));
                    assert!(matches!(out, Ok(_) | Err(Errno::EAGAIN)), "{out:?}");
                }
            });
            let advice = Advice::Collapse;
            let done = machine.space().madvise(mm, BASE, PMD_SIZE, advice);
            assert!(matches!(done, Ok(()) | Err(Errno::EAGAIN)), "{done:?}");
            collapsed += u64::from(done.is_ok());
        });
        for page in 0..PAGES {
            assert_eq!(load(&machine, mm, at(page)), page, "round {round}");
        }
        machine.validate().unwrap();
    }
    assert!(collapsed > 0, "each round was refused");
}
