//! Tests of the lookup caches with the address spaces of a core.
//!
//! Regardless of the content of a cache, a lookup through the cache must return the same result as
//! the index. This is checked with random calls in several address spaces and threads, including
//! with sequence numbers that overflow frequently. Further tests check that each cache drops
//! exactly the entries that its documentation states.

mod ends;
mod fleet;

use fleet::{Fleet, NONE, PAGE, at, spaced};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use vmarea::lookup::Vmas;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::MmId;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::{Space, System};
use vmarea_experiments::vma_cache::{
    Cache, Checked, LastUsed, LastUsedAndLargest, Lookup, NoCache, VmaCache, find_vma,
};

#[derive(Clone, Debug)]
enum Step {
    Map {
        mm: usize,
        page: u64,
        pages: u64,
        prot: Prot,
    },
    Unmap {
        mm: usize,
        page: u64,
        pages: u64,
    },
    Protect {
        mm: usize,
        page: u64,
        pages: u64,
        prot: Prot,
    },
    Move {
        mm: usize,
        from: u64,
        to: u64,
        pages: u64,
    },
    Look {
        thread: usize,
        page: u64,
    },
    LookElsewhere {
        thread: usize,
        mm: usize,
        page: u64,
    },
    Enter {
        thread: usize,
        mm: usize,
    },
    ThreadEnds {
        thread: usize,
    },
    MmEnds {
        mm: usize,
    },
}

const PAGES: u64 = 48;
const MMS: usize = 3;
const THREADS: usize = 4;

fn step() -> impl Strategy<Value = Step> {
    let (mm, thread) = (0..MMS, 0..THREADS);
    let (page, pages) = (0..PAGES, 1..8u64);
    let prot = prop_oneof![Just(NONE), Just(Prot::READ), Just(Prot::READ | Prot::WRITE)];
    prop_oneof![
        4 => (mm.clone(), page.clone(), pages.clone(), prot.clone())
            .prop_map(|(mm, page, pages, prot)| Step::Map { mm, page, pages, prot }),
        3 => (mm.clone(), page.clone(), pages.clone())
            .prop_map(|(mm, page, pages)| Step::Unmap { mm, page, pages }),
        2 => (mm.clone(), page.clone(), pages.clone(), prot)
            .prop_map(|(mm, page, pages, prot)| Step::Protect { mm, page, pages, prot }),
        1 => (mm.clone(), page.clone(), page.clone(), pages)
            .prop_map(|(mm, from, to, pages)| Step::Move { mm, from, to, pages }),
        16 => (thread.clone(), page.clone()).prop_map(|(thread, page)| Step::Look { thread, page }),
        2 => (thread.clone(), mm.clone(), page)
            .prop_map(|(thread, mm, page)| Step::LookElsewhere { thread, mm, page }),
        1 => (thread.clone(), mm.clone()).prop_map(|(thread, mm)| Step::Enter { thread, mm }),
        1 => thread.prop_map(|thread| Step::ThreadEnds { thread }),
        1 => mm.prop_map(|mm| Step::MmEnds { mm }),
    ]
}

/// Executes the steps and compares the result of every lookup with the index.
fn walk<C: Cache + 'static>(steps: &[Step]) {
    let mut fleet = Fleet::<C>::new();
    let mut mms: Vec<MmId> = (0..MMS).map(|_| fleet.mm()).collect();
    for thread in 0..THREADS {
        fleet.enter(thread, mms[thread % MMS]);
    }
    for step in steps {
        match *step {
            Step::Map {
                mm,
                page,
                pages,
                prot,
            } => fleet.map(mms[mm], page, pages, prot),
            Step::Unmap { mm, page, pages } => fleet.unmap(mms[mm], page, pages),
            Step::Protect {
                mm,
                page,
                pages,
                prot,
            } => {
                // If the range contains a hole, `mprotect` fails, perhaps after changing a part of
                // it.
                let _ = fleet
                    .space
                    .mprotect(mms[mm], at(page), pages * PAGE, prot, None);
            }
            Step::Move {
                mm,
                from,
                to,
                pages,
            } => move_pages(&fleet, mms[mm], (from, to), pages),
            Step::Look { thread, page } => {
                fleet.own(thread, page);
            }
            Step::LookElsewhere { thread, mm, page } => {
                fleet.look(thread, mms[mm], page);
            }
            Step::Enter { thread, mm } => fleet.enter(thread, mms[mm]),
            Step::ThreadEnds { thread } => {
                // The thread ends with a filled cache, and a new thread takes its place.
                let (mm, _) = fleet.threads[thread].take().unwrap();
                fleet.enter(thread, mm);
            }
            Step::MmEnds { mm } => mms[mm] = replace_mm(&mut fleet, mms[mm]),
        }
    }
}

