//! The memory map that a sanitizer of GCC or LLVM prints when it cannot go on.
//!
//! # Linux
//! `DumpProcessMap` of compiler-rt: ranges and names between two lines of words, nothing else.

use super::Format;
use super::fields::{UNKNOWN_PERMS, Words, entry, hex_0x, name};
use super::tool::{Counted, Line, Tool};
use crate::unseen::Unseen;

const SANITIZER: Format = Format {
    name: "a sanitizer's map",
    cannot_show: &["permissions", "offsets", "inodes"],
    so: "neighbours most probably differ in permissions",
    unseen: Unseen::PERMS
        .union(Unseen::SHARING)
        .union(Unseen::OFFSET)
        .union(Unseen::INODE),
};

/// What is remembered between lines.
#[derive(Default)]
pub(super) struct Sanitizer {
    in_list: bool,
}

impl Tool for Sanitizer {
    fn line(&mut self, line: &str) -> Line {
        let of_process = line
            .strip_prefix("==")
            .and_then(|rest| rest.split_once("=="));
        let text = of_process.map_or(line, |(_, text)| text);
        if text.starts_with("Process memory map follows") || text.starts_with("Process map") {
            self.in_list = true;
            let pid = of_process.map_or("unnamed", |(pid, _)| pid);
            return Line::Begin(pid.to_owned());
        }
        if text.starts_with("End of process memory map") {
            self.in_list = false;
            return Line::End(Counted::Nothing);
        }
        let mut words = Words(line);
        let range = words.next().and_then(|word| word.split_once('-'));
        let Some((start, end)) = range.filter(|_| self.in_list) else {
            return Line::Other;
        };
        let (Some(start), Some(end)) = (hex_0x(start), hex_0x(end)) else {
            return Line::Damaged("its addresses are no numbers");
        };
        Line::of(entry(start, Some(end), UNKNOWN_PERMS).map(|mut entry| {
            entry.mapping.name = name(words.rest());
            entry
        }))
    }

    fn format(&self) -> &'static Format {
        &SANITIZER
    }
}
