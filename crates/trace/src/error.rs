//! Errors when reading or writing traces; each message says what to do.
//!
//! Apart from errors in creating or opening a file, messages contain no path, because a
//! [`Reader`](crate::Reader) can read from other sources; a caller that knows the path prepends it.
//! Offsets count bytes from the start of the file; block 0 is the header.

use std::io;
use std::path::PathBuf;

/// Why a trace cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace file could not be created.
    #[error("cannot create {}: {source}", path.display())]
    Create {
        /// The requested path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The trace file could not be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The requested path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file system or quota is full. The blocks already written are readable.
    #[error(
        "no space left for the trace after {written} bytes: free some, or write it to another file system"
    )]
    Full {
        /// Bytes written in complete blocks.
        written: u64,
        /// The system's error.
        source: io::Error,
    },
    /// Writing failed for another reason. The blocks already written are readable.
    #[error("cannot write the trace after {written} bytes: {source}")]
    Write {
        /// Bytes written in complete blocks.
        written: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The caller used the writer after the writer had returned an error.
    #[error("the trace was abandoned after an earlier write error")]
    GivenUp,
    /// The caller wrote an event after [`Event::End`](crate::event::Event::End).
    #[error("an event was written after the end of the trace")]
    AfterEnd,
    /// An event or the header exceeds the size limit.
    #[error("{what} takes {bytes} bytes, more than the trace format allows ({limit})")]
    TooLarge {
        /// `an event`, `a snapshot` or `the header`.
        what: &'static str,
        /// Size of the item in bytes.
        bytes: usize,
        /// The largest size that readers accept.
        limit: usize,
    },
    /// Reading failed.
    #[error("cannot read the trace in block {block} at byte {offset}: {source}")]
    Read {
        /// The block being read.
        block: u64,
        /// Offset of the block.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The file does not begin like a trace.
    #[error("this is not a vmarea trace (record one with `vmarea record`, or import a text log)")]
    NotATrace,
    /// The path is that of a folder.
    #[error("it is a folder: name a trace in it")]
    Folder,
    /// A newer program wrote the file.
    #[error(
        "the trace has format version {found}, this program reads up to {known}: use a newer vmarea"
    )]
    Newer {
        /// Version in the file.
        found: u32,
        /// The newest version that this reader knows.
        known: u32,
    },
    /// A program that is more than one version older wrote the file.
    #[error(
        "the trace has format version {found}, this program reads {previous} and {known}: record it again, or read it \
         with the vmarea that wrote it", previous = known - 1
    )]
    Older {
        /// Version in the file.
        found: u32,
        /// The newest version that this reader knows; it also knows the one before.
        known: u32,
    },
    /// A block contains bytes that no writer produces. The reader has returned all events of
    /// earlier blocks.
    #[error(
        "the trace is damaged in block {block} at byte {offset} ({what}): {}", usable(*block)
    )]
    Damaged {
        /// The damaged block.
        block: u64,
        /// Offset of the block.
        offset: u64,
        /// Description of the damage.
        what: &'static str,
    },
    /// The file ends before [`Event::End`](crate::event::Event::End).
    ///
    /// The recording was interrupted, or the file was truncated. The reader has returned all events
    /// before that point.
    #[error(
        "the trace is cut off in block {block} at byte {offset}: {}", usable(*block)
    )]
    CutOff {
        /// The block that is missing or incomplete.
        block: u64,
        /// Offset of the end of the file.
        offset: u64,
    },
    /// Text to import could not be read.
    #[error("cannot read line {line} of the text: {source}")]
    ReadText {
        /// Line number, from 1.
        line: u64,
        /// The system's error.
        source: io::Error,
    },
    /// No line of the text to import has the format of the tool that should have written it.
    #[error("no line has the format of this tool: was it written by another one?")]
    AnotherTool,
    /// Text to import does not have the expected form.
    #[error("line {line} of the text: {what}")]
    Import {
        /// Line number, from 1.
        line: u64,
        /// Description of the problem and its solution.
        what: &'static str,
    },
    /// The output could not be written.
    #[error("cannot print the trace: {0}")]
    Print(#[source] io::Error),
}

/// Returns what remains of a trace that is damaged or cut off in this block.
fn usable(block: u64) -> &'static str {
    match block {
        0 => "nothing of it is usable, so record it again",
        _ => "only the events before it are usable",
    }
}

impl Error {
    /// Returns the error for a write that failed after `written` bytes of complete blocks.
    pub(crate) fn from_write(source: io::Error, written: u64) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { written, source }
            }
            _ => Self::Write { written, source },
        }
    }
}
