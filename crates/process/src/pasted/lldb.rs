//! What lldb prints for `memory region --all`, and for `memory region ADDRESS`.
//!
//! The list has the free space as well, with the same `---` as memory without access: such lines are
//! left out, so that mappings can be missing.

use super::Format;
use super::fields::{Words, entry, hex_0x, name, perms};
use super::tool::{Counted, Line, Tool};
use crate::maps::SmapsEntry;
use crate::unseen::Unseen;

const LLDB: Format = Format {
    name: "lldb",
    cannot_show: &[
        "memory without access",
        "what is shared",
        "offsets",
        "inodes",
    ],
    so: "guards and reservations look like free space, and are not counted",
    unseen: Unseen::GAP
        .union(Unseen::SHARING)
        .union(Unseen::OFFSET)
        .union(Unseen::INODE),
};

/// What is remembered between lines.
#[derive(Default)]
pub(super) struct Lldb {
    inaccessible: bool,
}

impl Tool for Lldb {
    fn line(&mut self, line: &str) -> Line {
        if line.starts_with("(lldb)") || line.starts_with("Modified memory") {
            return Line::Part;
        }
        let range = line.strip_prefix('[').and_then(|line| line.split_once(')'));
        let Some(((start, end), rest)) =
            range.and_then(|(range, rest)| Some((range.split_once('-')?, rest)))
        else {
            return Line::Other;
        };
        let (Some(start), Some(end)) = (hex_0x(start), hex_0x(end)) else {
            return Line::Other;
        };
        let mut words = Words(rest);
        let Some(perms) = words.next().filter(|word| word.len() == 3).and_then(perms) else {
            return Line::Damaged("no permissions");
        };
        // The name of a section follows the name of the file.
        let text = words.rest();
        let text = text.split("PT_LOAD[").next().unwrap_or(text);
        if text.trim().is_empty() && !(perms.read || perms.write || perms.exec) {
            self.inaccessible = true;
            return match end == u64::MAX {
                true => Line::End(Counted::Nothing),
                false => Line::Part,
            };
        }
        Line::of(entry(start, Some(end), perms).map(|mut entry| {
            entry.mapping.name = name(text);
            entry
        }))
    }

    fn format(&self) -> &'static Format {
        &LLDB
    }

    fn leaves_out(&self, _: &[SmapsEntry]) -> Option<&'static str> {
        self.inaccessible.then_some(
            "lldb writes free space and memory without access alike: such mappings are not counted",
        )
    }
}
