//! The text of `/proc/PID/smaps`, which lists each mapping with its flags and resident memory.
//!
//! To produce `smaps`, the kernel walks the process's page tables and holds its `mmap_lock` during
//! the walk, which takes seconds for a large process. If flags and resident memory are not needed,
//! [`super::read`] reads the list much faster.

use super::{MapsEntry, ParseError, lines, parse_line};

/// Two-letter code of a kernel flag, such as `rd` or `mr`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VmFlag(pub [u8; 2]);

/// A mapping listed in `smaps`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmapsEntry {
    /// The mapping.
    pub mapping: MapsEntry,
    /// `VmFlags`, in the kernel's order. `??` represents a flag to which the running kernel assigns
    /// no letters.
    pub flags: Vec<VmFlag>,
    /// `ProtectionKey`; 0 if the mapping has none.
    pub protection_key: u32,
    /// `Rss`: resident memory, in KiB.
    pub rss_kib: u64,
    /// `Anonymous`: resident memory that is private to the process, in KiB.
    pub anonymous_kib: u64,
    /// `Swap` in KiB.
    pub swap_kib: u64,
}

impl SmapsEntry {
    /// Returns true if the kernel reported this flag.
    pub fn has(&self, flag: &[u8; 2]) -> bool {
        self.flags.contains(&VmFlag(*flag))
    }
}

/// Parses the text of `/proc/PID/smaps`. Unknown lines are skipped, because new kernels add lines.
///
/// # Errors
/// [`ParseError`] for the first line that is neither a mapping nor a value of a mapping.
pub fn parse_smaps(text: &[u8]) -> Result<Vec<SmapsEntry>, ParseError> {
    let mut entries: Vec<SmapsEntry> = Vec::new();
    for (n, line) in lines(text).enumerate() {
        let wrong = |what| ParseError { line: n + 1, what };
        // A value line is `Name:   number kB`; a mapping line has no colon before its first space.
        let word = line.split(|&b| b == b' ').next().unwrap_or_default();
        let Some(colon) = word.iter().position(|&b| b == b':') else {
            let before = entries.last().map(|entry| &entry.mapping.name);
            let mapping = parse_line(line, before).map_err(wrong)?;
            entries.push(SmapsEntry {
                mapping,
                flags: Vec::new(),
                protection_key: 0,
                rss_kib: 0,
                anonymous_kib: 0,
                swap_kib: 0,
            });
            continue;
        };
        let entry = entries
            .last_mut()
            .ok_or(wrong("a value without a mapping"))?;
        let value = &line[colon + 1..];
        match &line[..colon] {
            b"Rss" => entry.rss_kib = kib(value).ok_or(wrong("not a number of KiB"))?,
            b"Anonymous" => entry.anonymous_kib = kib(value).ok_or(wrong("not a number of KiB"))?,
            b"Swap" => entry.swap_kib = kib(value).ok_or(wrong("not a number of KiB"))?,
            b"ProtectionKey" => {
                let key = std::str::from_utf8(value).ok();
                let key = key.and_then(|key| key.trim().parse().ok());
                entry.protection_key = key.ok_or(wrong("not the number of a protection key"))?;
            }
            b"VmFlags" => {
                entry.flags = value
                    .split(u8::is_ascii_whitespace)
                    .filter_map(|word| word.try_into().ok().map(VmFlag))
                    .collect();
            }
            _ => {}
        }
    }
    Ok(entries)
}

fn kib(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    text.trim().strip_suffix("kB")?.trim_end().parse().ok()
}
