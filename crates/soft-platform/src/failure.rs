//! `Failure`: makes a chosen call to the platform fail, for tests.

use vmarea::types::Errno;
use vmarea_sync::SpinLock;

#[derive(Debug, Default)]
struct State {
    calls: usize,
    /// Number of the call that fails, and its error.
    chosen: Option<(usize, Errno)>,
    failed: Option<&'static str>,
}

/// Counts the calls to the platform that can fail, and makes one of them fail.
#[derive(Debug, Default)]
pub struct Failure(SpinLock<State>);

impl Failure {
    /// Returns how many calls that can fail have been made so far.
    pub fn calls(&self) -> usize {
        self.0.lock().calls
    }

    /// Lets the next `calls` calls succeed, and makes the call after them fail with `error`.
    pub fn choose(&self, calls: usize, error: Errno) {
        let mut state = self.0.lock();
        state.chosen = Some((state.calls + calls, error));
    }

    /// Returns the name of the method of `Platform` that failed last.
    pub fn failed(&self) -> Option<&'static str> {
        self.0.lock().failed
    }

    /// Counts a call of the method `name`.
    ///
    /// # Errors
    /// The chosen error, if this is the chosen call.
    pub(crate) fn attempt(&self, name: &'static str) -> Result<(), Errno> {
        let mut state = self.0.lock();
        let this = state.calls;
        state.calls += 1;
        match state.chosen {
            Some((chosen, error)) if chosen == this => {
                state.failed = Some(name);
                Err(error)
            }
            _ => Ok(()),
        }
    }
}
