//! The gate before `fork`: closed while pages are out.
//!
//! A fork through the C library waits until the piece is whole; forks that go round it are completed
//! by the event that the kernel sends. The gate is one word, because whoever waits at it may hold
//! any lock of the program.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::own;

const OPEN: u32 = 0;
const TAKEN: u32 = 1;

static GATE: AtomicU32 = AtomicU32::new(OPEN);

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

/// Makes forks wait at the gate, from now on.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn guard_forks() -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut done = Ok(());
    ONCE.call_once(|| done = own::around_fork(close, open));
    done
}

extern "C" fn close() {
    // ORDERING: Acquire, pairs with the Release in `open`: what was done behind the gate is seen.
    while GATE
        .compare_exchange_weak(OPEN, TAKEN, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        own::breathe();
    }
}

extern "C" fn open() {
    // ORDERING: Release, pairs with the Acquire in `close`.
    GATE.store(OPEN, Ordering::Release);
}
