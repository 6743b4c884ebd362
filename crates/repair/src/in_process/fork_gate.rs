//! A gate that makes `fork` wait while pages are moved out.
//!
//! A fork through the C library waits until the piece is complete. For a fork that bypasses the C
//! library, the kernel sends a userfaultfd event, and the watcher copies the missing pages to the
//! child. A thread that waits at the gate may hold any of the program's locks, so waiting takes no
//! lock and allocates nothing: the thread polls one atomic word and yields.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use vmarea_linux_sys::own_process;

const OPEN: u32 = 0;
const TAKEN: u32 = 1;

/// State shared by all repairs in this process. The struct must not cross a page boundary.
#[repr(align(8))]
struct Gate {
    state: AtomicU32,
    dropping: AtomicU32,
}

static GATE: Gate = Gate {
    state: AtomicU32::new(OPEN),
    dropping: AtomicU32::new(0),
};

/// Guard that keeps the gate closed and opens it when dropped.
#[derive(Debug)]
pub(super) struct Passage;

impl Passage {
    /// Waits until the gate is open, and then closes it.
    pub(super) fn wait() -> Passage {
        close();
        Passage
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        open();
    }
}

/// Returns the address of the gate, whose page must not be moved.
pub(super) fn address() -> u64 {
    (&raw const GATE) as u64
}

// ORDERING: `dropping` is Relaxed: a reader has passed the gate since the write, or holds the
// watcher's lock.

/// Records that a thread of the program is discarding pages (`MADV_DONTNEED`).
///
/// The kernel sends the userfaultfd event before it discards the pages.
pub(super) fn begin_drop() {
    GATE.dropping.store(1, Ordering::Relaxed);
}

/// True if a discard recorded by [`begin_drop`] may still be in progress.
///
/// While a discard is in progress, no page may be moved out, because moving the page back would
/// undo the discard.
pub(super) fn is_dropping() -> bool {
    GATE.dropping.load(Ordering::Relaxed) != 0
}

/// Records that every discard is complete.
///
/// All threads must have been stopped at least once since the last discard event.
pub(super) fn all_dropped() {
    GATE.dropping.store(0, Ordering::Relaxed);
}

/// Makes all later forks wait at the gate.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn guard_forks() -> io::Result<()> {
    static GUARDED: Mutex<bool> = Mutex::new(false);
    let mut guarded = GUARDED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*guarded {
        own_process::around_fork(close, open)?;
        *guarded = true;
    }
    Ok(())
}

extern "C" fn close() {
    // ORDERING: Acquire, pairs with the Release in `open`: writes made while the gate was closed
    // become visible.
    while GATE
        .state
        .compare_exchange_weak(OPEN, TAKEN, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        own_process::breathe();
    }
}

extern "C" fn open() {
    // ORDERING: Release, pairs with the Acquire in `close`.
    GATE.state.store(OPEN, Ordering::Release);
}
