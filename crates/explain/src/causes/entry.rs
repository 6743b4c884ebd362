//! An entry of the table of causes, and the cause that it gives for a list of mappings.

use super::Cause;
use super::pattern::{Beside, Matches, Pattern};
use super::subject::Subject;
use crate::text::{count, plural};
use serde::Deserialize;
use std::ops::Range;

/// Number of mappings that a program needs for memory of a given size.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// Size of a unit of memory in KiB.
    pub kib: u64,
    /// Mappings per unit.
    pub mappings: f64,
}

/// Whom an advice is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reader {
    /// Starts the program and has its settings.
    Operator,
    /// Can change the program.
    Author,
}

impl Reader {
    /// Both, the one first who can act at once.
    const ALL: [Reader; 2] = [Reader::Operator, Reader::Author];

    /// Names the reader.
    pub fn words(self) -> &'static str {
        match self {
            Reader::Operator => "the operator",
            Reader::Author => "the author",
        }
    }
}

/// What one reader can do.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advice {
    /// Whom the advice is for.
    pub to: Reader,
    /// The advice; words in braces are replaced by what was counted.
    pub text: String,
    /// Names, one of which must occur in the list for the advice to be told.
    #[serde(default)]
    pub needs: Vec<String>,
}

/// Entry of the table: patterns, their cause, and what to do.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Short name.
    pub name: String,
    /// True if the entry only describes how mappings lie, and explains what no other entry does.
    #[serde(default)]
    pub generic: bool,
    /// Finding as a sentence; words in braces are replaced by what was counted.
    pub text: String,
    /// Why the program needs so many mappings.
    pub cause: String,
    /// What to do about it.
    pub advice: Vec<Advice>,
    /// What the advice was measured to do, on which program; or `not measured`.
    pub measured: String,
    /// Addresses of the documents on which cause and advice are based.
    pub references: Vec<String>,
    /// Versions to which the entry applies.
    pub versions: String,
    /// Needed number of mappings, if a document states it.
    pub need: Option<Need>,
    /// Patterns, each of which shows the cause; their mappings add up.
    #[serde(rename = "pattern")]
    pub patterns: Vec<Pattern>,
}

