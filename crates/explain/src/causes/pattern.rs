//! Patterns over a list of mappings.
//!
//! A pattern is a sequence of one or more adjoining mappings, each described by name, permissions,
//! size, flag and the reason for its lower boundary. It is found if the list contains the sequence
//! often enough. Mappings that an earlier pattern has claimed are not looked at again, so that each
//! mapping belongs to at most one cause.

use crate::rows::MappingRow;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};

/// Conditions on one mapping; a list that is empty permits everything.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Permitted names, with `*` for any text; the empty name is that of anonymous memory.
    #[serde(default)]
    pub names: Vec<String>,
    /// Permitted permissions, such as `rw-p`.
    #[serde(default)]
    pub perms: Vec<String>,
    /// Smallest and largest size in KiB.
    pub kib: Option<[u64; 2]>,
    /// Two-letter code of a flag that the mapping has, as in `VmFlags` of smaps.
    pub flag: Option<String>,
    /// Reasons, one of which keeps the mapping apart from the one below.
    #[serde(default)]
    pub reasons: Vec<String>,
}

impl Member {
    fn fits(&self, row: &MappingRow) -> bool {
        let name = row.mapping.as_str();
        let kib = row.size / 1024;
        // The names come last, because they take the most time.
        self.kib
            .is_none_or(|[least, most]| (least..=most).contains(&kib))
            && (self.perms.is_empty() || self.perms.contains(&row.perm))
            && (self.reasons.is_empty()
                || row
                    .reason
                    .is_some_and(|reason| self.reasons.iter().any(|wanted| wanted == reason)))
            && self.flag.as_ref().is_none_or(|flag| has(row, flag))
            && (self.names.is_empty() || self.names.iter().any(|glob| fits(glob, name)))
    }
}

fn has(row: &MappingRow, flag: &str) -> bool {
    let flags = row.flags.as_deref().unwrap_or_default();
    flags.split(' ').any(|one| one == flag)
}

/// Checks whether a name has the form of `glob`, in which `*` stands for any text.
pub fn fits(glob: &str, name: &str) -> bool {
    if name.is_empty() {
        return glob.bytes().all(|byte| byte == b'*');
    }
    let Some((first, rest)) = glob.split_once('*') else {
        return glob == name;
    };
    let Some(mut name) = name.strip_prefix(first) else {
        return false;
    };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return name.ends_with(piece);
        }
        match name.find(piece) {
            Some(at) => name = &name[at + piece.len()..],
            None => return false,
        }
    }
    true
}

/// Conditions on a whole list of mappings.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// Adjoining mappings, in ascending order of their addresses.
    pub sequence: Vec<Member>,
    /// Minimum number of mappings in all sequences together.
    pub at_least: u64,
    /// Minimum number of different files.
    #[serde(default)]
    pub files: u64,
    /// At least half of the sequences end in a mapping of the same size.
    #[serde(default)]
    pub equal_sizes: bool,
    /// Names, one of which must occur somewhere in the list.
    #[serde(default)]
    pub needs: Vec<String>,
}

/// Mappings that have a pattern.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Matches {
    /// Number of sequences.
    pub sequences: u64,
    /// Number of mappings in these sequences.
    pub mappings: u64,
    /// Number of different files.
    pub files: u64,
    /// Most frequent size of the last mapping of a sequence, in bytes.
    pub usual_size: u64,
    /// Highest end of a mapping in its file, in bytes.
    pub extent: u64,
}

impl Pattern {
    /// Counts the sequences among mappings that are not `claimed`, and claims them if the pattern
    /// is found.
    pub fn find(&self, rows: &[MappingRow], claimed: &mut [bool]) -> Option<Matches> {
        let exists = |glob: &String| rows.iter().any(|row| fits(glob, &row.mapping));
        if !self.needs.is_empty() && !self.needs.iter().any(exists) {
            return None;
        }
        let starts = self.starts(rows, claimed);
        let found = self.measure(rows, &starts);
        if found.mappings < self.at_least || found.files < self.files {
            return None;
        }
        let usual = |&&start: &&usize| self.last(rows, start).size == found.usual_size;
        if self.equal_sizes && (starts.iter().filter(usual).count() as u64) * 2 < found.sequences {
            return None;
        }
        for start in starts {
            claimed[start..start + self.sequence.len()].fill(true);
        }
        Some(found)
    }

    fn starts(&self, rows: &[MappingRow], claimed: &[bool]) -> Vec<usize> {
        let len = self.sequence.len();
        let mut starts = Vec::new();
        let mut at = 0;
        while at + len <= rows.len() {
            let here = &rows[at..at + len];
            let adjoin = here[1..].iter().all(|row| row.reason != Some("gap"));
            let free = claimed[at..at + len].iter().all(|claimed| !claimed);
            let fits = |(member, row): (&Member, &MappingRow)| member.fits(row);
            if free && adjoin && self.sequence.iter().zip(here).all(fits) {
                starts.push(at);
                at += len;
            } else {
                at += 1;
            }
        }
        starts
    }

    fn last<'a>(&self, rows: &'a [MappingRow], start: usize) -> &'a MappingRow {
        &rows[start + self.sequence.len() - 1]
    }

    fn measure(&self, rows: &[MappingRow], starts: &[usize]) -> Matches {
        let mut sizes: HashMap<u64, u64> = HashMap::new();
        let mut files = HashSet::new();
        let mut extent = 0;
        for &start in starts {
            let row = self.last(rows, start);
            *sizes.entry(row.size).or_default() += 1;
            if row.inode != 0 {
                files.insert((row.inode, row.mapping.as_str()));
                extent = extent.max(row.offset.saturating_add(row.size));
            }
        }
        let usual = sizes.iter().max_by_key(|(size, n)| (**n, **size));
        Matches {
            sequences: starts.len() as u64,
            mappings: (starts.len() * self.sequence.len()) as u64,
            files: files.len() as u64,
            usual_size: usual.map_or(0, |(size, _)| *size),
            extent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_stands_for_any_text() {
        for (glob, name) in [
            ("", ""),
            ("*", ""),
            ("*.cfs", "/a/_1.cfs"),
            ("/memfd:*", "/memfd:x (deleted)"),
            ("*/_*_Lucene*.dvd*", "/i/_9cu3_38_Lucene90_0.dvd (deleted)"),
        ] {
            assert!(fits(glob, name), "{glob} {name}");
        }
        for (glob, name) in [("", "x"), ("*.cfs", "/a/_1.cfe"), ("/a*b*c", "/acb")] {
            assert!(!fits(glob, name), "{glob} {name}");
        }
    }
}
