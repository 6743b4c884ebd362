//! Traces and policies that are named by text.

use crate::failure::{Failure, Kind};
use std::fs::File;
use std::path::Path;
use vmarea_replay::PolicyName;
use vmarea_tables::Error;
use vmarea_trace::Reader;

/// Reads the names of policies.
pub(crate) fn policies_of(names: &[String]) -> Result<Vec<PolicyName>, Failure> {
    let named = names.iter().map(|name| name.parse());
    named.collect::<Result<_, String>>().map_err(Failure::usage)
}

/// Opens a trace; failures begin with its path.
pub(crate) fn open(path: &Path) -> Result<Reader<File>, Failure> {
    Reader::open(path).map_err(|error| match error {
        error @ vmarea_trace::Error::Open { .. } => Failure::error(error),
        error => of_trace(path, error),
    })
}

/// Returns a failure that begins with the path of a trace.
pub(crate) fn of_trace(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::error(format_args!("{}: {error}", path.display()))
}

/// Returns the failure of a replay of the trace at `path`.
pub(crate) fn of_replay<E: Into<Failure>>(path: &Path, error: Error<E>) -> Failure {
    match error {
        Error::Receiver(error) => error.into(),
        Error::Trace(error) => of_trace(path, error),
        Error::Replay(error) => of_trace(path, error),
        Error::Empty => empty(path),
    }
}

/// Returns the failure for a trace without events.
pub(crate) fn empty(path: &Path) -> Failure {
    let what = format_args!("{}: the trace has no events", path.display());
    Failure::new(Kind::NothingToDo, what)
}
