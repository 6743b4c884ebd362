//! The mappings of a process, as listed in `/proc`.
//!
//! Three interfaces return the same [`MapsEntry`] values: the text of `/proc/PID/maps`, the longer
//! text of `smaps` with the kernel's flags, and the `PROCMAP_QUERY` request, which returns one
//! mapping at a time. The kernel produces the text, but any user can choose the names in it, so the
//! parser checks every field and assumes nothing about names. `/proc` does not show anon_vmas or
//! page offsets; [`crate::view`] reads them.
//!
//! # Linux
//! `fs/proc/task_mmu.c`. In names the kernel escapes only the line feed (as `\012`) and does not
//! escape the backslash, so `\012` in a name is ambiguous; names are stored unchanged. The kernel
//! returns the list a few kilobytes at a time and releases `mmap_lock` in between: the list is
//! exact only while the process is stopped.

mod letters;
mod name;
mod query;
mod smaps;

use std::fmt;
use std::io;

use vmarea_trace::event::Perms;

pub use letters::{UNKNOWN, flag_named, flags_of, flags_of_kernel, letters_of};
pub use name::MapName;
pub use query::{Query, QueryError};
pub use smaps::{SmapsEntry, VmFlag, parse_smaps};

/// A line of `/proc/PID/maps`: one mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapsEntry {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Protection and sharing.
    pub perms: Perms,
    /// Byte offset in the file; 0 for an anonymous mapping.
    pub offset: u64,
    /// Device of the file, encoded as `major << 20 | minor`; 0 if there is no file.
    pub dev: u64,
    /// Inode number; 0 if there is no file.
    pub ino: u64,
    /// Name of the mapping, from the last column.
    pub name: MapName,
}

impl MapsEntry {
    /// Returns true for `[vsyscall]`, which is in the list although it is not a VMA of the process.
    pub fn is_vsyscall(&self) -> bool {
        matches!(&self.name, MapName::Special(name) if name == "[vsyscall]")
    }
}

/// Parse error in a line of a list of mappings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// Line number, counted from 1.
    pub line: usize,
    /// Description of the error.
    pub what: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {} of the list of mappings: {}",
            self.line, self.what
        )
    }
}

impl std::error::Error for ParseError {}

impl From<ParseError> for io::Error {
    fn from(error: ParseError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// Reads the mappings of process or thread `pid`, including `[vsyscall]`.
///
/// The list is empty for a kernel thread and for a process whose group leader has exited. In the
/// latter case, pass the id of another thread.
///
/// # Errors
/// `NotFound` or `ESRCH` if there is no such process, `PermissionDenied` if the caller may not
/// inspect it, `InvalidData` with a [`ParseError`] if a line cannot be parsed.
pub fn read(pid: i32) -> io::Result<Vec<MapsEntry>> {
    let text = std::fs::read(format!("/proc/{pid}/maps"))?;
    Ok(parse(&text)?)
}

/// Parses the text of `/proc/PID/maps`.
///
/// # Errors
/// [`ParseError`] for the first line that is not a mapping.
pub fn parse(text: &[u8]) -> Result<Vec<MapsEntry>, ParseError> {
    let mut mappings: Vec<MapsEntry> = Vec::with_capacity(text.len() / 64);
    for (n, line) in lines(text).enumerate() {
        let before = mappings.last().map(|mapping| &mapping.name);
        let mapping = parse_line(line, before).map_err(|what| ParseError { line: n + 1, what })?;
        mappings.push(mapping);
    }
    Ok(mappings)
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let none = text.is_empty();
    text.split(|&b| b == b'\n').skip(usize::from(none))
}

/// Parses `start-end perms offset major:minor inode   name`.
///
/// Neighbouring mappings often map the same file, so a name that equals the previous mapping's name
/// shares that name's text.
fn parse_line(line: &[u8], before: Option<&MapName>) -> Result<MapsEntry, &'static str> {
    let mut cursor = Cursor { rest: line };
    let start = cursor.hex(b'-').ok_or("no start address")?;
    let end = cursor.hex(b' ').ok_or("no end address")?;
    if start >= end {
        return Err("it ends before it begins");
    }
    let perms = cursor.perms().ok_or("no permissions")?;
    let offset = cursor.hex(b' ').ok_or("no offset")?;
    let major = cursor.hex(b':').ok_or("no device")?;
    let minor = cursor.hex(b' ').ok_or("no device")?;
    let dev = device(major, minor).ok_or("no such device number")?;
    let ino = cursor.decimal().ok_or("no inode")?;
    let name = cursor.rest.trim_ascii_start();
    Ok(MapsEntry {
        start,
        end,
        perms,
        offset,
        dev,
        ino,
        name: MapName::parse(name, before),
    })
}

/// Encodes a device number in the format used in traces.
pub(crate) fn device(major: u64, minor: u64) -> Option<u64> {
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    /// Parses a hexadecimal number followed by the byte `end`.
    fn hex(&mut self, end: u8) -> Option<u64> {
        let mut value = 0u64;
        for (at, &byte) in self.rest.iter().enumerate() {
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                _ if byte == end && at != 0 => {
                    self.rest = &self.rest[at + 1..];
                    return Some(value);
                }
                _ => return None,
            };
            if value >> 60 != 0 {
                return None;
            }
            value = value << 4 | u64::from(digit);
        }
        None
    }

    /// Parses a decimal number followed by a space or the end of the line.
    fn decimal(&mut self) -> Option<u64> {
        let len = self
            .rest
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(len);
        if digits.is_empty() {
            return None;
        }
        let mut value = 0u64;
        for &byte in digits {
            let digit = byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
            value = value.checked_mul(10)?.checked_add(digit.into())?;
        }
        self.rest = rest;
        Some(value)
    }

    fn perms(&mut self) -> Option<Perms> {
        let (&[r, w, x, s, b' '], rest) = self.rest.split_first_chunk()? else {
            return None;
        };
        self.rest = rest;
        Perms::parse([r, w, x, s])
    }
}

#[cfg(test)]
mod tests;
