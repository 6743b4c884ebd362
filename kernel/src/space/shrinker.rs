//! The shrinker: gives memory back that the core and the page tables keep for later.
//!
//! The core keeps the memory of VMAs, anon_vmas and page tables that are gone, because threads look
//! up VMAs without a lock, and an address space keeps the hardware's tables while it lives. Before a
//! call fails or a process is killed for want of memory, both are freed. All other CPUs are stopped
//! meanwhile ([`cpu::stop`]), which proves that no thread is inside the core.
//!
//! # Linux
//! `mm/shrinker.c` `shrink_slab`; Linux frees page tables when their range is unmapped.

use super::{reclaim, shared};
use crate::cpu::clock;
use crate::memory::{frames, heap, mmu};
use crate::scheduler;
use core::sync::atomic::{AtomicU64, Ordering};

#[cfg(doc)]
use crate::cpu;

/// Number of VMAs of a process whose end makes it worthwhile to shrink again.
const LARGE: u32 = 1000;
/// The shrinker has done something useful if it has given back this part of the heap.
const USEFUL: usize = 64;
/// After it has done nothing useful, the shrinker rests this many times as long as it took.
const REST: u64 = 9;

/// The time before which shrinking again is not worthwhile.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Gives back memory that is not in use: of the core, and page tables if frames are short.
///
/// Does nothing if that was of no use a short while ago. The caller holds no lock.
pub fn shrink() {
    let start = clock::now();
    // ORDERING: Relaxed; a hint.
    if start < NEXT.load(Ordering::Relaxed) {
        return;
    }
    let (heap, frames) = (heap::bytes_in_use(), frames::free_frames());
    give_back(frames <= reclaim::MIN);
    let given = heap.saturating_sub(heap::bytes_in_use())
        + frames::free_frames().saturating_sub(frames) * frames::FRAME_SIZE;
    let now = clock::now();
    if given < heap::size() / USEFUL {
        // ORDERING: Relaxed; a hint.
        NEXT.store(now + REST * (now - start), Ordering::Relaxed);
    }
}

/// Gives back all memory that is not in use.
///
/// The caller holds no lock.
#[doc(alias = "drop_slab")]
pub fn drop_caches() {
    give_back(true);
}

/// Learns that a process has ended that had at most `vmas` VMAs at one time.
pub fn process_ended(vmas: u32) {
    if vmas >= LARGE {
        // ORDERING: Relaxed; a hint.
        NEXT.store(0, Ordering::Relaxed);
    }
}

fn give_back(tables: bool) {
    while shared()
        .alone(|space, alone| {
            space.shrink();
            if tables {
                mmu::free_empty_tables(alone);
            }
        })
        .is_none()
    {
        scheduler::yield_now();
    }
}

/// True if enough of the heap is free for a call that needs kernel memory, if necessary after
/// shrinking.
///
/// The caller holds no lock.
pub fn has_heap() -> bool {
    if heap::is_low() {
        shrink();
    }
    !heap::is_low()
}