/// Moves pages with `MREMAP_FIXED`; the core may reject the move, for example because of a hole.
fn move_pages<C: Cache + 'static>(fleet: &Fleet<C>, mm: MmId, (from, to): (u64, u64), pages: u64) {
    let request = MremapRequest {
        addr: at(from),
        old_len: pages * PAGE,
        new_len: pages * PAGE,
        flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
        new_addr: at(to),
        ..MremapRequest::default()
    };
    let _ = fleet.space.mremap(mm, &request);
}

/// Ends an address space and creates another one in the same slot. At that time, the caches of the
/// old space's threads still contain the old space's VMAs.
fn replace_mm<C: Cache + 'static>(fleet: &mut Fleet<C>, old: MmId) -> MmId {
    fleet.end(old);
    let new = fleet.mm();
    fleet.map(new, 0, PAGES, Prot::READ);
    for thread in 0..THREADS {
        if fleet.threads[thread].as_ref().unwrap().0 == old {
            fleet.look(thread, new, 1);
            fleet.enter(thread, new);
        }
    }
    new
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn a_lookup_gives_what_the_index_says(steps in prop::collection::vec(step(), 1..160)) {
        walk::<NoCache>(&steps);
        walk::<LastUsed>(&steps);
        walk::<LastUsedAndLargest>(&steps);
        walk::<VmaCache>(&steps);
        // The sequence number wraps to 0 after every third removal.
        walk::<VmaCache<2>>(&steps);
        walk::<Checked>(&steps);
        // A cache with only two entries.
        walk::<Checked<2>>(&steps);
    }
}

#[test]
fn the_last_used_one_is_shared_by_all_threads() {
    let (mut fleet, mm) = spaced::<LastUsed>(4);
    fleet.enter(1, mm);
    assert!(!fleet.hits(0, 0));
    assert!(fleet.hits(0, 1) && fleet.hits(1, 1));
    // Two threads in two VMAs evict each other's entry.
    for _ in 0..3 {
        assert!(!fleet.hits(1, 4) && !fleet.hits(0, 0));
    }
    fleet.unmap(mm, 12, 2);
    assert!(!fleet.hits(0, 0), "any munmap empties it");
    // A VMA that is merged into its neighbour is replaced in the cache by the VMA before it.
    fleet.map(mm, 2, 2, NONE);
    assert!(!fleet.hits(0, 2));
    fleet.protect(mm, 2, 2, Prot::READ);
    assert!(fleet.hits(0, 0) && fleet.hits(0, 3));
}

#[test]
fn the_largest_one_stays_beside_it() {
    let (mut fleet, mm) = spaced::<LastUsedAndLargest>(4);
    fleet.map(mm, 100, 50, Prot::READ);
    assert!(!fleet.hits(0, 120));
    for _ in 0..3 {
        assert!(!fleet.hits(0, 0) && !fleet.hits(0, 4));
        assert!(fleet.hits(0, 101) && fleet.hits(0, 149));
    }
    fleet.unmap(mm, 100, 50);
    fleet.map(mm, 100, 1, Prot::READ);
    assert!(!fleet.hits(0, 100));
}

