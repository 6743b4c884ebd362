//! Tests in which a thread or an address space ends while a cache still has entries for it.
//!
//! The tests check for every cache that nothing waits for the cache and that the cache keeps
//! nothing alive. VMAs that have cache entries can be removed, and the slots of these VMAs and of
//! the address space can be reused. After a thread's address space has ended, the thread's lookups
//! return the results of the index until the thread enters another address space.

use crate::fleet::{Fleet, spaced};
use vmarea::types::MmId;
use vmarea::types::call_flags::Prot;
use vmarea_experiments::vma_cache::{
    Cache, Checked, LastUsed, LastUsedAndLargest, Lookup, NoCache, VmaCache,
};

const MAPPINGS: u64 = 8;

/// Returns the slot number in an address space's id, without the slot's generation.
fn slot(mm: MmId) -> u32 {
    mm.to_bits() as u32
}

fn fill<C: Cache + 'static>(fleet: &mut Fleet<C>, thread: usize) {
    for n in 0..MAPPINGS {
        fleet.own(thread, n * 4);
        fleet.own(thread, n * 4 + 1);
    }
}

/// Unmaps everything and creates VMAs at the same addresses, in the same slots.
fn map_anew<C: Cache + 'static>(fleet: &Fleet<C>, mm: MmId) {
    fleet.unmap(mm, 0, MAPPINGS * 4);
    for n in 0..MAPPINGS {
        fleet.map(mm, n * 4, 2, Prot::READ);
    }
}

fn a_thread_ends<C: Cache + 'static>(own_to_a_thread: bool) {
    let (mut fleet, mm) = spaced::<C>(MAPPINGS);
    for thread in 1..4 {
        fleet.enter(thread, mm);
        fill(&mut fleet, thread);
        fleet.threads[thread] = None;
        // There was no lookup in between: a new thread with the same number must not find entries
        // of the old thread.
        fleet.enter(thread, mm);
        let last = (MAPPINGS - 1) * 4;
        if own_to_a_thread {
            assert!(!fleet.hits(thread, last), "{}: another thread's", C::NAME);
        }
        fill(&mut fleet, thread);
        fleet.threads[thread] = None;
        // The writer has no thread to notify, and the slots of the removed VMAs are reused.
        map_anew(&fleet, mm);
        fill(&mut fleet, 0);
    }
    fleet.space.validate_all().unwrap();
    fleet.threads.clear();
    fleet.end(mm);
    fleet.space.validate_all().unwrap();
}

#[test]
fn a_thread_ends_with_a_filled_cache() {
    a_thread_ends::<NoCache>(false);
    a_thread_ends::<LastUsed>(false);
    a_thread_ends::<LastUsedAndLargest>(false);
    a_thread_ends::<VmaCache>(true);
    a_thread_ends::<VmaCache<1>>(true);
    a_thread_ends::<Checked>(true);
    a_thread_ends::<Checked<2>>(true);
}

fn an_mm_ends<C: Cache + 'static>() {
    let (mut fleet, old) = spaced::<C>(MAPPINGS);
    fill(&mut fleet, 0);
    fleet.end(old);
    // The address space no longer exists, even if cache entries refer to it.
    let gone = fleet.space.mmap_read_lock(old).map(|_| ());
    assert_eq!(gone, None, "{}", C::NAME);
    let next = fleet.mm();
    assert_eq!(slot(next), slot(old), "the test wants it in the same slot");
    assert_ne!(next, old);
    for n in 0..MAPPINGS {
        fleet.map(next, n * 4, 2, Prot::READ);
    }
    // The thread has not entered `next`: its entries refer to removed VMAs, whose slots are in use
    // again. `look` compares each answer with the index.
    for page in [0, 4, (MAPPINGS - 1) * 4] {
        let answer = fleet.look(0, next, page);
        assert!(matches!(answer, Lookup::Searched(Some(_))), "{}", C::NAME);
    }
    fleet.enter(0, next);
    fill(&mut fleet, 0);
    fleet.end(next);
    fleet.space.validate_all().unwrap();
}

#[test]
fn an_mm_ends_while_a_cache_still_points_into_it() {
    an_mm_ends::<NoCache>();
    an_mm_ends::<VmaCache>();
    an_mm_ends::<VmaCache<1>>();
    an_mm_ends::<Checked>();
    an_mm_ends::<Checked<2>>();
}

/// A per-address-space cache ends with its space; the next space starts without entries.
#[test]
fn an_mm_ends_with_its_own_cache() {
    fn begins_empty<C: Cache + 'static>() {
        let (mut fleet, old) = spaced::<C>(MAPPINGS);
        fill(&mut fleet, 0);
        fleet.end(old);
        let next = fleet.mm();
        assert_eq!(slot(next), slot(old), "the test wants it in the same slot");
        fleet.map(next, (MAPPINGS - 1) * 4, 2, Prot::READ);
        fleet.enter(0, next);
        let last = (MAPPINGS - 1) * 4;
        assert!(!fleet.hits(0, last), "{}: of the one before", C::NAME);
        assert!(fleet.hits(0, last));
    }
    begins_empty::<LastUsed>();
    begins_empty::<LastUsedAndLargest>();
}
