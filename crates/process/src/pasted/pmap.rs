//! The output of `pmap`: plain, and with `-x`, `-d`, `-X` or `-XX`.
//!
//! `-X` and `-XX` have the columns that `smaps` has, in the kernel's order; their heading names them.
//! All of them show the last part of a file's path only (unless `-p` was given), and all but `-X` and
//! `-XX` call every mapping without a file `[ anon ]`, even the heap. BusyBox and Toybox write the
//! plain form as well.
//!
//! # Linux
//! `pmap` of procps-ng 4.0.2; the older `-x` has other columns of sizes.

use super::Format;
use super::fields::{Words, base_name, entry, hex, perms};
use super::tool::{Counted, Line, Tool};
use crate::maps::{MapName, SmapsEntry, VmFlag};
use crate::unseen::Unseen;
use vmarea_trace::event::Perms;

const NO_OFFSETS: Format = Format {
    name: "pmap",
    cannot_show: &["offsets", "inodes", "folders", "names of anonymous memory"],
    so: "neighbours of one file may be contiguous in it",
    unseen: Unseen::OFFSET.union(Unseen::INODE).union(Unseen::NAME),
};
const WITH_OFFSETS: Format = Format {
    name: "pmap -d",
    cannot_show: &["inodes", "folders", "names of anonymous memory"],
    so: "two files of one name look like one",
    unseen: Unseen::INODE.union(Unseen::NAME),
};
const DETAILED: Format = Format {
    name: "pmap -X",
    cannot_show: &["folders"],
    so: "files are named without them",
    unseen: Unseen::empty(),
};

/// What is remembered between lines.
#[derive(Default)]
pub(super) struct Pmap {
    /// Columns after the inode and before the name, as the heading of `-X` names them.
    columns: Vec<String>,
    seen: Option<&'static Format>,
}

impl Tool for Pmap {
    fn line(&mut self, line: &str) -> Line {
        if let Some(line) = self.other(line) {
            return line;
        }
        let mut words = Words(line);
        let Some(start) = words.next().filter(|word| word.len() >= 8).and_then(hex) else {
            return Line::Other;
        };
        let second = words.peek().unwrap_or_default();
        if let Some(perms) = perms(second).filter(|_| second.len() == 4) {
            words.next();
            return self.detailed(start, perms, words);
        }
        let Some(kib) = second.strip_suffix('K').unwrap_or(second).parse().ok() else {
            return Line::Other;
        };
        words.next();
        let (mut rss, mut numbers) = (None, 0);
        while let Some(number) = words.peek().filter(|word| is_count(word)) {
            // The first column after the size is the resident memory.
            rss = rss.or(number.parse().ok());
            numbers += 1;
            words.next();
        }
        let is_mode = |word: &&str| (4..=5).contains(&word.len());
        let Some(perms) = words.peek().filter(is_mode).and_then(perms) else {
            return match second.ends_with('K') || numbers > 1 {
                true => Line::Damaged("no permissions"),
                false => Line::Other,
            };
        };
        words.next();
        self.plain(start, kib, rss, perms, words)
    }

    fn format(&self) -> &'static Format {
        self.seen.unwrap_or(&NO_OFFSETS)
    }
}

impl Pmap {
    /// Recognises the lines around the mappings.
    fn other(&mut self, line: &str) -> Option<Line> {
        let mut words = Words(line);
        let first = words.next()?;
        if first == "Address" {
            let all: Vec<_> = line.split_whitespace().collect();
            let inode = all.iter().position(|word| *word == "Inode");
            self.columns = match inode {
                Some(at) => all[at + 1..]
                    .iter()
                    .map(|word| (*word).to_owned())
                    .collect(),
                None => Vec::new(),
            };
            return Some(Line::Part);
        }
        if let Some(pid) = first.strip_suffix(':')
            && pid.parse::<u32>().is_ok()
            && words.0.starts_with("   ")
            && !words.rest().is_empty()
        {
            let command = Words(words.rest()).next().unwrap_or_default().to_owned();
            return Some(Line::Begin(format!("{pid} {command}")));
        }
        let kib = |word: &str| word.strip_suffix('K').unwrap_or(word).parse().ok();
        let total = match first {
            "total" => kib(match words.next()? {
                "kB" => words.next()?,
                word => word,
            })?,
            "mapped:" => kib(words.next()?)?,
            // The last line of -X: the sums, of which the first is that of the sizes.
            _ if is_sum(line) => kib(first)?,
            _ if line.bytes().all(|b| b"-= ".contains(&b)) => return Some(Line::Part),
            _ => return None,
        };
        Some(Line::End(Counted::Kib(total)))
    }

