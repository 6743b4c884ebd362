//! Lists of mappings in files that people send: pasted text, the output of other tools, a JVM's
//! error file, a minidump, an ELF core.
//!
//! The format is detected from the content. A copy of `maps` or `smaps` stays text, which
//! [`crate::maps`] parses; every other format is read into the same entries, and says what it cannot
//! show ([`Format`]). A file that is cut off is used up to that point, and a note says so; so does a
//! list from whose middle lines were cut. What else the file says about the failure is kept: the
//! limit, and the error.

mod android;
mod cuts;
mod elf_core;
mod fields;
mod gdb;
mod hs_err;
mod junk;
mod lldb;
mod minidump;
mod pmap;
mod sanitizer;
mod search;
mod system_map;
mod tool;
mod unknown;
mod vmmap;

use crate::maps::SmapsEntry;
use crate::unseen::Unseen;
use std::borrow::Cow;
use std::fmt;

pub use elf_core::{is_elf, read_core};

/// Call that failed in the process, as its error file describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedCall {
    /// Name of the call, such as `mmap` or `pthread_create`.
    pub call: String,
    /// Error number, if the file states it.
    pub errno: Option<i32>,
    /// Soft limit `RLIMIT_AS` in bytes, if the file states it and the limit is finite.
    pub rlimit_as: Option<u64>,
    /// Limit and size of the machine's committed memory in KiB, if the file states both.
    pub committed_kib: Option<(u64, u64)>,
}

/// A format that shows less than a copy of `maps` does.
#[derive(PartialEq, Eq, Debug)]
pub struct Format {
    /// Name of the tool that writes it.
    pub name: &'static str,
    /// What it cannot show, in short words.
    pub cannot_show: &'static [&'static str],
    /// What follows from that, as a clause.
    pub so: &'static str,
    /// What it cannot show of any mapping.
    pub unseen: Unseen,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name with an article begins the sentence.
        match self
            .name
            .strip_prefix('a')
            .filter(|_| self.name.contains(' '))
        {
            Some(rest) => write!(f, "A{rest} does not show ")?,
            None => write!(f, "{} does not show ", self.name)?,
        }
        match self.cannot_show {
            [all @ .., last] if !all.is_empty() => write!(f, "{} or {last}", all.join(", "))?,
            all => write!(f, "{}", all.concat())?,
        }
        write!(f, ": {}", self.so)
    }
}

/// The mappings in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listed<'a> {
    /// Text of `maps` or `smaps`.
    Text(Cow<'a, [u8]>),
    /// Entries that were read from another format.
    Entries(Vec<SmapsEntry>),
}

impl Default for Listed<'_> {
    fn default() -> Self {
        Listed::Text(Cow::Borrowed(b""))
    }
}

/// List of mappings found in a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pasted<'a> {
    /// The mappings.
    pub list: Listed<'a>,
    /// Format of the list, if it shows less than a copy of `maps` does.
    pub format: Option<&'static Format>,
    /// Mappings of which less is known than the format shows, by their place in the list.
    pub marks: Vec<(usize, Unseen)>,
    /// True if mappings are, or may be, missing from the list.
    pub incomplete: bool,
    /// Limit on the number of mappings, if the file states it.
    pub limit: Option<u64>,
    /// Call that failed, if the file describes one.
    pub failed: Option<FailedCall>,
    /// What was left out, as complete sentences without a full stop.
    pub notes: Vec<String>,
}

/// Finds the list of mappings in a file.
///
/// A file that is not text is never searched for a list: many programs have a piece of one in
/// their memory, and so has their core.
///
/// # Errors
/// Fails with a sentence if the file is known to have no list, or if it has several.
pub fn find(file: &[u8]) -> Result<Pasted<'_>, String> {
    if file.starts_with(minidump::SIGNATURE) {
        return minidump::read(file);
    }
    if is_elf(file) {
        return elf_core::read(file);
    }
    if let Some(what) = unknown::binary(file) {
        return Err(what);
    }
    if let Some(pasted) = hs_err::read(file) {
        return Ok(pasted);
    }
    if let Some(plain) = junk::plain(file)? {
        return Ok(plain);
    }
    if let Some(found) = search::read(file) {
        return found;
    }
    match junk::removed(file) {
        Some(pasted) => Ok(pasted),
        None => match unknown::text(file) {
            Some(what) => Err(what),
            None => Ok(junk::as_it_is(file)),
        },
    }
}
