//! The gate before `fork`: closed while pages are out.
//!
//! A fork through the C library waits until the piece is whole; forks that go round it are completed
//! by the event that the kernel sends. The gate is one word, because whoever waits at it may hold
//! any lock of the program.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use vmarea_linux_sys::own_process;

const OPEN: u32 = 0;
const TAKEN: u32 = 1;

/// What all repairs of this process share. It lies in one page.
#[repr(align(8))]
struct Gate {
    state: AtomicU32,
    dropping: AtomicU32,
}

static GATE: Gate = Gate {
    state: AtomicU32::new(OPEN),
    dropping: AtomicU32::new(0),
};

/// Passage through the gate for one; it opens again when this is dropped.
#[derive(Debug)]
pub(super) struct Passage;

impl Passage {
    /// Waits until the gate is open, and closes it.
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

/// Where the gate is: that page must not be on its way.
pub(super) fn address() -> u64 {
    (&raw const GATE) as u64
}

// ORDERING: Relaxed for `dropping`: who reads it has passed the gate since, or holds the watcher's lock.

/// The program was let go on with a drop (`MADV_DONTNEED`) that may not be done yet: the kernel tells of
/// it before.
pub(super) fn begin_drop() {
    GATE.dropping.store(1, Ordering::Relaxed);
}

/// True where such a drop may still be to come. No page is to move out meanwhile, or it would come back.
pub(super) fn is_dropping() -> bool {
    GATE.dropping.load(Ordering::Relaxed) != 0
}

/// All threads have stopped since the last drop was told, so that it is done.
pub(super) fn all_dropped() {
    GATE.dropping.store(0, Ordering::Relaxed);
}

/// Makes forks wait at the gate, from now on.
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
    // ORDERING: Acquire, pairs with the Release in `open`: what was done behind the gate is seen.
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