    /// Reads the rest of a line without inode.
    fn plain(
        &mut self,
        start: u64,
        kib: u64,
        rss: Option<u64>,
        perms: Perms,
        mut words: Words<'_>,
    ) -> Line {
        let mut offset = None;
        let next = words.peek().unwrap_or_default();
        if next.len() == 16
            && let Some(at) = hex(next)
        {
            let mut after = Words(words.0);
            after.next();
            if let Some(dev) = after.next().and_then(device) {
                offset = Some((at, dev));
                words = after;
            }
        }
        self.seen = Some(if offset.is_some() {
            &WITH_OFFSETS
        } else {
            &NO_OFFSETS
        });
        let end = kib
            .checked_mul(1024)
            .and_then(|bytes| start.checked_add(bytes));
        let mut entry = match entry(start, end, perms) {
            Ok(entry) => entry,
            Err(what) => return Line::Damaged(what),
        };
        if let Some((at, dev)) = offset {
            (entry.mapping.offset, entry.mapping.dev) = (at, dev);
        }
        entry.rss_kib = rss.unwrap_or(0);
        entry.mapping.name = match words.rest() {
            "" | "[ anon ]" | "[anon]" => MapName::None,
            "[ stack ]" => MapName::Stack,
            text => base_name(text),
        };
        if start >> 32 == 0xffff_ffff {
            entry.mapping.name = MapName::Special("[vsyscall]".to_owned());
        }
        Line::of(Ok(entry))
    }

    /// Reads the rest of a line of `-X`, after the permissions.
    fn detailed(&mut self, start: u64, perms: Perms, mut words: Words<'_>) -> Line {
        let mut fields = || {
            let offset = hex(words.next()?)?;
            let dev = device(words.next()?)?;
            let inode: u64 = words.next()?.parse().ok()?;
            let sizes = self.sizes(&mut words);
            Some((offset, dev, inode, sizes?))
        };
        let Some((offset, dev, inode, sizes)) = fields() else {
            return Line::Damaged("a column is missing");
        };
        self.seen = Some(&DETAILED);
        let size = |name: &str| {
            let found = sizes.iter().find(|(column, _)| column == name);
            found.map_or(0, |(_, kib)| *kib)
        };
        let end = size("Size")
            .checked_mul(1024)
            .and_then(|bytes| start.checked_add(bytes));
        let flags = self.flags(&mut words);
        Line::of(entry(start, end, perms).map(|entry| SmapsEntry {
            flags,
            rss_kib: size("Rss"),
            anonymous_kib: size("Anonymous"),
            swap_kib: size("Swap"),
            protection_key: size("ProtectionKey").try_into().unwrap_or(0),
            mapping: crate::maps::MapsEntry {
                offset,
                dev,
                ino: inode,
                name: base_name(words.rest()),
                ..entry.mapping
            },
        }))
    }

    /// Takes the columns of numbers; without a heading, only the size is known.
    fn sizes(&self, words: &mut Words<'_>) -> Option<Vec<(String, u64)>> {
        let mut sizes = Vec::new();
        let named = self.columns.iter();
        for column in named.filter(|name| !["VmFlags", "Mapping"].contains(&name.as_str())) {
            sizes.push((column.clone(), words.next()?.parse().ok()?));
        }
        if self.columns.is_empty() {
            sizes.push(("Size".to_owned(), words.next()?.parse().ok()?));
            while words.peek().is_some_and(is_count) {
                words.next();
            }
        }
        Some(sizes)
    }

    /// Takes the flags of `-XX`, words of two letters before the name.
    fn flags(&self, words: &mut Words<'_>) -> Vec<VmFlag> {
        let mut flags = Vec::new();
        if !self.columns.iter().any(|name| name == "VmFlags") {
            return flags;
        }
        let letters = |word: &str| {
            let two: [u8; 2] = word.as_bytes().try_into().ok()?;
            let is_flag = two == *b"??" || two.iter().all(u8::is_ascii_lowercase);
            is_flag.then_some(VmFlag(two))
        };
        while let Some(flag) = words.peek().and_then(letters) {
            flags.push(flag);
            words.next();
        }
        flags
    }
}

/// True for the last line of `-X`: numbers and `KB`.
fn is_sum(line: &str) -> bool {
    let numbers = line.trim_end().strip_suffix("KB");
    numbers.is_some_and(|text| text.bytes().all(|b| b == b' ' || b.is_ascii_digit()))
}

/// True for a number, or for the `-` of a size that is not known.
fn is_count(word: &str) -> bool {
    word == "-" || (!word.is_empty() && word.bytes().all(|b| b.is_ascii_digit()))
}

/// Parses `fe:00` or `0fe:00000`.
fn device(word: &str) -> Option<u64> {
    let (major, minor) = word.split_once(':')?;
    let (major, minor) = (hex(major)?, hex(minor)?);
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}