#[test]
fn vmacache_has_four_entries_chosen_by_the_page_number() {
    let (mut fleet, mm) = spaced::<VmaCache>(8);
    // Pages 0, 4 and 8 are equal modulo 4; page 9 uses another entry.
    assert!(!fleet.hits(0, 0) && !fleet.hits(0, 4) && !fleet.hits(0, 0));
    assert!(!fleet.hits(0, 9) && fleet.hits(0, 0) && fleet.hits(0, 9));
    fleet.unmap(mm, 28, 2);
    assert!(!fleet.hits(0, 0), "a removal elsewhere empties it");
    assert!(fleet.hits(0, 0));
    fleet.map(mm, 28, 2, Prot::READ);
    assert!(fleet.hits(0, 0), "what is added takes nothing away");
}

#[test]
fn vmacache_serves_no_other_address_space() {
    let (mut fleet, mm) = spaced::<VmaCache>(2);
    let other = fleet.mm();
    fleet.map(other, 0, 2, Prot::READ);
    assert!(!fleet.hits(0, 0));
    for _ in 0..2 {
        let elsewhere = fleet.look(0, other, 0);
        assert!(matches!(elsewhere, Lookup::Searched(Some(_))));
        assert!(fleet.hits(0, 0));
    }
    fleet.enter(0, other);
    fleet.enter(0, mm);
    assert!(!fleet.hits(0, 0), "execve empties it");
}

/// A thread that makes no lookup during a whole cycle of the sequence number has its cache emptied.
#[test]
fn an_overflow_empties_the_caches_of_all_threads() {
    const LAST: u32 = 5;
    let (mut fleet, mm) = spaced::<VmaCache<LAST>>(2);
    fleet.enter(1, mm);
    assert!(!fleet.hits(0, 0) && fleet.hits(0, 0));
    assert!(!fleet.hits(1, 4) && fleet.hits(1, 4));
    fleet.unmap(mm, 0, 2);
    for _ in 0..LAST {
        fleet.map(mm, 40, 1, Prot::READ);
        fleet.unmap(mm, 40, 1);
    }
    // Another VMA, at another address, is in the slot of the first one.
    fleet.map(mm, 0, 2, NONE);
    assert!(!fleet.hits(0, 0) && !fleet.hits(1, 4));
    assert!(fleet.hits(0, 0) && fleet.hits(1, 4));
}

#[test]
fn a_thread_that_ended_with_a_filled_cache_is_not_flushed() {
    let (mut fleet, mm) = spaced::<VmaCache<1>>(2);
    for thread in 1..100 {
        fleet.enter(thread, mm);
        assert!(!fleet.hits(thread, 0) && fleet.hits(thread, 1));
        fleet.threads[thread] = None;
    }
    for _ in 0..5 {
        fleet.map(mm, 40, 1, Prot::READ);
        fleet.unmap(mm, 40, 1);
        assert!(!fleet.hits(0, 0) && fleet.hits(0, 0));
    }
}

#[test]
fn ours_loses_nothing_to_changes_elsewhere() {
    let (mut fleet, mm) = spaced::<Checked>(8);
    for n in [0, 1, 2, 5] {
        assert!(!fleet.hits(0, n * 4));
    }
    fleet.map(mm, 200, 2, Prot::READ);
    fleet.unmap(mm, 200, 2);
    fleet.unmap(mm, 20, 2);
    for n in [0, 1, 2] {
        assert!(fleet.hits(0, n * 4 + 1), "{n}");
    }
    // Another VMA is in the place of the removed one.
    fleet.map(mm, 20, 2, Prot::READ);
    assert!(!fleet.hits(0, 20) && fleet.hits(0, 21));
}

#[test]
fn ours_finds_what_grew_and_what_was_cut() {
    let (mut fleet, mm) = spaced::<Checked>(8);
    for n in [4, 3, 1] {
        fleet.own(0, n * 4);
    }
    // One of the two VMAs used last grows upwards, the other one downwards.
    fleet.map(mm, 6, 1, Prot::READ);
    assert!(fleet.hits(0, 6) && fleet.hits(0, 5));
    fleet.map(mm, 11, 1, Prot::READ);
    assert!(fleet.hits(0, 11) && fleet.hits(0, 13));
    // A VMA is split: one half is new and is a miss once.
    fleet.protect(mm, 17, 1, NONE);
    let halves = [fleet.hits(0, 16), fleet.hits(0, 17)];
    assert_ne!(halves[0], halves[1]);
    assert!(fleet.hits(0, 16) && fleet.hits(0, 17));
}

