//! Signals that ask the command to end, for work that must not stop in the middle of a step.
//!
//! The work asks between two steps whether a signal has arrived, and then ends by itself. A signal
//! that this command was started to ignore, as by `nohup`, stays ignored.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SIGNALS: [(i32, &str); 3] = [(2, "SIGINT"), (15, "SIGTERM"), (1, "SIGHUP")];

/// The first of the signals that has arrived.
#[derive(Clone, Debug)]
pub struct Interrupt {
    arrived: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Begins to catch the signals, until the command ends.
    ///
    /// # Errors
    /// Any error from installing a handler.
    pub fn listen() -> std::io::Result<Interrupt> {
        let arrived = Arc::new(AtomicUsize::new(0));
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (number, _) in SIGNALS {
            if !is_ignored(&status, number) {
                let flag = Arc::clone(&arrived);
                signal_hook::flag::register_usize(number, flag, number as usize)?;
            }
        }
        Ok(Interrupt { arrived })
    }

    /// Returns the name of the signal that has arrived, if any.
    pub fn signal(&self) -> Option<&'static str> {
        // ORDERING: Relaxed, the handler publishes nothing but this number.
        let arrived = self.arrived.load(Ordering::Relaxed);
        let found = SIGNALS
            .iter()
            .find(|(number, _)| *number as usize == arrived);
        found.map(|(_, name)| *name)
    }

    /// Breaks if a signal has arrived.
    pub fn goes_on(&self) -> ControlFlow<()> {
        match self.signal() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }
}

/// True if the text of `/proc/PID/status` says that the process ignores the signal.
fn is_ignored(status: &str, number: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (number - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nohup_stays_in_effect() {
        let status = "Name:\tvmarea\nSigIgn:\t0000000000000001\nSigCgt:\t0\n";
        assert!(is_ignored(status, 1));
        assert!(!is_ignored(status, 2) && !is_ignored(status, 15));
        assert!(!is_ignored("", 1));
    }

    #[test]
    fn a_signal_is_noticed() {
        let interrupt = Interrupt::listen().unwrap();
        assert_eq!(interrupt.signal(), None);
        assert!(interrupt.goes_on().is_continue());
        signal_hook::low_level::raise(15).unwrap();
        assert_eq!(interrupt.signal(), Some("SIGTERM"));
        assert!(interrupt.goes_on().is_break());
    }
}
