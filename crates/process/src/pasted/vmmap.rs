//! The command `vmmap` of gdb's extensions GEF, pwndbg and PEDA.

use super::Format;
use super::fields::{Words, entry, hex, hex_0x, name, perms};
use super::tool::{Counted, Line, Tool};
use crate::maps::MapName;
use crate::unseen::Unseen;

const GEF: Format = Format {
    name: "GEF",
    cannot_show: &["what is shared", "inodes"],
    so: "shared memory looks like private memory",
    unseen: Unseen::SHARING.union(Unseen::INODE),
};
const PWNDBG: Format = Format {
    name: "pwndbg",
    cannot_show: &["inodes"],
    so: "a file that was replaced by another one of its name looks like it",
    unseen: Unseen::INODE,
};
const PEDA: Format = Format {
    name: "PEDA",
    cannot_show: &["offsets", "inodes"],
    so: "neighbours of one file may be contiguous in it",
    unseen: Unseen::OFFSET.union(Unseen::INODE),
};

/// What is remembered between lines.
#[derive(Default)]
pub(super) struct Vmmap {
    seen: Option<&'static Format>,
}

impl Tool for Vmmap {
    fn line(&mut self, line: &str) -> Line {
        let mut words = Words(line);
        match words.next() {
            Some("LEGEND:" | "Start" | "[") => {
                let rest = words.rest();
                let is_heading = ["End", "Legend:", "STACK"]
                    .iter()
                    .any(|w| rest.starts_with(w));
                return if is_heading { Line::Part } else { Line::Other };
            }
            Some("[Inferior" | "(gdb)") => return Line::End(Counted::Nothing),
            Some("gef➤" | "pwndbg>" | "gdb-peda$") => return Line::Part,
            _ => {}
        }
        let mut words = Words(line);
        let mut number = || words.next().and_then(hex_0x);
        let (Some(start), Some(end)) = (number(), number()) else {
            return Line::Other;
        };
        let Some(third) = words.next() else {
            return Line::Other;
        };
        let found = match (hex_0x(third), perms(third)) {
            (Some(offset), _) => words
                .next()
                .and_then(perms)
                .map(|perms| (&GEF, perms, offset)),
            (None, Some(perms)) => {
                let mut after = Words(words.0);
                let mut number = || after.next().and_then(hex);
                let rest = number().filter(|size| end.checked_sub(start) == Some(*size));
                Some(match rest.and_then(|_| number()) {
                    Some(offset) => {
                        words = after;
                        (&PWNDBG, perms, offset)
                    }
                    None => (&PEDA, perms, 0),
                })
            }
            (None, None) => None,
        };
        let Some((format, perms, offset)) = found else {
            return Line::Other;
        };
        // A line of pwndbg whose size is wrong has the form of PEDA.
        if self.seen.is_some_and(|seen| seen != format) {
            return Line::Damaged("its columns are not those of the other lines");
        }
        self.seen = Some(format);
        Line::of(entry(start, Some(end), perms).map(|mut entry| {
            entry.mapping.offset = offset;
            entry.mapping.name = named(words.rest());
            entry
        }))
    }

    fn format(&self) -> &'static Format {
        self.seen.unwrap_or(&GEF)
    }
}

/// pwndbg makes up names for memory without one, such as `[anon_7ffff7d80]`.
fn named(text: &str) -> MapName {
    match text.starts_with("[anon_") {
        true => MapName::None,
        false => name(text),
    }
}
