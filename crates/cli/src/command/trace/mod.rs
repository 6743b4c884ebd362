//! `vmarea trace`: operations on trace files.

mod dump;
mod import;
pub(super) mod info;

use clap::Subcommand;
use std::fs::File;
use std::path::Path;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Failure, Result};
use vmarea_trace::{Error as TraceError, Reader};

/// Operations on trace files.
#[derive(Debug, Subcommand)]
pub enum Trace {
    Dump(dump::Dump),
    Import(import::Import),
    Info(info::Info),
}

impl Trace {
    pub(super) fn run(&self, console: &Console) -> Result {
        match self {
            Self::Dump(dump) => dump.run(console),
            Self::Import(import) => import.run(console),
            Self::Info(info) => info.run(console),
        }
    }
}

/// Opens the trace at `path`.
pub(super) fn open(path: &Path) -> Result<Reader<File>> {
    Reader::open(path).map_err(|error| failure(path, error))
}

/// Returns the failure for a trace error, with the path of the file.
pub(super) fn failure(path: &Path, error: TraceError) -> Failure {
    let named = matches!(error, TraceError::Open { .. } | TraceError::Create { .. });
    let failure = Failure::from(error);
    if named {
        failure
    } else {
        failure.context(path.display().to_string())
    }
}