/// The mappings that an entry explains, by pattern; there is at least one pattern.
pub struct Explained(Vec<(&'static Pattern, Matches)>);

impl Explained {
    /// Creates the mappings of a single pattern.
    #[cfg(test)]
    pub fn one(pattern: &'static Pattern, matches: Matches) -> Explained {
        Explained(vec![(pattern, matches)])
    }

    /// Returns the number of mappings that are explained.
    pub fn mappings(&self) -> u64 {
        self.0.iter().map(|(_, matches)| matches.mappings).sum()
    }

    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.0.iter().flat_map(|(pattern, matches)| {
            let len = pattern.sequence.len();
            matches.starts.iter().map(move |start| *start..start + len)
        })
    }

    /// True if no other cause has claimed any of the mappings.
    pub fn is_free(&self, claimed: &[bool]) -> bool {
        self.ranges().flatten().all(|n| !claimed[n])
    }

    /// Claims the mappings.
    pub fn claim(&self, claimed: &mut [bool]) {
        self.ranges().for_each(|range| claimed[range].fill(true));
    }
}

impl Entry {
    /// Finds the mappings that the entry explains, among those that are not `claimed`.
    pub fn explain(&'static self, subject: &Subject<'_>, claimed: &[bool]) -> Option<Explained> {
        let mut claimed = claimed.to_vec();
        let mut explained = Explained(Vec::new());
        for pattern in &self.patterns {
            let Some(matches) = pattern.find(subject, &claimed) else {
                continue;
            };
            let first = explained.0.first().map(|(_, first)| first.starts.len());
            if is_beside(pattern, first, matches.starts.len()) {
                explained.0.push((pattern, matches));
                explained.claim(&mut claimed);
            }
        }
        (!explained.0.is_empty()).then_some(explained)
    }

    /// Returns the cause; its words are about the first pattern that was found. `has_one_of` tells
    /// whether one of the names occurs in the list.
    pub fn cause(&self, explained: &Explained, has_one_of: impl Fn(&[String]) -> bool) -> Cause {
        let (pattern, matches) = &explained.0[0];
        let fill = |text: &str| self.fill(text, matches, explained.mappings());
        Cause {
            name: self.name.clone(),
            mappings: explained.mappings(),
            count: matches.starts.len() as u64,
            text: fill(&self.text),
            evidence: fill(&pattern.because),
            advice: fill(&self.advice(has_one_of)),
            measured: self.measured.clone(),
            references: self.references.clone(),
            versions: self.versions.clone(),
        }
    }

    /// Returns the advice for each reader, as far as the list has what it is about.
    fn advice(&self, has_one_of: impl Fn(&[String]) -> bool) -> String {
        let is_told = |advice: &&Advice| advice.needs.is_empty() || has_one_of(&advice.needs);
        let told: Vec<_> = self.advice.iter().filter(is_told).collect();
        let to = |reader: Reader| {
            let texts = told.iter().filter(|advice| advice.to == reader);
            let texts: Vec<_> = texts.map(|advice| advice.text.as_str()).collect();
            (!texts.is_empty()).then(|| format!("For {}: {}", reader.words(), texts.join("; ")))
        };
        let said: Vec<_> = Reader::ALL.into_iter().filter_map(to).collect();
        said.join(". ")
    }

    fn fill(&self, text: &str, matches: &Matches, mappings: u64) -> String {
        let need = self.need.map_or(0, |need| {
            (matches.extent.div_ceil(need.kib << 10) as f64 * need.mappings).ceil() as u64
        });
        let judged = &matches.judged;
        let words = [
            ("{mappings}", count(mappings)),
            ("{count}", count(matches.starts.len() as u64)),
            ("{files}", count(matches.files)),
            ("{size}", size(matches.usual_size)),
            ("{extent}", size(matches.extent)),
            ("{need}", count(need)),
            ("{held}", count(judged.held)),
            ("{known}", count(judged.known)),
            ("{threads}", plural(judged.threads, "thread")),
            ("{library}", judged.library.clone()),
            ("{in_folder}", matches.folder.clone()),
            ("{open}", open(judged.open)),
            ("{overcommit}", overcommit(judged.overcommit)),
            ("{used}", size(judged.space.mapped)),
            ("{space}", size(judged.space.bytes)),
            ("{gap}", size(judged.space.largest_gap)),
        ];
        let mut filled = text.to_owned();
        for (word, value) in words {
            filled = filled.replace(word, &value);
        }
        filled
    }
}

/// Checks whether a pattern may be found in addition to the `first` one.
fn is_beside(pattern: &Pattern, first: Option<usize>, sequences: usize) -> bool {
    match (pattern.beside, first) {
        (None, _) | (Some(Beside::Any), Some(_)) => true,
        (Some(Beside::AsMany), Some(first)) => first.abs_diff(sequences) * 5 <= first,
        (Some(_), None) => false,
    }
}

fn open(files: Option<u64>) -> String {
    files.map_or_else(String::new, |files| {
        format!(", and {} of the files are open as well", count(files))
    })
}

fn overcommit(value: Option<u64>) -> String {
    value.map_or_else(|| "not known here".to_owned(), |value| value.to_string())
}

/// Formats a number of bytes in the largest unit that has no fraction of more than one digit.
fn size(bytes: u64) -> String {
    match bytes {
        b if b < 1 << 20 => format!("{} KiB", b >> 10),
        b if b < 1 << 30 => format!("{} MiB", b >> 20),
        b if b < 1 << 40 => format!("{:.1} GiB", b as f64 / (1u64 << 30) as f64),
        b => format!("{:.1} TiB", b as f64 / (1u64 << 40) as f64),
    }
}
