//! Writers of separate parts of one address space: they run at once, and their results are those
//! of some order of the calls.
//!
//! Each history is a few calls by two to four threads. The test searches for an order of the calls
//! that respects real time and in which the core with one writer gives the same results and the
//! same list of VMAs. `VMAREA_HISTORIES` sets the number of histories.

use crate::rng::Rng;
use std::collections::HashSet;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::{MmapRequest, Placement};
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::platform::Environment;
use vmarea::types::writers::{OneWriter, Parted};
use vmarea::types::{Errno, MmId, NoBytes, PAGE_SIZE, PMD_SIZE, Platform, WithVmaLock};
use vmarea::vma::lock::VmaLock;
use vmarea::vma::merge::{Attempt, Observer};
use vmarea::{Space, System};

/// Parts as small as one page table, so that many ranges cross or touch their ends.
type Divided = WithVmaLock<VmaLock, Parted<12, { PMD_SIZE.trailing_zeros() }>>;
type Undivided = WithVmaLock<VmaLock, OneWriter>;

#[derive(Clone, Copy, Debug)]
enum Call {
    Mmap {
        addr: u64,
        pages: u64,
        fixed: bool,
    },
    Munmap {
        addr: u64,
        pages: u64,
    },
    Mprotect {
        addr: u64,
        pages: u64,
        prot: Prot,
    },
    Madvise {
        addr: u64,
        pages: u64,
        advice: Advice,
    },
    Mremap {
        addr: u64,
        pages: u64,
        new_pages: u64,
        may_move: bool,
    },
    Brk {
        addr: u64,
    },
}

fn machine<E: Environment<Platform = Box<dyn Platform>>>(limit: u32) -> (Space<E>, MmId)
where
    E::Mmu: Default,
{
    let system = System {
        stack_guard_gap: PAGE_SIZE,
        max_map_count: limit,
        ..System::default()
    };
    let space = Space::<E>::in_environment(Policy::LINUX, system, Box::new(NoBytes));
    let layout = Layout {
        mmap_base: 11 * PMD_SIZE,
        start_brk: 2 * PMD_SIZE + 64 * PAGE_SIZE,
        brk: 2 * PMD_SIZE + 64 * PAGE_SIZE,
        ..Layout::default()
    };
    let mm = space.mm_create(layout, Limits::default()).unwrap();
    // A first mapping puts each part to use.
    for part in 1..11 {
        let call = Call::Mmap {
            addr: part * PMD_SIZE + 16 * PAGE_SIZE,
            pages: 4,
            fixed: true,
        };
        apply(&space, mm, call).unwrap();
    }
    (space, mm)
}

fn apply<E: Environment>(space: &Space<E>, mm: MmId, call: Call) -> Result<u64, Errno> {
    let private = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
    match call {
        Call::Mmap { addr, pages, fixed } => {
            let flags = if fixed {
                private | MapFlags::FIXED
            } else {
                private
            };
            let request = MmapRequest {
                addr,
                flags,
                ..MmapRequest::anonymous(pages * PAGE_SIZE)
            };
            space.mmap(mm, &request)
        }
        Call::Munmap { addr, pages } => space.munmap(mm, addr, pages * PAGE_SIZE).map(|()| 0),
        Call::Mprotect { addr, pages, prot } => space
            .mprotect(mm, addr, pages * PAGE_SIZE, prot, None)
            .map(|()| 0),
        Call::Madvise {
            addr,
            pages,
            advice,
        } => space
            .madvise(mm, addr, pages * PAGE_SIZE, advice)
            .map(|()| 0),
        Call::Mremap {
            addr,
            pages,
            new_pages,
            may_move,
        } => {
            let request = MremapRequest {
                addr,
                old_len: pages * PAGE_SIZE,
                new_len: new_pages * PAGE_SIZE,
                flags: if may_move {
                    MremapFlags::MAYMOVE
                } else {
                    MremapFlags::empty()
                },
                ..MremapRequest::default()
            };
            space.mremap(mm, &request)
        }
        Call::Brk { addr } => space.brk(mm, addr),
    }
}

