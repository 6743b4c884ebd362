//! What gdb prints for `info proc mappings`.
//!
//! Before version 12, it printed no permissions. Of a core, it prints the mappings of files only,
//! and never their permissions.

use super::Format;
use super::fields::{UNKNOWN_PERMS, Words, entry, hex_0x, name, perms};
use super::tool::{Counted, Line, Tool};
use crate::maps::{MapName, SmapsEntry};
use crate::unseen::Unseen;

const WITH_PERMS: Format = Format {
    name: "gdb",
    cannot_show: &["inodes"],
    so: "a file that was replaced by another one of its name looks like it",
    unseen: Unseen::INODE,
};
const WITHOUT_PERMS: Format = Format {
    name: "gdb",
    cannot_show: &["permissions", "inodes"],
    so: "neighbours most probably differ in permissions",
    unseen: Unseen::PERMS.union(Unseen::SHARING).union(Unseen::INODE),
};

/// What is remembered between lines.
#[derive(Default)]
pub(super) struct Gdb {
    process: Option<String>,
    perms: bool,
}

impl Tool for Gdb {
    fn line(&mut self, line: &str) -> Line {
        let mut words = Words(line);
        match words.next() {
            Some("process") if words.rest().parse::<u32>().is_ok() => {
                self.process = Some(words.rest().to_owned());
                return Line::Part;
            }
            Some("Mapped") if words.rest().starts_with("address spaces:") => {
                return Line::Begin(self.process.take().unwrap_or_else(|| "unnamed".to_owned()));
            }
            Some("Start") if words.rest().starts_with("Addr") => return Line::Part,
            // The pager's question, and the prompt after the last line.
            Some(word) if word.starts_with("--Type") || word.starts_with("---Type") => {
                return Line::Part;
            }
            Some("(gdb)" | "[Inferior") => return Line::End(Counted::Nothing),
            _ => {}
        }
        let mut words = Words(line);
        let mut number = || words.next().and_then(hex_0x);
        let (Some(start), Some(end)) = (number(), number()) else {
            return Line::Other;
        };
        let (Some(size), Some(offset)) = (number(), number()) else {
            return Line::Other;
        };
        if end.checked_sub(start) != Some(size) {
            return Line::Damaged("its size is not that of its addresses");
        }
        let shown = words.peek().filter(|word| word.len() == 4).and_then(perms);
        if shown.is_some() {
            words.next();
            self.perms = true;
        }
        Line::of(
            entry(start, Some(end), shown.unwrap_or(UNKNOWN_PERMS)).map(|mut entry| {
                entry.mapping.offset = offset;
                entry.mapping.name = name(words.rest());
                entry
            }),
        )
    }

    fn format(&self) -> &'static Format {
        if self.perms {
            &WITH_PERMS
        } else {
            &WITHOUT_PERMS
        }
    }

    fn leaves_out(&self, entries: &[SmapsEntry]) -> Option<&'static str> {
        let only_files = entries
            .iter()
            .all(|e| matches!(e.mapping.name, MapName::Path(_)));
        (!self.perms && only_files).then_some(
            "the list has no anonymous memory, as that of a core: give the core itself to --from",
        )
    }
}
