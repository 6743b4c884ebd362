//! Threads in one address space: faults without `mmap_lock`, while other threads map and unmap.
//!
//! The tests use real threads and real bytes, and do not depend on timing. Each thread performs a
//! fixed number of steps, or continues until another thread has finished. Afterwards all invariants
//! must hold.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use vmarea::fault::{Access, Faulted};
use vmarea::mm::{FellBack, Layout, Limits};
use vmarea::page::Pte;
use vmarea::policy::Policy;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::platform::Environment;
use vmarea::types::{Errno, FrameId, MmId, PMD_SIZE, Platform, VmRange};
use vmarea::{HugePages, System};
use vmarea_soft_platform::{Machine, Space};

const PAGE: u64 = vmarea::types::PAGE_SIZE;
const BASE: u64 = 0x10_0000_0000;
/// Distance between the address ranges of two threads, large enough for separate page tables.
const APART: u64 = 1 << 30;
const RW: Prot = Prot::READ.union(Prot::WRITE);

fn layout() -> Layout {
    Layout {
        mmap_base: 0x7f00_0000_0000,
        start_brk: BASE - APART,
        brk: BASE - APART,
        ..Layout::default()
    }
}

fn system() -> System {
    System {
        huge_pages: HugePages::Never,
        ..System::default()
    }
}

/// Maps private anonymous memory at a fixed address.
fn map<E: Environment>(
    space: &vmarea::Space<E>,
    mm: MmId,
    addr: u64,
    pages: u64,
) -> Result<u64, Errno> {
    let request = MmapRequest {
        addr,
        len: pages * PAGE,
        prot: RW,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
        ..MmapRequest::default()
    };
    space.mmap(mm, &request)
}

fn shift(space: &Space, mm: MmId, from: u64, pages: u64, to: u64) -> Result<u64, Errno> {
    let request = MremapRequest {
        addr: from,
        old_len: pages * PAGE,
        new_len: pages * PAGE,
        flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
        new_addr: to,
        ..MremapRequest::default()
    };
    space.mremap(mm, &request)
}

/// Tells the other threads to stop when dropped, even if this thread panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes each kind of change to a VMA once, in a range that no other thread uses.
fn change(space: &Space, mm: MmId, at: u64, round: u64) {
    map(space, mm, at, 16).unwrap();
    for page in [0, 5, 15] {
        let faulted = space.fault(mm, at + page * PAGE, Access::Write).unwrap();
        // The fault is spurious if another thread has handled it first.
        assert!(matches!(faulted, Faulted::Done | Faulted::Spurious));
    }
    space
        .mprotect(mm, at + 4 * PAGE, 4 * PAGE, Prot::READ, None)
        .unwrap();
    space
        .mprotect(mm, at + 4 * PAGE, 4 * PAGE, RW, None)
        .unwrap();
    shift(space, mm, at, 16, at + 64 * PAGE).unwrap();
    if round.is_multiple_of(16) {
        let child = space.fork(mm).unwrap();
        space.mm_exit(child).unwrap();
    }
    space.munmap(mm, at + 64 * PAGE, 16 * PAGE).unwrap();
}

/// Until `done`, writes to every page and reads the bytes back; returns the number of passes.
fn write_and_read(machine: &Machine, mm: MmId, at: u64, pages: u64, done: &AtomicBool) -> u64 {
    let mut passes = 0;
    loop {
        for page in 0..pages {
            let (addr, stamp) = (at + page * PAGE, passes << 32 | page);
            machine.store(mm, addr, &stamp.to_ne_bytes()).unwrap();
            let mut back = [0; 8];
            machine.load(mm, addr, &mut back).unwrap();
            assert_eq!(u64::from_ne_bytes(back), stamp, "page {page} of {at:x}");
        }
        passes += 1;
        if done.load(Ordering::Relaxed) {
            return passes;
        }
    }
}