fn random_call(rng: &mut Rng, part: u64) -> Call {
    // Mostly in the middle of the part, sometimes at its start.
    let middle = if rng.below(8) == 0 { 0 } else { 16 };
    let addr = part * PMD_SIZE + (middle + rng.below(6)) * PAGE_SIZE;
    let addr = addr - 3 * PAGE_SIZE * u64::from(middle == 0);
    let pages = 1 + rng.below(4);
    match rng.below(10) {
        0..=1 => Call::Mmap {
            addr,
            pages,
            fixed: true,
        },
        2 => Call::Mmap {
            addr,
            pages,
            fixed: false,
        },
        3..=4 => Call::Munmap { addr, pages },
        5..=6 => Call::Mprotect {
            addr,
            pages,
            prot: [Prot::READ, Prot::READ | Prot::WRITE][rng.below(2) as usize],
        },
        7..=8 => Call::Mremap {
            addr,
            pages,
            new_pages: 1 + rng.below(6),
            may_move: rng.below(3) == 0,
        },
        _ if rng.below(2) == 0 => Call::Brk {
            addr: 2 * PMD_SIZE + (64 + rng.below(5)) * PAGE_SIZE,
        },
        _ => Call::Madvise {
            addr,
            pages,
            advice: [Advice::DontFork, Advice::DoFork][rng.below(2) as usize],
        },
    }
}

/// A call with its result, and the moments at which it began and ended.
type Done = (Call, Result<u64, Errno>, u64, u64);

fn list<E: Environment>(space: &Space<E>, mm: MmId) -> Vec<(u64, u64, u64)> {
    let guard = space.mmap_read_lock(mm).expect("a live address space");
    let line = |v: vmarea::vma::VmaView| (v.range.start, v.range.end, v.body.flags.bits());
    guard.vmas().map(line).collect()
}

/// True if some order of the calls explains all results and the final list.
fn explained(threads: &[Vec<Done>], last: &[(u64, u64, u64)], limit: u32) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(vec![0; threads.len()], Vec::<Call>::new())];
    while let Some((at, order)) = open.pop() {
        let (space, mm) = machine::<Undivided>(limit);
        for call in &order {
            let _ = apply(&space, mm, *call);
        }
        if !seen.insert((at.clone(), list(&space, mm))) {
            continue;
        }
        let next = |thread: usize| threads[thread].get(at[thread]);
        let first_end = (0..threads.len())
            .filter_map(|t| next(t).map(|done| done.3))
            .min();
        let Some(first_end) = first_end else {
            if list(&space, mm) == last {
                return true;
            }
            continue;
        };
        for thread in 0..threads.len() {
            let Some((call, result, begun, _)) = next(thread) else {
                continue;
            };
            // A call that began after another ended cannot come before it.
            if *begun > first_end {
                continue;
            }
            let (space, mm) = machine::<Undivided>(limit);
            for call in &order {
                let _ = apply(&space, mm, *call);
            }
            if apply(&space, mm, *call) == *result {
                let mut then = at.clone();
                then[thread] += 1;
                open.push((then, [order.as_slice(), &[*call]].concat()));
            }
        }
    }
    false
}

/// Waits until all threads wait, without sleeping: a thread that has to be woken would often begin
/// after the others have ended.
fn start_together(absent: &AtomicU64) {
    absent.fetch_sub(1, Ordering::SeqCst);
    let mut rounds = 0;
    while absent.load(Ordering::SeqCst) > 0 {
        rounds += 1;
        match rounds % 1000 {
            // There can be more threads than processors.
            0 => thread::yield_now(),
            _ => spin_loop(),
        }
    }
}

