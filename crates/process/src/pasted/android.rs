//! The memory map in an Android tombstone, also as `logcat` prints it in the middle of a log.
//!
//! A line has the last byte of a mapping, not the byte after it. The mapping that faulted has an arrow
//! before it.

use super::Format;
use super::fields::{Words, entry, hex, name, perms};
use super::tool::{Counted, Line, Tool};
use crate::unseen::Unseen;

const TOMBSTONE: Format = Format {
    name: "a tombstone",
    cannot_show: &["what is shared", "inodes"],
    so: "shared memory looks like private memory",
    unseen: Unseen::SHARING.union(Unseen::INODE),
};

/// What is remembered between lines.
#[derive(Default)]
pub(super) struct Tombstone {
    process: Option<String>,
}

impl Tool for Tombstone {
    fn line(&mut self, line: &str) -> Line {
        if let Some(process) = line.strip_prefix("pid: ") {
            let pid = process.split(',').next().unwrap_or_default();
            self.process = Some(pid.to_owned());
            return Line::Other;
        }
        if let Some(count) = line.strip_prefix("memory map (") {
            let is_heading = count.contains("entr");
            let whose = self.process.take().unwrap_or_else(|| "unnamed".to_owned());
            return if is_heading {
                Line::Begin(whose)
            } else {
                Line::Other
            };
        }
        if line.starts_with("--->Fault address falls") {
            return Line::Part;
        }
        if line.starts_with("open files:") || line.starts_with("--------- log") {
            return Line::End(Counted::Nothing);
        }
        let mut words = Words(line.strip_prefix("--->").unwrap_or(line));
        let Some((start, last)) = words.next().and_then(|word| word.split_once('-')) else {
            return Line::Other;
        };
        let (Some(start), Some(last)) = (hex(start), hex(last)) else {
            return Line::Other;
        };
        let Some(perms) = words.next().filter(|word| word.len() == 3).and_then(perms) else {
            return Line::Other;
        };
        let (Some(offset), Some(size)) = (words.next().and_then(hex), words.next().and_then(hex))
        else {
            return Line::Damaged("a column is missing");
        };
        let end = last.checked_add(1);
        if end.and_then(|end| end.checked_sub(start)) != Some(size) {
            return Line::Damaged("its size is not that of its addresses");
        }
        // The build's id and the load bias follow the name.
        let text = words.rest();
        let text = text.split(" (BuildId:").next().unwrap_or(text);
        let text = text.split(" (load bias").next().unwrap_or(text);
        Line::of(entry(start, end, perms).map(|mut entry| {
            entry.mapping.offset = offset;
            entry.mapping.name = name(text);
            entry
        }))
    }

    fn format(&self) -> &'static Format {
        &TOMBSTONE
    }
}