#[test]
fn faults_go_on_while_another_thread_maps_and_unmaps() {
    let machine = Machine::new(Policy::LINUX, system());
    let space = machine.space();
    let mm = space.mm_create(layout(), Limits::default()).unwrap();
    // Two threads share one VMA, and each also has a VMA that it does not share.
    map(space, mm, BASE, 1024).unwrap();
    for thread in 1..=2 {
        map(space, mm, BASE + thread * APART, 256).unwrap();
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..2 {
            let (machine, done) = (&machine, &done);
            scope.spawn(move || {
                let own = BASE + (thread + 1) * APART;
                write_and_read(machine, mm, own, 256, done);
                write_and_read(machine, mm, BASE + thread * 512 * PAGE, 512, done)
            });
        }
        let ends = Ends(&done);
        for round in 0..300 {
            change(space, mm, BASE + 8 * APART, round);
        }
        drop(ends);
    });
    space.validate_all().unwrap();
    let counts = space.fault_counts(mm);
    assert!(counts.unlocked >= 1024, "{counts:?}");
    assert_eq!(counts.fell_back_for(FellBack::TooManyReaders), 0);
    space.mm_exit(mm).unwrap();
    space.validate_all().unwrap();
    assert_eq!(space.frames_in_use(), 0);
}

#[test]
fn faults_in_what_another_thread_changes_end_well() {
    let machine = Machine::new(Policy::LINUX, system());
    let space = machine.space();
    let mm = space.mm_create(layout(), Limits::default()).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 1..=2u64 {
            let (space, done) = (space, &done);
            scope.spawn(move || {
                let mut random = seed;
                while !done.load(Ordering::Relaxed) {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(7);
                    let addr = BASE + (random >> 33) % 96 * PAGE;
                    let touch = [Access::Read, Access::Write][(random >> 63) as usize];
                    match space.fault(mm, addr, touch).unwrap() {
                        Faulted::Done | Faulted::Spurious => {}
                        Faulted::NoMapping | Faulted::NoAccess => {}
                        other => panic!("{other:?} at {addr:x}"),
                    }
                }
            });
        }
        let ends = Ends(&done);
        for round in 0..300 {
            change(space, mm, BASE, round);
            // This neighbour remains mapped, so that VMAs merge; some of its pages are removed.
            if round % 7 == 0 {
                map(space, mm, BASE + 80 * PAGE, 16).unwrap();
                space
                    .madvise(mm, BASE + 82 * PAGE, 8 * PAGE, Advice::DontNeed)
                    .unwrap();
            }
        }
        drop(ends);
    });
    space.validate_all().unwrap();
    space.mm_exit(mm).unwrap();
    space.validate_all().unwrap();
    assert_eq!(space.frames_in_use(), 0);
}

/// An address space is destroyed, and its slot is reused, while threads fault in it. The threads'
/// faults fail with ESRCH and do not change the new address space.
#[test]
fn an_address_space_ends_under_its_threads() {
    let machine = Machine::new(Policy::LINUX, system());
    let space = machine.space();
    for _ in 0..60 {
        let mm = space.mm_create(layout(), Limits::default()).unwrap();
        map(space, mm, BASE, 64).unwrap();
        // The first fault creates the anon_vma, so that later faults need no lock.
        space.fault(mm, BASE, Access::Write).unwrap();
        let begun = Barrier::new(3);
        thread::scope(|scope| {
            for thread in 0..2 {
                let (space, begun) = (space, &begun);
                scope.spawn(move || {
                    begun.wait();
                    let mut page = thread;
                    let gone = loop {
                        match space.fault(mm, BASE + page % 64 * PAGE, Access::Write) {
                            Ok(_) => page += 2,
                            Err(gone) => break gone,
                        }
                    };
                    assert_eq!(gone, Errno::ESRCH);
                });
            }
            begun.wait();
            space.mm_exit(mm).unwrap();
            let next = space.mm_create(layout(), Limits::default()).unwrap();
            map(space, next, BASE, 64).unwrap();
            assert_eq!(
                space.mmap_read_lock(next).unwrap().pages().get(BASE),
                Pte::None
            );
            space.mm_exit(next).unwrap();
        });
        assert_eq!(space.frames_in_use(), 0);
    }
    space.validate_all().unwrap();
}