fn history(seed: u64) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let threads = 2 + rng.below(3) as usize;
    // Sometimes the map limit is near.
    let limit = if rng.below(4) == 0 { 14 } else { 65_530 };
    let (space, mm) = machine::<Divided>(limit);
    let shared = 1 + rng.below(8);
    let calls: Vec<Vec<Call>> = (0..threads as u64)
        .map(|thread| {
            let part = if rng.below(3) == 0 {
                shared
            } else {
                1 + (shared + thread) % 9
            };
            (0..3).map(|_| random_call(&mut rng, part)).collect()
        })
        .collect();
    let (clock, absent) = (AtomicU64::new(0), AtomicU64::new(threads as u64));
    let done: Vec<Vec<Done>> = thread::scope(|scope| {
        let run = |calls: Vec<Call>| {
            let (space, clock, absent) = (&space, &clock, &absent);
            scope.spawn(move || {
                start_together(absent);
                let one = |call| {
                    let begun = clock.fetch_add(1, Ordering::SeqCst);
                    let result = apply(space, mm, call);
                    (call, result, begun, clock.fetch_add(1, Ordering::SeqCst))
                };
                calls.into_iter().map(one).collect::<Vec<Done>>()
            })
        };
        let running: Vec<_> = calls.into_iter().map(run).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    space.validate_all().unwrap();
    let last = list(&space, mm);
    assert!(
        explained(&done, &last, limit),
        "no order explains history {seed}: {done:x?} {last:x?}"
    );
}

#[test]
fn every_history_has_an_order() {
    let histories = std::env::var("VMAREA_HISTORIES").map_or(300, |n| n.parse().unwrap());
    (1..=histories).for_each(history);
}

/// Calls `at` for each merge attempt, with the start of the range.
struct Watch<F>(F);

impl<F: Fn(u64) + Send + Sync> Observer for Watch<F> {
    fn attempt(&self, attempt: &Attempt<'_>) {
        (self.0)(attempt.proposal.range.start);
    }
}

fn anonymous(part: u64) -> Call {
    Call::Mmap {
        addr: part * PMD_SIZE + 200 * PAGE_SIZE,
        pages: 2,
        fixed: true,
    }
}

#[test]
fn a_call_runs_while_a_call_in_another_part_has_not_ended() {
    let (mut space, mm) = machine::<Divided>(65_530);
    let other_ended = Arc::new(AtomicBool::new(false));
    let seen = other_ended.clone();
    space.set_observer(Box::new(Watch(move |start| {
        // With one writer, the other call could never end, and the test would hang.
        while start / PMD_SIZE == 4 && !seen.load(Ordering::Acquire) {
            thread::yield_now();
        }
    })));
    thread::scope(|scope| {
        scope.spawn(|| apply(&space, mm, anonymous(4)).unwrap());
        apply(&space, mm, anonymous(6)).unwrap();
        other_ended.store(true, Ordering::Release);
    });
    space.validate_all().unwrap();
}

#[test]
fn a_panic_in_one_part_leaves_the_others_and_the_whole_usable() {
    let (mut space, mm) = machine::<Divided>(65_530);
    let panics = Arc::new(AtomicBool::new(true));
    let armed = panics.clone();
    space.set_observer(Box::new(Watch(move |start| {
        let here = start / PMD_SIZE == 4 && armed.load(Ordering::Relaxed);
        assert!(!here, "the embedder's observer fails");
    })));
    let before = list(&space, mm);
    let died = catch_unwind(AssertUnwindSafe(|| apply(&space, mm, anonymous(4))));
    assert!(died.is_err());
    assert_eq!(list(&space, mm), before, "the call is undone");
    space.validate_all().unwrap();
    panics.store(false, Ordering::Relaxed);
    for part in [4, 6] {
        apply(&space, mm, anonymous(part)).unwrap();
    }
    let child = space.fork(mm).unwrap();
    space.mm_exit(child).unwrap();
    space.validate_all().unwrap();
}

#[test]
fn arenas_place_mappings_apart_under_both_kinds() {
    fn placed<E: Environment<Platform = Box<dyn Platform>>>() -> [u64; 3]
    where
        E::Mmu: Default,
    {
        let space = Space::<E>::in_environment(Policy::LINUX, System::default(), Box::new(NoBytes));
        let layout = Layout {
            mmap_base: 0x7f00_0000_0000,
            ..Layout::default()
        };
        let mm = space.mm_create(layout, Limits::default()).unwrap();
        let found = [0, 1, 0].map(|arena| {
            let request = MmapRequest {
                placement: Placement::Arena(arena),
                ..MmapRequest::anonymous(PAGE_SIZE)
            };
            space.mmap(mm, &request).unwrap()
        });
        space.validate_all().unwrap();
        found
    }
    let [first, second, third] = placed::<WithVmaLock<VmaLock, OneWriter>>();
    assert_eq!(
        (second >> 42, third),
        ((first >> 42) + 1, first - PAGE_SIZE)
    );
    let divided = placed::<WithVmaLock<VmaLock, vmarea::types::writers::Regions>>();
    assert_eq!(divided, [first, second, third]);
}
