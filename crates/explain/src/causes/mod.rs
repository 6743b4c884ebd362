//! Causes of many mappings that are known by name.
//!
//! A table in a data file, `table.toml`, maps a pattern in the list of mappings to its cause, to
//! advice, and to the document on which both are based. The table is read once. Most settings that
//! it names were not tried by this program, so the advice promises no count.
//!
//! # Invariants
//! C1  each mapping belongs to at most one cause: the first in the table whose pattern it has

mod document;
mod entry;
mod pattern;
mod table;
mod text;

use crate::rows::MappingRow;
use serde::{Deserialize, Serialize};

pub use document::document;
pub use entry::{Entry, Need};
pub use pattern::{Matches, Member, Pattern};
pub use table::table;

/// A cause that was found in a list of mappings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cause {
    /// Short name of the cause, such as `thread-stacks`.
    pub name: String,
    /// Number of mappings that have the cause.
    pub mappings: u64,
    /// Number of times that the pattern occurs, such as the number of stacks.
    pub count: u64,
    /// Finding as a sentence.
    pub text: String,
    /// What to do about it.
    pub advice: String,
    /// Addresses of the documents on which the advice is based.
    pub references: Vec<String>,
    /// Versions to which the entry applies.
    pub versions: String,
}

/// Returns the causes of a list of mappings, most mappings first.
pub fn causes(rows: &[MappingRow]) -> Vec<Cause> {
    let mut claimed = vec![false; rows.len()];
    let mut found: Vec<_> = table()
        .iter()
        .filter_map(|entry| {
            let matches = entry.pattern.find(rows, &mut claimed)?;
            Some(entry.cause(&matches))
        })
        .collect();
    found.sort_by_key(|cause| std::cmp::Reverse(cause.mappings));
    found
}
