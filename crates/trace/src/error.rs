//! What can go wrong with a trace file, each as one line that says what to do.
//!
//! No path is named here, because a [`Reader`](crate::Reader) need not read a file: a caller who
//! knows the path puts it before the message. Offsets count bytes from the start of the file;
//! block 0 is the header.

use std::io;
use std::path::PathBuf;

/// Why a trace could not be written or read on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace file could not be created.
    #[error("cannot create {}: {source}", path.display())]
    Create {
        /// The path that was asked for.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The trace file could not be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The path that was asked for.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file system or quota is full. What was written before is readable.
    #[error(
        "no space left for the trace after {written} bytes: free some, or write it to another file system"
    )]
    Full {
        /// Bytes that were written in whole blocks.
        written: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// Writing failed for another reason. What was written before is readable.
    #[error("cannot write the trace after {written} bytes: {source}")]
    Write {
        /// Bytes that were written in whole blocks.
        written: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// The writer was used again after an error.
    #[error("the trace was given up after an earlier write error")]
    GivenUp,
    /// An event was written after [`Event::End`](crate::event::Event::End).
    #[error("an event was written after the end of the trace")]
    AfterEnd,
    /// One event or the header is larger than a block may be.
    #[error("{what} takes {bytes} bytes, more than the trace format allows ({limit})")]
    TooLarge {
        /// `an event`, `a snapshot` or `the header`.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The largest size that readers accept.
        limit: usize,
    },
    /// Reading failed.
    #[error("cannot read the trace in block {block} at byte {offset}: {source}")]
    Read {
        /// The block that was being read.
        block: u64,
        /// Where it begins.
        offset: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// The file does not begin as a trace does.
    #[error("this is not a vmarea trace (record one with `vmarea record`, or import a text log)")]
    NotATrace,
    /// The file was written by a newer program.
    #[error("the trace has format version {found}, this program knows {known}: use a newer vmarea")]
    Newer {
        /// Version in the file.
        found: u32,
        /// The newest version that this reader knows.
        known: u32,
    },
    /// Bytes are not what a writer wrote. All events of earlier blocks were given.
    #[error(
        "the trace is damaged in block {block} at byte {offset} ({what}): only what stands before is usable"
    )]
    Damaged {
        /// The damaged block.
        block: u64,
        /// Where it begins.
        offset: u64,
        /// What does not fit.
        what: &'static str,
    },
    /// The file ends before [`Event::End`](crate::event::Event::End): recording was interrupted,
    /// or the file was truncated. All events before that place were given.
    #[error(
        "the trace is cut off in block {block} at byte {offset}: only what stands before is usable"
    )]
    CutOff {
        /// The block that is missing or not whole.
        block: u64,
        /// Where the file ends.
        offset: u64,
    },
    /// Text to import could not be read.
    #[error("cannot read line {line} of the text: {source}")]
    ReadText {
        /// The line, from 1.
        line: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// Text to import is not what it should be.
    #[error("line {line} of the text: {what}")]
    Import {
        /// The line, from 1.
        line: u64,
        /// What does not fit, and what to do.
        what: &'static str,
    },
    /// Text could not be printed.
    #[error("cannot print the trace: {0}")]
    Print(#[source] io::Error),
}

impl Error {
    /// The error of a failed write after `written` bytes of whole blocks.
    pub(crate) fn from_write(source: io::Error, written: u64) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { written, source }
            }
            _ => Self::Write { written, source },
        }
    }
}
