//! A tool that writes one line for each mapping, and what one of its lines is.

use super::Format;
use crate::maps::SmapsEntry;
use crate::unseen::Unseen;

/// What one line of a tool's output is.
pub(super) enum Line {
    /// A mapping, and what is not known about it besides what the format never shows.
    Mapping(Box<SmapsEntry>, Unseen),
    /// A line that must be a mapping, but is none.
    Damaged(&'static str),
    /// The beginning of a process's list, with words for the process.
    Begin(String),
    /// The last line of the list, with what the tool counted.
    End(Counted),
    /// Another line that the tool writes.
    Part,
    /// Anything else.
    Other,
}

/// What a tool counted itself.
pub(super) enum Counted {
    Nothing,
    Mappings(u64),
    Kib(u64),
}

impl Line {
    /// Makes a line of an entry, or of what is wrong with it.
    pub(super) fn of(entry: Result<SmapsEntry, &'static str>) -> Line {
        match entry {
            Ok(entry) => Line::Mapping(Box::new(entry), Unseen::empty()),
            Err(what) => Line::Damaged(what),
        }
    }
}

/// A tool whose output is read.
pub(super) trait Tool {
    /// Says what a line is, from one of its words to its end.
    fn line(&mut self, line: &str) -> Line;

    /// Returns the format, once lines have been seen.
    fn format(&self) -> &'static Format;

    /// Returns a note if the tool leaves out mappings by its nature.
    fn leaves_out(&self, _entries: &[SmapsEntry]) -> Option<&'static str> {
        None
    }
}