/// Two threads write to an unfaulted VMA at the same time; the VMA gets only one anon_vma.
#[test]
fn two_first_writes_make_one_anon_vma() {
    let machine = Machine::new(Policy::LINUX, system());
    let space = machine.space();
    let mm = space.mm_create(layout(), Limits::default()).unwrap();
    for round in 0..300 {
        let at = BASE + round * 4 * PAGE;
        map(space, mm, at, 2).unwrap();
        let begun = Barrier::new(2);
        let write = |addr| {
            begun.wait();
            space.fault(mm, addr, Access::Write).unwrap()
        };
        thread::scope(|scope| {
            let other = scope.spawn(|| write(at + PAGE));
            assert_eq!(write(at), Faulted::Done);
            assert_eq!(other.join().unwrap(), Faulted::Done);
        });
        let vma = space.mmap_read_lock(mm).unwrap().vma_lookup(at).unwrap();
        assert!(vma.anon_vma.is_some() && vma.chain_singular);
    }
    space.validate_all().unwrap();
}

/// While closed, blocks every thread that fills a frame.
#[derive(Default)]
struct Gate {
    closed: AtomicBool,
    waiting: AtomicU64,
}

impl Gate {
    fn pass(&self) {
        if self.closed.load(Ordering::Acquire) {
            self.waiting.fetch_add(1, Ordering::Release);
            while self.closed.load(Ordering::Acquire) {
                thread::yield_now();
            }
        }
    }
}

struct Slow(std::sync::Arc<Gate>);

impl Platform for Slow {
    fn zero(&self, _: FrameId) -> Result<(), Errno> {
        self.0.pass();
        Ok(())
    }
    fn copy(&self, _: FrameId, _: FrameId) -> Result<(), Errno> {
        Ok(())
    }
    fn copy_file(&self, _: FrameId, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }
    fn free(&self, _: FrameId) {}
}

/// Unmapping a VMA waits for a fault that holds the VMA's lock; faults in other VMAs do not wait.
#[test]
fn only_the_unmapping_of_a_vma_waits_for_its_reader() {
    let gate = std::sync::Arc::new(Gate::default());
    let platform = Box::new(Slow(gate.clone()));
    let space = vmarea::Space::with_platform(Policy::LINUX, system(), platform);
    let mm = space.mm_create(layout(), Limits::default()).unwrap();
    let (held, free) = (BASE, BASE + APART + PMD_SIZE);
    for at in [held, free] {
        map(&space, mm, at, 64).unwrap();
        space.fault(mm, at, Access::Write).unwrap();
    }
    let unmapped = AtomicBool::new(false);
    thread::scope(|scope| {
        gate.closed.store(true, Ordering::Release);
        scope.spawn(|| space.fault(mm, held + PAGE, Access::Write).unwrap());
        while gate.waiting.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        scope.spawn(|| {
            space.munmap(mm, held, 64 * PAGE).unwrap();
            unmapped.store(true, Ordering::Release);
        });
        // Reads of the zero page need no frame.
        for page in 1..64 {
            let faulted = space.fault(mm, free + page * PAGE, Access::Read).unwrap();
            assert_eq!(faulted, Faulted::Done);
        }
        assert!(
            !unmapped.load(Ordering::Acquire),
            "the reader is still inside"
        );
        gate.closed.store(false, Ordering::Release);
    });
    assert!(unmapped.load(Ordering::Acquire));
    assert_eq!(space.fault(mm, held, Access::Read), Ok(Faulted::NoMapping));
    space.validate_all().unwrap();
    assert!(space.fault_counts(mm).unlocked >= 63);
}

/// Walks the reverse map from one page after another until `done`; returns the number of walks.
fn walk_until(done: &AtomicBool, space: &Space, pages: &Mutex<Vec<(FrameId, u64)>>) -> u64 {
    let mut walks = 0;
    while !done.load(Ordering::Relaxed) {
        let at = |pages: &Vec<(FrameId, u64)>| pages[walks as usize % pages.len()];
        let (frame, addr) = at(&pages.lock().unwrap());
        let mut found = Vec::new();
        space.rmap_walk(frame, |mapping| found.push(mapping.addr));
        // The page may have been unmapped during the walk.
        if pages.lock().unwrap().contains(&(frame, addr)) {
            assert_eq!(found, [addr]);
        }
        walks += 1;
    }
    walks
}

