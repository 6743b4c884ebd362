//! An entry of the table of causes, and the cause that it gives for a list of mappings.

use super::Cause;
use super::pattern::{Matches, Pattern};
use crate::text::count;
use serde::Deserialize;

/// Number of mappings that a program needs for memory of a given size.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// Size of a unit of memory in KiB.
    pub kib: u64,
    /// Mappings per unit.
    pub mappings: f64,
}

/// Entry of the table: a pattern, its cause, and what to do.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
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
