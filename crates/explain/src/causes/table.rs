//! The table of known causes.

use super::pattern::{Matches, Pattern};
use super::{Cause, read};
use crate::text::count;
use std::sync::OnceLock;

/// Number of mappings that a program needs for memory of a given size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Need {
    /// Size of a unit of memory in KiB.
    pub kib: u64,
    /// Mappings per unit.
    pub mappings: f64,
}

/// Entry of the table: a pattern, its cause, and what to do.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Short name.
    pub name: String,
    /// Finding as a sentence; words in braces are replaced by what was counted.
    pub text: String,
    /// Why the program needs so many mappings.
    pub cause: String,
    /// What to do about it; words in braces are replaced like those of the text.
    pub advice: String,
    /// Addresses of the documents on which cause and advice are based.
    pub references: Vec<String>,
    /// Versions to which the entry applies.
    pub versions: String,
    /// Needed number of mappings, if a document states it.
    pub need: Option<Need>,
    /// Pattern by which the cause is recognised.
    pub pattern: Pattern,
}

/// Returns all entries, in the order in which their patterns are looked for.
///
/// # Panics
/// Never: the table is part of the program, and a test reads it.
pub fn table() -> &'static [Entry] {
    static TABLE: OnceLock<Vec<Entry>> = OnceLock::new();
    TABLE.get_or_init(|| read::entries(include_str!("table.toml")).expect("a correct table"))
}

impl Entry {
    /// Returns the cause with the counts of `matches`.
    pub fn cause(&self, matches: &Matches) -> Cause {
        Cause {
            name: self.name.clone(),
            mappings: matches.mappings,
            count: matches.sequences,
            text: self.fill(&self.text, matches),
            advice: self.fill(&self.advice, matches),
            references: self.references.clone(),
            versions: self.versions.clone(),
        }
    }

    fn fill(&self, text: &str, matches: &Matches) -> String {
        let need = self.need.map_or(0, |need| {
            (matches.extent.div_ceil(need.kib << 10) as f64 * need.mappings).ceil() as u64
        });
        let words = [
            ("{mappings}", count(matches.mappings)),
            ("{count}", count(matches.sequences)),
            ("{files}", count(matches.files)),
            ("{size}", size(matches.usual_size)),
            ("{extent}", size(matches.extent)),
            ("{need}", count(need)),
        ];
        let mut filled = text.to_owned();
        for (word, value) in words {
            filled = filled.replace(word, &value);
        }
        filled
    }
}

/// Formats a number of bytes in the largest unit that has no fraction of more than one digit.
fn size(bytes: u64) -> String {
    match bytes {
        b if b < 1 << 20 => format!("{} KiB", b >> 10),
        b if b < 1 << 30 => format!("{} MiB", b >> 20),
        b => format!("{:.1} GiB", b as f64 / (1u64 << 30) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_entry_is_complete() {
        let mut names = HashSet::new();
        for entry in table() {
            let name = &entry.name;
            assert!(names.insert(name), "{name} is there twice");
            assert!(!entry.references.is_empty(), "{name}");
            for address in &entry.references {
                assert!(address.starts_with("https://"), "{name}: {address}");
            }
            assert!(!entry.pattern.sequence.is_empty(), "{name}");
            assert!(entry.pattern.at_least >= 100, "{name}");
            for text in [&entry.text, &entry.cause, &entry.advice, &entry.versions] {
                assert!(!text.trim().is_empty(), "{name}");
                assert!(!text.contains('\n'), "{name}: one line each");
            }
            assert_eq!(
                entry.need.is_some(),
                entry.text.contains("{need}") || entry.advice.contains("{need}"),
                "{name}"
            );
            let cause = entry.cause(&Matches::default());
            for text in [&cause.text, &cause.advice] {
                assert!(!text.contains(['{', '}']), "{name}: {text}");
            }
        }
    }

    #[test]
    fn the_needed_number_grows_with_the_memory() {
        let entry = table()
            .iter()
            .find(|entry| entry.name == "zgc-heap")
            .unwrap();
        let matches = Matches {
            extent: 48 << 30,
            ..Matches::default()
        };
        // The number that HotSpot itself prints for a heap of 49152 MiB.
        let advice = entry.cause(&matches).advice;
        assert!(advice.contains("88,474"), "{advice}");
    }
}
