//! What `jcmd PID System.map` prints: the mappings of a Java virtual machine, and what it uses them for.
//!
//! # Linux
//! JDK 24 and later. The column of notes has what `smaps` says of a mapping, but only some of it.

use super::Format;
use super::fields::{Words, entry, hex_0x, name, perms};
use super::tool::{Counted, Line, Tool};
use crate::maps::MapName;
use crate::unseen::Unseen;

const SYSTEM_MAP: Format = Format {
    name: "jcmd System.map",
    cannot_show: &["offsets", "inodes"],
    so: "neighbours of one file may be contiguous in it",
    unseen: Unseen::OFFSET.union(Unseen::INODE),
};

/// What is remembered between lines.
#[derive(Default)]
pub(super) struct SystemMap {
    process: Option<String>,
}

impl Tool for SystemMap {
    fn line(&mut self, line: &str) -> Line {
        let mut words = Words(line);
        let first = words.next().unwrap_or_default();
        let pid = first.strip_suffix(':').filter(|_| words.rest().is_empty());
        if let Some(pid) = pid.filter(|pid| pid.parse::<u32>().is_ok()) {
            self.process = Some(pid.to_owned());
            return Line::Part;
        }
        if line.starts_with("Memory mappings:") {
            return Line::Begin(self.process.take().unwrap_or_else(|| "unnamed".to_owned()));
        }
        if let Some(count) = line.strip_prefix("Number of mappings:") {
            let counted = count
                .trim()
                .parse()
                .map_or(Counted::Nothing, Counted::Mappings);
            return Line::End(counted);
        }
        if is_legend(line, first) {
            return Line::Part;
        }
        let Some((start, end)) = first.split_once('-') else {
            return Line::Other;
        };
        let (Some(start), Some(end)) = (hex_0x(start), hex_0x(end)) else {
            return Line::Other;
        };
        let Some(size) = words.next().and_then(|word| word.parse::<u64>().ok()) else {
            return Line::Other;
        };
        if end.checked_sub(start) != Some(size) {
            return Line::Damaged("its size is not that of its addresses");
        }
        let Some(perms) = words.next().filter(|word| word.len() == 4).and_then(perms) else {
            return Line::Damaged("no permissions");
        };
        let rss = words.next().and_then(|word| word.parse::<u64>().ok());
        // hugetlb, the size of a page, notes, and what the machine uses the memory for.
        let skipped = (0..4).all(|_| words.next().is_some());
        let (Some(rss), true) = (rss, skipped) else {
            return Line::Damaged("a column is missing");
        };
        Line::of(entry(start, Some(end), perms).map(|mut entry| {
            entry.rss_kib = rss >> 10;
            entry.mapping.name = match words.rest() {
                "" | "-" => MapName::None,
                text => name(text),
            };
            entry
        }))
    }

    fn format(&self) -> &'static Format {
        &SYSTEM_MAP
    }
}

/// Labels of the legend above the list, and of the sums below it, besides those in capitals.
const LABELS: [&str; 20] = [
    "from,",
    "from",
    "prot:",
    "rss:",
    "hugetlb:",
    "pgsz:",
    "notes:",
    "shrd:",
    "com:",
    "swap:",
    "thp:",
    "thpad:",
    "nothp:",
    "huge:",
    "file:",
    "vsize:",
    "committed:",
    "shared:",
    "NMT",
    "vm",
];

/// True for the legend above the list, and for the sums below it.
fn is_legend(line: &str, first: &str) -> bool {
    let is_use = |label: &str| label.len() > 1 && label.bytes().all(|b| b.is_ascii_uppercase());
    LABELS.contains(&first)
        || first.strip_suffix(':').is_some_and(is_use)
        || line.starts_with("swapped out:")
        || line.starts_with("using thp:")
        || (first.len() > 20 && first.bytes().all(|b| b == b'='))
}
