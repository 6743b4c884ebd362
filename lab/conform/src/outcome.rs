//! Result of a step, in the kernel or in the core.

use super::op::Places;
use std::fmt;
use vmarea::types::Errno;
use vmarea_trace::names::errno_name;

/// Result, error or signal of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Result of a call, or the value that was read; 0 for a step without a result.
    Value(u64),
    /// The call failed with this error number.
    Errno(i32),
    /// The access raised this signal, with this code.
    Signal(i32, i32),
    /// The step cannot be executed: its process does not exist, or its new process already exists.
    Impossible,
}

impl From<Result<u64, Errno>> for Outcome {
    fn from(result: Result<u64, Errno>) -> Outcome {
        match result {
            Ok(value) => Outcome::Value(value),
            Err(errno) => Outcome::Errno(errno.number()),
        }
    }
}

impl From<Result<u64, i32>> for Outcome {
    fn from(result: Result<u64, i32>) -> Outcome {
        result.map_or_else(Outcome::Errno, Outcome::Value)
    }
}

impl Outcome {
    /// Converts an address in the result to its symbolic address.
    pub fn named(self, places: Places) -> Outcome {
        match self {
            Outcome::Value(value) => Outcome::Value(places.named(value)),
            other => other,
        }
    }

    /// Returns true for an error or a signal.
    pub fn is_refused(self) -> bool {
        !matches!(self, Outcome::Value(_))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Outcome::Value(value) => write!(f, "{value:#x}"),
            Outcome::Errno(errno) => match errno_name(errno.into()) {
                Some(name) => f.write_str(name),
                None => write!(f, "error {errno}"),
            },
            Outcome::Signal(11, 1) => f.write_str("SIGSEGV (nothing mapped)"),
            Outcome::Signal(11, 2) => f.write_str("SIGSEGV (no access)"),
            Outcome::Signal(11, 4) => f.write_str("SIGSEGV (protection key)"),
            Outcome::Signal(7, 2) => f.write_str("SIGBUS (no such page)"),
            Outcome::Signal(signal, code) => write!(f, "signal {signal} code {code}"),
            Outcome::Impossible => f.write_str("impossible"),
        }
    }
}
