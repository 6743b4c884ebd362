//! What a step came to, on either side.

use super::op::Places;
use std::fmt;
use vmarea::types::Errno;
use vmarea_trace::names::errno_name;

/// Result, error or signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The result of a call, or what was read; 0 for what gives nothing.
    Value(u64),
    /// The call was refused with this error number.
    Errno(i32),
    /// The access ended in a signal with this code.
    Signal(i32, i32),
    /// There is no such process, or one too many: the step says nothing.
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
    /// An address by the name that sequences have for it.
    pub fn named(self, places: Places) -> Outcome {
        match self {
            Outcome::Value(value) => Outcome::Value(places.named(value)),
            other => other,
        }
    }

    /// True for an error or a signal.
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
