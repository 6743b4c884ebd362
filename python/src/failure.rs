//! Failures as Python exceptions, whose classes are in `vmarea._errors`.

use pyo3::prelude::*;
use std::fmt;

/// Exception classes; each corresponds to an exit status of the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// `Error`: status 1.
    Error,
    /// `UsageError`: status 2.
    Usage,
    /// `NothingToDo`: status 4.
    NothingToDo,
    /// `PermissionMissing`: status 5.
    Permission,
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Kind::Error => "Error",
            Kind::Usage => "UsageError",
            Kind::NothingToDo => "NothingToDo",
            Kind::Permission => "PermissionMissing",
        }
    }
}

/// Reason why a function fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A failure that the command line would also report.
    Words(Kind, String),
    /// An exception that Python code has raised, or that a signal has.
    Raised(PyErr),
}

impl Failure {
    pub(crate) fn new(kind: Kind, what: impl fmt::Display) -> Self {
        Self::Words(kind, what.to_string())
    }

    /// A general failure.
    pub(crate) fn error(what: impl fmt::Display) -> Self {
        Self::new(Kind::Error, what)
    }

    /// Wrong arguments.
    pub(crate) fn usage(what: impl fmt::Display) -> Self {
        Self::new(Kind::Usage, what)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

/// Returns a message on one line, without the numbers that Rust adds to the kernel's errors.
fn in_words(message: &str) -> String {
    let line = message.replace('\n', " ");
    let mut parts = line.split(" (os error ");
    let mut words = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let number = part.trim_start_matches(|c: char| c.is_ascii_digit());
        match number.strip_prefix(')') {
            Some(after) => words += after,
            None => words = words + " (os error " + part,
        }
    }
    words
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Raised(error) => error,
            Failure::Words(kind, words) => Python::attach(|py| {
                let made = py
                    .import("vmarea._errors")
                    .and_then(|errors| errors.getattr(kind.class()))
                    .and_then(|class| class.call1((in_words(&words),)));
                match made {
                    Ok(exception) => PyErr::from_value(exception),
                    Err(error) => error,
                }
            }),
        }
    }
}
