//! Reclaim: a clock whose hand moves over all frames, and swaps out those that nobody uses.
//!
//! A page whose accessed bit is set gets a second chance: the core clears the bit, and the page
//! goes when the hand comes round and the bit is still clear. A kernel thread keeps some frames
//! free. If a page fault finds almost none, it moves the hand itself.
//!
//! ```text
//! free frames   0 ······ MIN ······ LOW ······ HIGH ······
//!               fault moves the hand   the thread starts   the thread stops
//! ```
//!
//! # Linux
//! `mm/vmscan.c` `kswapd`, `balance_pgdat`, `try_to_free_pages`.

use super::frames;
use super::space;
use crate::process::Thread;
use crate::process::scheduler::{self, Event};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use spin::RwLock;
use vmarea::mm::Retained;

/// With fewer free frames, a page fault moves the hand before it takes a frame.
pub const MIN: usize = 128;
/// With fewer free frames, the kernel thread starts to move the hand.
const LOW: usize = 2 * MIN;
/// With this many free frames, the kernel thread stops.
const HIGH: usize = 3 * MIN;
/// Pages that the hand takes in one go.
const BATCH: usize = 32;
/// Turns of the hand without a free page, after which it gives up: one to clear the accessed bits,
/// one to take the pages, and one more for pages that were accessed in between.
const TURNS: usize = 3;
/// How often a fault gives its CPU away while all pages that could be taken are being changed.
const PATIENCE: usize = 200;

/// Index of the frame that the hand looks at next.
static HAND: AtomicUsize = AtomicUsize::new(0);
/// Held for reading while the hand moves; true inside once it has stopped for good.
static STOPPED: RwLock<bool> = RwLock::new(false);
/// True if the kernel thread has something to do.
static IS_LOW: AtomicBool = AtomicBool::new(false);
/// True if the kernel thread moves the hand even while memory is free.
static ALWAYS: AtomicBool = AtomicBool::new(false);

/// What the hand has found.
#[derive(Clone, Copy, Default)]
struct Found {
    /// Pages that were swapped out.
    taken: usize,
    /// True if some pages were being changed, so that they may be taken later.
    busy: bool,
}

/// Moves the hand until `wanted` pages are swapped out, or none can be.
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

/// Swaps out pages until more than `wanted` frames are free; returns false if that is not possible.
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

/// Stops the hand for good, so that the core's structures can be checked.
pub fn stop() {
    // An upgradeable lock keeps new readers out, so the kernel thread cannot delay this for ever.
    *STOPPED.upgradeable_read().upgrade() = true;
}

/// Starts the kernel thread. If `always`, it swaps pages out even while memory is free.
pub fn start(always: bool) {
    // ORDERING: Relaxed; set before the thread runs.
    ALWAYS.store(always, Ordering::Relaxed);
    scheduler::add(Thread::of_kernel(background));
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