/// The bounds of a VMA that has grown far beyond them are learned by a search, once.
#[test]
fn ours_finds_what_grew_far_after_one_search() {
    let (mut fleet, mm) = spaced::<Checked>(1);
    fleet.own(0, 0);
    fleet.map(mm, 2, 1000, Prot::READ);
    assert!(fleet.hits(0, 40), "near");
    fleet.map(mm, 1002, 1000, Prot::READ);
    assert!(!fleet.hits(0, 1900) && fleet.hits(0, 1500) && fleet.hits(0, 3));
}

/// A VMA that merges into the one before it takes its entry along, as in the last-used cache.
#[test]
fn ours_follows_a_vma_into_the_one_before_it() {
    let (mut fleet, mm) = spaced::<Checked>(1);
    fleet.map(mm, 2, 2, NONE);
    assert!(!fleet.hits(0, 2));
    fleet.protect(mm, 2, 2, Prot::READ);
    assert!(fleet.hits(0, 3) && fleet.hits(0, 0));
    // What is unmapped merges with nothing.
    fleet.map(mm, 8, 2, NONE);
    assert!(!fleet.hits(0, 8));
    fleet.unmap(mm, 8, 2);
    fleet.map(mm, 9, 1, NONE);
    assert!(!fleet.hits(0, 9));
}

#[test]
fn ours_keeps_what_is_used_when_it_is_full() {
    let (mut fleet, _) = spaced::<Checked>(40);
    for round in 0..10 {
        for n in 0..3 {
            assert_eq!(fleet.hits(0, n * 4), round > 0, "{n} in round {round}");
            assert!(fleet.hits(0, n * 4 + 1));
        }
        fleet.own(0, (8 + round * 3) * 4);
    }
}

/// Misses that no cache could avoid cost the cache nothing: it answers the next lookup that it can.
#[test]
fn ours_is_as_good_as_before_after_any_number_of_misses() {
    let (mut fleet, _) = spaced::<Checked>(200);
    for n in 0..20_000 {
        // Each page is in a hole.
        assert!(!fleet.hits(0, n % 200 * 4 + 2));
    }
    assert!(!fleet.hits(0, 0) && fleet.hits(0, 1));
    for n in 0..200 {
        assert!(!fleet.hits(0, n * 4) || n == 0, "{n}");
        assert!(fleet.hits(0, n * 4 + 1), "{n}");
    }
}

/// Readers with their own caches look up VMAs while a writer unmaps these VMAs and maps them again.
#[test]
fn answers_hold_while_another_thread_changes_the_address_space() {
    let space = Space::new(Policy::LINUX, System::default());
    let mm = space
        .mm_create(Layout::default(), Limits::default())
        .unwrap();
    let request = |n: u64, prot: Prot| MmapRequest {
        addr: at(n * 2),
        len: PAGE,
        prot,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
        ..MmapRequest::default()
    };
    for n in 0..64 {
        space.mmap(mm, &request(n, Prot::READ)).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 1..=2u64 {
            let (space, stop) = (&space, &stop);
            scope.spawn(move || {
                let mut own = Default::default();
                let removed = Default::default();
                Checked::<16>::enter(&removed, &mut own, mm);
                let (mut random, mut hits) = (seed, 0u64);
                while hits < 1000 || !stop.load(Ordering::Relaxed) {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let addr = at((random >> 40) % 24 * 2);
                    let guard = space.mmap_read_lock(mm).unwrap();
                    let answer = find_vma::<Checked<16>, _>(&removed, &mut own, &guard, addr);
                    assert_eq!(answer.found().map(|(vma, _)| vma), guard.find(addr));
                    hits += u64::from(matches!(answer, Lookup::Hit(..)));
                }
            });
        }
        for n in (0..64).cycle().take(20_000) {
            space.munmap(mm, at(n * 2), PAGE).unwrap();
            space.mmap(mm, &request(n, Prot::READ)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}
