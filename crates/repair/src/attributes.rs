//! Flags and names of a process's mappings, read again just before the mappings are replaced.
//!
//! A plan is based on one read of all mappings, and its last piece may be replaced seconds later.
//! Without another check, the fresh mapping would overwrite the flags (`madvise`, `mlock`) and
//! names that the program has changed since the mappings were read. Reading the whole list again
//! for each piece would take quadratic time. This module therefore makes a single second pass over
//! `/proc/PID/smaps`, in step with the repair: before each piece it reads on to the end of that
//! piece. The attributes used for a piece are thus never older than the start of the previous
//! piece. A change of the memory policy is not detected.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};

use vmarea_merge::types::{VmFlags, VmRange};
use vmarea_process::maps::{self, MapName, SmapsEntry};

use crate::plan::Piece;

/// Number of bytes per read, enough for the entries of a few mappings.
const BYTES: usize = 8 << 10;

/// Flags that a program can change, and that keep two mappings apart if they differ.
const CHANGEABLE: VmFlags = VmFlags::ACCESS
    .union(VmFlags::LOCKED_MASK)
    .union(VmFlags::SEQ_READ)
    .union(VmFlags::RAND_READ)
    .union(VmFlags::DONTCOPY)
    .union(VmFlags::DONTDUMP)
    .union(VmFlags::WIPEONFORK)
    .union(VmFlags::HUGEPAGE)
    .union(VmFlags::NOHUGEPAGE)
    .union(VmFlags::MERGEABLE)
    .union(VmFlags::UFFD_ANY)
    .union(VmFlags::PKEY);

/// The attributes of the mappings of a process, in address order.
#[derive(Debug)]
pub(super) struct Attributes {
    smaps: File,
    /// Text of a mapping that has not been read completely yet.
    text: Vec<u8>,
    /// The mappings that have been read and may still be queried.
    read: VecDeque<SmapsEntry>,
    is_at_end: bool,
}

impl Attributes {
    /// Opens `smaps` of process `pid` (a number, or `thread-self`).
    ///
    /// # Errors
    /// Errors from opening `smaps`.
    pub(super) fn open(pid: &str) -> io::Result<Attributes> {
        Ok(Attributes {
            smaps: File::open(format!("/proc/{pid}/smaps"))?,
            text: Vec::new(),
            read: VecDeque::new(),
            is_at_end: false,
        })
    }

    /// Returns the address of the first part of `piece` whose attributes differ from the plan.
    ///
    /// Pieces must be passed in ascending order of their start addresses.
    ///
    /// # Errors
    /// Errors from reading `smaps`.
    pub(super) fn changed(&mut self, piece: &Piece) -> io::Result<Option<u64>> {
        self.read_to(piece.range)?;
        let changed = piece
            .parts
            .iter()
            .find(|part| !self.fit(**part, piece.flags));
        Ok(changed.map(|part| part.start))
    }

    /// Returns true if all mappings in `range` have the planned attributes.
    ///
    /// Ranges must be passed in ascending order of their start addresses.
    ///
    /// # Errors
    /// Errors from reading `smaps`.
    pub(super) fn are(&mut self, range: VmRange, planned: VmFlags) -> io::Result<bool> {
        self.read_to(range)?;
        Ok(self.fit(range, planned))
    }

    fn fit(&self, range: VmRange, planned: VmFlags) -> bool {
        let mut inside = self.read.iter().filter(|entry| {
            let mapping = &entry.mapping;
            mapping.start < range.end && range.start < mapping.end
        });
        inside.all(|entry| is_as_planned(entry, planned))
    }

    /// Reads the mappings up to the end of `range`, and discards those below `range`.
    fn read_to(&mut self, range: VmRange) -> io::Result<()> {
        loop {
            while self
                .read
                .front()
                .is_some_and(|entry| entry.mapping.end <= range.start)
            {
                self.read.pop_front();
            }
            let last = self.read.back().map(|entry| entry.mapping.end);
            if self.is_at_end || last.is_some_and(|end| range.end <= end) {
                return Ok(());
            }
            self.read_some()?;
        }
    }

    fn read_some(&mut self) -> io::Result<()> {
        let before = self.text.len();
        self.text.resize(before + BYTES, 0);
        let got = self.smaps.read(&mut self.text[before..])?;
        self.text.truncate(before + got);
        self.is_at_end = got == 0;
        // The flags are the last line of a mapping.
        let is_last = |line: &&[u8]| line.starts_with(b"VmFlags:");
        let lines = || self.text.split_inclusive(|&byte| byte == b'\n');
        let is_whole = |line: &&[u8]| line.ends_with(b"\n");
        let ends = lines().filter(is_whole).scan(0, |at, line| {
            *at += line.len();
            Some((*at, line))
        });
        let whole = ends
            .filter(|(_, line)| is_last(line))
            .map(|(end, _)| end)
            .last();
        if let Some(whole) = whole {
            let text: Vec<u8> = self.text.drain(..whole).collect();
            self.read.extend(maps::parse_smaps(&text)?);
        }
        Ok(())
    }
}

fn is_as_planned(entry: &SmapsEntry, planned: VmFlags) -> bool {
    let flags = maps::flags_of(&entry.flags) | VmFlags::from_pkey(entry.protection_key);
    let is_plain = matches!(entry.mapping.name, MapName::None | MapName::Heap);
    is_plain && (flags ^ planned) & CHANGEABLE == VmFlags::empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_linux_sys::test_memory::Pieces;

    #[test]
    fn each_mapping_is_read_once_and_a_changed_one_is_found() {
        const PAGES: u64 = 200;
        let pieces = Pieces::new(PAGES);
        let range = pieces.range();
        let page = |n: u64| VmRange::new(range.start + n * 4096, range.start + (n + 1) * 4096);
        let piece = |first: u64, last: u64, flags| Piece {
            range: VmRange::new(page(first).start, page(last).start),
            parts: (first..last).map(page).collect(),
            flags,
            left: 0,
            in_place: false,
        };
        let (plain, other) = (
            VmFlags::READ | VmFlags::WRITE,
            VmFlags::READ | VmFlags::WRITE | VmFlags::DONTCOPY,
        );
        let mut attributes = Attributes::open("thread-self").unwrap();
        // A piece may be retried without its end.
        for (first, last) in [(0, 60), (0, 20), (20, 100), (150, PAGES)] {
            let changed = attributes.changed(&piece(first, last, plain)).unwrap();
            assert_eq!(changed, None, "{first}-{last}");
        }
        let changed = attributes.changed(&piece(199, PAGES, other)).unwrap();
        assert_eq!(changed, Some(page(199).start));
        assert!(attributes.read.len() < 30, "{}", attributes.read.len());
    }
}
