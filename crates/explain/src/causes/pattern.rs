//! Patterns over a list of mappings: what a cause would explain.
//!
//! A pattern is a sequence of one or more adjoining mappings, each described by name, permissions,
//! size and the reason for its lower boundary. A pattern alone proves nothing: [`super::conditions`]
//! lists what must be true of the process besides.

use super::conditions::{Conditions, Judged};
use super::counts::{counts, most_frequent};
use super::folder;
use super::glob;
use super::subject::Subject;
use serde::{Deserialize, Deserializer};
use std::collections::HashSet;
use vmarea::types::VmFlags;
use vmarea_process::maps::{MapName, flag_named};
use vmarea_process::{Mapping, Reason};
use vmarea_trace::event::Perms;

/// Conditions on one mapping; a list that is empty permits everything.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Permitted names, with `*` for any text; the empty name is that of anonymous memory, which may
    /// have a name of its own (`[anon:...]`).
    #[serde(default)]
    pub names: Vec<String>,
    /// Permitted permissions, such as `rw-p`.
    #[serde(default, deserialize_with = "perms")]
    pub perms: Vec<Perms>,
    /// Smallest and largest size in KiB.
    pub kib: Option<[u64; 2]>,
    /// Two-letter codes of flags, as in `VmFlags` of smaps, one of which the mapping has and the one
    /// below has not, or the reverse.
    #[serde(default, deserialize_with = "flags")]
    pub differs: VmFlags,
    /// Reasons, one of which keeps the mapping apart from the one below.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// The mapping is one of a data file on a disk, neither of a program nor of a shared library.
    #[serde(default)]
    pub data: bool,
    /// The mapping is one of a program or of a shared library.
    #[serde(default)]
    pub program: bool,
    /// Whether the file has been deleted.
    pub deleted: Option<bool>,
}

impl Member {
    fn fits(&self, subject: &Subject<'_>, n: usize) -> bool {
        let mapping = &subject.mappings[n];
        // The names come last, because they take the most time.
        (self.perms.is_empty() || self.perms.contains(&mapping.entry.perms))
            && self.kib.is_none_or(|[least, most]| {
                let kib = subject.size(n) / 1024;
                (least..=most).contains(&kib)
            })
            && (self.reasons.is_empty() || self.has_reason(subject.reason(n)))
            && self
                .deleted
                .is_none_or(|deleted| mapping.entry.name.is_deleted() == deleted)
            && (self.differs.is_empty() || self.has_other_flags(subject.mappings, n))
            && (!self.data || subject.is_of_data_file(n))
            && (!self.program || subject.is_of_program(n))
            && (self.names.is_empty() || self.is_named(&mapping.entry.name))
    }

    fn has_reason(&self, reason: Option<Reason>) -> bool {
        reason.is_some_and(|reason| self.reasons.iter().any(|name| name == reason.name()))
    }

    fn has_other_flags(&self, mappings: &[Mapping], n: usize) -> bool {
        let below = n.checked_sub(1).and_then(|below| mappings[below].flags);
        let differ = |below: VmFlags| Some(mappings[n].flags? ^ below);
        below
            .and_then(differ)
            .is_some_and(|differ| differ.intersects(self.differs))
    }

    fn is_named(&self, name: &MapName) -> bool {
        let is_anonymous = match name {
            MapName::None => true,
            MapName::Named(name) => name.starts_with("[anon:"),
            _ => false,
        };
        let text = name.as_text();
        self.names.iter().any(|glob| match glob.as_str() {
            "" => is_anonymous,
            glob => !text.is_empty() && glob::fits(glob, &text),
        })
    }
}

fn perms<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Perms>, D::Error> {
    let words = Vec::<String>::deserialize(from)?;
    let perms = words.iter().map(|word| {
        let known = word.as_bytes().try_into().ok().and_then(Perms::parse);
        known.ok_or_else(|| serde::de::Error::custom(format!("{word:?} are no permissions")))
    });
    perms.collect()
}

fn flags<'de, D: Deserializer<'de>>(from: D) -> Result<VmFlags, D::Error> {
    let words = Vec::<String>::deserialize(from)?;
    let flags = words.iter().map(|word| {
        let known = flag_named(word);
        known.ok_or_else(|| serde::de::Error::custom(format!("{word:?} is no flag")))
    });
    flags.collect()
}

/// How many sequences there may be in addition to those of an earlier pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beside {
    /// About as many as those of the first pattern that was found.
    AsMany,
    /// Any number.
    Any,
}

/// A sequence of mappings, and what must be true for it to show a cause.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// Adjoining mappings, in ascending order of their addresses.
    pub sequence: Vec<Member>,
    /// Minimum number of mappings in all sequences together.
    pub at_least: u64,
    /// Size of the whole sequence in KiB.
    pub whole_kib: Option<u64>,
    /// Only sequences whose last mapping has one of the usual sizes: those of at least one in twenty.
    /// At least half of the sequences must have one of them.
    #[serde(default)]
    pub usual_sizes: bool,
    /// Minimum number of different files.
    #[serde(default)]
    pub files: u64,
    /// Only the mappings of the file that has most of them.
    #[serde(default)]
    pub one_file: bool,
    /// Minimum share of all mappings, in percent.
    #[serde(default)]
    pub percent: u64,
    /// Only in addition to an earlier pattern of the same entry.
    pub beside: Option<Beside>,
    /// What else must be true.
    #[serde(default, rename = "if")]
    pub conditions: Conditions,
    /// The evidence in words; words in braces are replaced by what was counted.
    pub because: String,
}

