//! Ctrl-C in the middle of long work.

use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// Time between two checks, each of which needs the interpreter's lock.
const INTERVAL: Duration = Duration::from_millis(50);

/// Asks Python at intervals whether a signal has arrived.
pub(crate) struct Interrupt {
    last: Instant,
}

impl Interrupt {
    pub(crate) fn new() -> Self {
        Self {
            last: Instant::now(),
        }
    }

    /// Runs the Python handlers of the signals that have arrived.
    ///
    /// # Errors
    /// Returns what a handler raises: `KeyboardInterrupt` at Ctrl-C.
    pub(crate) fn check(&mut self) -> PyResult<()> {
        if self.last.elapsed() < INTERVAL {
            return Ok(());
        }
        self.last = Instant::now();
        Python::attach(|py| py.check_signals())
    }
}