/// While the heap grows and shrinks, reverse-map walks find each page in the heap exactly once; and
/// moving only the end of the heap never takes the reverse-map lock.
#[test]
fn the_break_moves_without_the_lock_of_the_reverse_map() {
    const PAGES: u64 = 64;
    let machine = Machine::new(Policy::VMAREA, system());
    let space = machine.space();
    let mm = space.mm_create(layout(), Limits::default()).unwrap();
    let start = layout().start_brk;
    // This mapping is far above the heap, which can therefore grow.
    map(space, mm, BASE, 1).unwrap();
    let grow = |pages: u64| {
        assert_eq!(
            space.brk(mm, start + pages * PAGE),
            Ok(start + pages * PAGE)
        );
    };
    let touch = |page: u64| {
        let addr = start + page * PAGE;
        assert_eq!(space.fault(mm, addr, Access::Write), Ok(Faulted::Done));
        let entry = space.mmap_read_lock(mm).unwrap().pages().get(addr);
        let Pte::Anon { frame, .. } = entry else {
            panic!("{entry:?} after a write");
        };
        (frame, addr)
    };
    grow(1);
    let there = Mutex::new(vec![touch(0)]);
    let before = space.mmap_read_lock(mm).unwrap().state().stats.clone();
    let done = AtomicBool::new(false);
    let walks = thread::scope(|scope| {
        let walker = scope.spawn(|| walk_until(&done, space, &there));
        let ends = Ends(&done);
        for _ in 0..200 {
            for page in 1..PAGES {
                grow(page + 1);
                let new = touch(page);
                there.lock().unwrap().push(new);
            }
            there.lock().unwrap().truncate(1);
            grow(1);
        }
        drop(ends);
        walker.join().unwrap()
    });
    assert!(walks > 0);
    let stats = space.mmap_read_lock(mm).unwrap().state().stats.clone();
    // When the heap shrinks, it is split, and the unmapped part is a separate VMA for a moment.
    assert_eq!(stats.adjusts_locked, before.adjusts_locked + 200);
    assert!(stats.adjusts_unlocked >= before.adjusts_unlocked + 200 * (PAGES - 1));
    space.validate_all().unwrap();
}

/// If a VMA has the maximum number of readers, a fault falls back to `mmap_lock` and succeeds.
#[test]
fn a_reader_too_many_falls_back() {
    let machine = Machine::new(Policy::LINUX, system());
    let space = machine.space();
    let mm = space.mm_create(layout(), Limits::default()).unwrap();
    map(space, mm, BASE, 4).unwrap();
    assert_eq!(space.fault(mm, BASE, Access::Write), Ok(Faulted::Done));
    let mut readers = 0u32;
    let refused = loop {
        match space.lock_vma(mm, BASE) {
            Ok(locked) => std::mem::forget(locked),
            Err(why) => break why,
        }
        readers += 1;
    };
    assert_eq!(
        (refused, readers),
        (FellBack::TooManyReaders, (1 << 23) - 2)
    );
    // A separate thread, because a thread that holds a VMA lock must not wait for `mmap_lock`.
    let faulted = thread::scope(|scope| {
        let one_more = scope.spawn(|| space.fault(mm, BASE + PAGE, Access::Write));
        one_more.join().unwrap()
    });
    assert_eq!(faulted, Ok(Faulted::Done));
    let counts = space.fault_counts(mm);
    assert_eq!(counts.fell_back_for(FellBack::TooManyReaders), 1);
    assert_eq!(counts.fell_back_for(FellBack::NoAnonVma), 1);
    assert_eq!(counts.unlocked, 0);
}

#[test]
fn a_locked_vma_is_the_one_at_the_address() {
    let machine = Machine::new(Policy::LINUX, system());
    let space = machine.space();
    let mm = space.mm_create(layout(), Limits::default()).unwrap();
    map(space, mm, BASE, 2).unwrap();
    let locked = space.lock_vma(mm, BASE + PAGE).unwrap();
    assert_eq!(locked.view().range, VmRange::new(BASE, BASE + 2 * PAGE));
    drop(locked);
    let reason = |addr| space.lock_vma(mm, addr).map(drop).unwrap_err();
    assert_eq!(reason(BASE + 2 * PAGE), FellBack::NoVma);
    let w = space.mmap_write_lock(mm).unwrap();
    assert_eq!(space.lock_vma(mm, BASE).map(drop), Ok(()));
    drop(w);
    space.mm_exit(mm).unwrap();
    assert_eq!(reason(BASE), FellBack::NoVma);
}
