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

/// State shared by all repairs in this process.
static GATE: AtomicU32 = AtomicU32::new(OPEN);

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
        .compare_exchange_weak(OPEN, TAKEN, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        own_process::breathe();
    }
}

extern "C" fn open() {
    // ORDERING: Release, pairs with the Acquire in `close`.
    GATE.store(OPEN, Ordering::Release);
}
