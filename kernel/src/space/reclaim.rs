//! Reclaim: a clock algorithm whose hand passes over all frames and swaps out unused pages.
//!
//! A page whose accessed bit is set gets a second chance: the core clears the bit, and swaps the
//! page out when the hand returns to it and the bit is still clear. A kernel thread keeps some
//! frames free. A page fault that finds almost no free frames moves the hand itself.
//!
//! ```text
//! free frames   0 ······ MIN ······ LOW ······ HIGH ······
//!               fault moves the hand   the thread starts   the thread stops
//! ```
//!
//! # Linux
//! `mm/vmscan.c` `kswapd`, `balance_pgdat`, `try_to_free_pages`.

use super::space;
use crate::memory::frames;
use crate::scheduler::{self, Event};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use spin::RwLock;
use vmarea::mm::Retained;

/// Number of free frames below which a page fault moves the hand before it takes a frame.
pub const MIN: usize = 128;
/// Number of free frames below which the kernel thread starts to move the hand.
const LOW: usize = 2 * MIN;
/// Number of free frames at which the kernel thread stops moving the hand.
const HIGH: usize = 3 * MIN;
/// Number of pages to swap out per call of [`move_hand`].
const BATCH: usize = 32;
/// Maximum number of the hand's revolutions per call of [`move_hand`].
///
/// One revolution clears the accessed bits, one swaps pages out, and one more swaps out pages that
/// were accessed in between.
const TURNS: usize = 3;
/// Maximum number of times that a fault yields its CPU while all reclaimable pages are busy.
const PATIENCE: usize = 200;

/// Index of the frame that the hand examines next.
static HAND: AtomicUsize = AtomicUsize::new(0);
/// Read-locked while the hand moves; the value is true once the hand has stopped permanently.
static STOPPED: RwLock<bool> = RwLock::new(false);
/// True if the kernel thread should swap pages out because few frames are free.
static IS_LOW: AtomicBool = AtomicBool::new(false);
/// True if the kernel thread swaps pages out even while memory is free.
static ALWAYS: AtomicBool = AtomicBool::new(false);

/// Result of moving the hand.
#[derive(Clone, Copy, Default)]
struct Found {
    /// Number of pages that were swapped out.
    taken: usize,
    /// True if some pages were being changed, so that swapping them out may succeed later.
    busy: bool,
}

/// Moves the hand until it has swapped out `wanted` pages or can swap out no more pages.
fn move_hand(wanted: usize) -> Found {
    let mut found = Found::default();
    let stopped = STOPPED.read();
    if *stopped {
        return found;
    }
    let frames = space().frame_bound().max(1);
    for _ in 0..TURNS * frames {
        // ORDERING: Relaxed; each index is visited, it does not matter by whom.
        let index = HAND.fetch_add(1, Ordering::Relaxed) % frames;
        let Some(frame) = space().frame_at(index) else {
            continue;
        };
        match space().reclaim_frame(frame) {
            Ok(_) => found.taken += 1,
            Err(Retained::NoSlot) => break,
            Err(Retained::Busy) => found.busy = true,
            Err(Retained::Accessed | Retained::Mlocked | Retained::Unmapped) => {}
        }
        if found.taken == wanted {
            break;
        }
    }
    found
}

/// Swaps out pages until more than `wanted` frames are free; returns false if that is impossible.
///
/// The caller holds no lock.
pub fn free_frames(wanted: usize) -> bool {
    let mut patience = PATIENCE;
    while frames::free_frames() <= wanted {
        let found = move_hand(BATCH);
        if found.taken == 0 {
            if !found.busy || patience == 0 {
                return false;
            }
            patience -= 1;
            scheduler::pause();
        }
    }
    true
}

/// Wakes the kernel thread if few frames are free.
pub fn check() {
    // ORDERING: Relaxed; the queues' lock orders the flag before the thread's check.
    if frames::free_frames() < LOW && !IS_LOW.swap(true, Ordering::Relaxed) {
        scheduler::wake(Event::LowMemory, 1);
    }
}

/// Stops the hand permanently, so that the core's structures can be checked.
pub fn stop() {
    // An upgradeable lock keeps new readers out, so the kernel thread cannot delay this forever.
    *STOPPED.upgradeable_read().upgrade() = true;
}

/// Starts the kernel thread. If `always` is true, it swaps pages out even while memory is free.
pub fn start(always: bool) {
    // ORDERING: Relaxed; set before the thread runs.
    ALWAYS.store(always, Ordering::Relaxed);
    scheduler::start_kernel_thread(background);
}

/// The kernel thread.
extern "C" fn background() -> ! {
    loop {
        // ORDERING: Relaxed; does not change any more.
        let always = ALWAYS.load(Ordering::Relaxed);
        while always || frames::free_frames() < HIGH {
            let found = move_hand(BATCH);
            if found.taken == 0 && !always {
                break;
            }
            scheduler::yield_now();
        }
        // ORDERING: Relaxed; as in `check`.
        let is_low = || IS_LOW.swap(false, Ordering::Relaxed).then_some(());
        let _ = scheduler::wait(Event::LowMemory, None, is_low);
    }
}