/// Mappings that have a pattern.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Matches {
    /// Index of the first mapping of each sequence.
    pub starts: Vec<usize>,
    /// Number of mappings in these sequences.
    pub mappings: u64,
    /// Number of different files.
    pub files: u64,
    /// Most frequent size of the last mapping of a sequence, in bytes.
    pub usual_size: u64,
    /// Highest end of a mapping in its file, in bytes.
    pub extent: u64,
    /// Folder that contains most of the files.
    pub folder: String,
    /// What the evidence says.
    pub judged: Judged,
}

impl Pattern {
    /// Finds the sequences among mappings that are not `claimed`; `None` if there are too few, or if
    /// something else speaks against the pattern.
    pub fn find(&self, subject: &Subject<'_>, claimed: &[bool]) -> Option<Matches> {
        if !self.can_occur(subject) {
            return None;
        }
        let library = self.conditions.of_list(subject)?;
        let mut starts = self.starts(subject, claimed);
        if (starts.len() * self.sequence.len()) as u64 <= self.at_least / 2 {
            return None;
        }
        if self.one_file {
            starts = self.of_main_file(subject, starts);
        }
        if self.usual_sizes {
            starts = self.of_usual_sizes(subject, starts)?;
        }
        let (starts, mut judged) =
            self.conditions
                .of_process(self.sequence.len(), subject, starts)?;
        judged.library = library;
        if self.because.contains("{open}") {
            judged.open = self.open_files(subject, &starts);
        }
        judged.overcommit = self
            .conditions
            .overcommit
            .and(subject.evidence.overcommit());
        let found = self.measure(subject, starts, judged);
        let least = self
            .at_least
            .max(subject.mappings.len() as u64 * self.percent / 100);
        (found.mappings >= least && found.files >= self.files).then_some(found)
    }

    /// False if the list has too few mappings with the permissions of a member, or no such name. This
    /// is quick, and true for few of the patterns.
    fn can_occur(&self, subject: &Subject<'_>) -> bool {
        let least = self.at_least.div_ceil(self.sequence.len() as u64);
        self.sequence.iter().all(|member| {
            let enough = || subject.count(&member.perms) as u64 >= least;
            let is_anonymous = || member.names.iter().any(String::is_empty);
            (member.perms.is_empty() || enough())
                && (member.names.is_empty()
                    || is_anonymous()
                    || subject.named(&member.names).is_some())
        })
    }

    fn starts(&self, subject: &Subject<'_>, claimed: &[bool]) -> Vec<usize> {
        let len = self.sequence.len();
        let mut starts = Vec::new();
        let mut at = 0;
        while at + len <= subject.mappings.len() {
            if self.begins_at(subject, claimed, at) {
                starts.push(at);
                at += len;
            } else {
                at += 1;
            }
        }
        starts
    }

    fn begins_at(&self, subject: &Subject<'_>, claimed: &[bool], at: usize) -> bool {
        let all = at..at + self.sequence.len();
        let free = || claimed[all.clone()].iter().all(|claimed| !claimed);
        let adjoin = || {
            all.clone()
                .skip(1)
                .all(|n| subject.reason(n) != Some(Reason::Gap))
        };
        let size = || all.clone().map(|n| subject.size(n) / 1024).sum::<u64>();
        let mut members = self.sequence.iter().zip(all.clone());
        members.all(|(member, n)| member.fits(subject, n))
            && free()
            && adjoin()
            && self.whole_kib.is_none_or(|whole| whole == size())
    }

    /// Returns the index of the last mapping of the sequence that begins at `start`.
    pub fn last(&self, start: usize) -> usize {
        start + self.sequence.len() - 1
    }

    fn of_main_file(&self, subject: &Subject<'_>, mut starts: Vec<usize>) -> Vec<usize> {
        let file = |start: &usize| {
            let entry = &subject.mappings[self.last(*start)].entry;
            (entry.dev, entry.ino)
        };
        if let Some(main) = most_frequent(starts.iter().map(file)) {
            starts.retain(|start| file(start) == main);
        }
        starts
    }

    fn of_usual_sizes(&self, subject: &Subject<'_>, mut starts: Vec<usize>) -> Option<Vec<usize>> {
        let size = |start: &usize| subject.size(self.last(*start));
        let all = starts.len();
        let counts = counts(starts.iter().map(size));
        starts.retain(|start| counts[&size(start)] * 20 >= all);
        (starts.len() * 2 >= all).then_some(starts)
    }

    /// Returns how many of the mapped files a descriptor of the process leads to.
    fn open_files(&self, subject: &Subject<'_>, starts: &[usize]) -> Option<u64> {
        let open = subject.evidence.open_files()?;
        let mapped: HashSet<_> = starts
            .iter()
            .map(|start| {
                let entry = &subject.mappings[self.last(*start)].entry;
                (entry.dev, entry.ino)
            })
            .collect();
        Some(mapped.intersection(open).count() as u64)
    }

    fn measure(&self, subject: &Subject<'_>, starts: Vec<usize>, judged: Judged) -> Matches {
        let lasts = || starts.iter().map(|start| self.last(*start));
        let of_files = || lasts().filter(|n| subject.mappings[*n].entry.ino != 0);
        let files: HashSet<_> = of_files()
            .map(|n| (subject.mappings[n].entry.ino, subject.name(n)))
            .collect();
        let ends = of_files().map(|n| {
            let offset = subject.mappings[n].entry.offset;
            offset.saturating_add(subject.size(n))
        });
        Matches {
            mappings: (starts.len() * self.sequence.len()) as u64,
            files: files.len() as u64,
            usual_size: most_frequent(lasts().map(|n| subject.size(n))).unwrap_or(0),
            extent: ends.max().unwrap_or(0),
            folder: folder::words(files.iter().map(|(_, name)| name.as_ref())),
            judged,
            starts,
        }
    }
}
