//! A list of code that a program appends to while it runs.

use super::code::{Code, Parsed};
use super::{jitdump, perf_map};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Maximum number of bytes that are read from one list.
const LIST_BYTES: u64 = 256 << 20;
/// Maximum number of codes of one list.
const CODES: u64 = 1 << 20;

/// A list and how far it was read.
pub(super) struct List {
    pub(super) path: String,
    file: File,
    parse: fn(&[u8]) -> Parsed,
    /// Offset of the first byte that was not parsed yet.
    offset: u64,
    size: u64,
    found: u64,
    pub(super) malformed: u64,
    /// Whether the list was too large to read its end.
    pub(super) cut: bool,
}

impl List {
    pub(super) fn perf_map(path: String, file: File) -> List {
        List::new(path, file, perf_map::parse, 0)
    }

    pub(super) fn jitdump(path: String, file: File) -> List {
        let mut header = [0; jitdump::HEADER_BYTES];
        let read = file.read_exact_at(&mut header, 0).ok();
        match read.and_then(|()| jitdump::header_len(&header)) {
            Some(len) => List::new(path, file, jitdump::parse, len),
            None => List {
                malformed: 1,
                cut: true,
                ..List::new(path, file, jitdump::parse, LIST_BYTES)
            },
        }
    }

    fn new(path: String, file: File, parse: fn(&[u8]) -> Parsed, offset: u64) -> List {
        List {
            path,
            file,
            parse,
            offset,
            size: 0,
            found: 0,
            malformed: 0,
            cut: false,
        }
    }

    /// Appends the codes that were added to the list since the last call.
    pub(super) fn read(&mut self, codes: &mut Vec<Code>) {
        let size = self.file.metadata().map_or(0, |about| about.len());
        if size == self.size || self.cut {
            return;
        }
        self.size = size;
        let end = size.min(LIST_BYTES);
        let mut bytes = vec![0; end.saturating_sub(self.offset) as usize];
        let Ok(len) = self.file.read_at(&mut bytes, self.offset) else {
            return;
        };
        let parsed = (self.parse)(&bytes[..len]);
        self.offset += parsed.used as u64;
        self.malformed += parsed.malformed;
        self.found += parsed.codes.len() as u64;
        self.cut = size > LIST_BYTES || self.found > CODES;
        codes.extend(parsed.codes);
    }
}
