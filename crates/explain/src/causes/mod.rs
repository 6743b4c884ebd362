//! Causes of many mappings that are known by name.
//!
//! A cause is a hypothesis: mappings that it would explain, and what must be true of the process
//! besides. Each entry of the table ([`table`](mod@table)) names both, and says what its advice was
//! measured to do. Of all causes whose conditions hold, the one that explains the most mappings is
//! told first; the others are weighed again on the mappings that are left.
//!
//! # Picture
//! ```text
//! mappings, boundaries ──┐
//!                        ├─▶ Subject ─▶ Pattern ─▶ Conditions ─▶ Matches ─▶ weigh ─▶ Cause
//! Evidence (/proc) ──────┘   (table)    (shape)     (evidence)
//! ```

mod conditions;
mod counts;
mod document;
mod entry;
pub mod folder;
mod glob;
mod pattern;
mod space;
mod subject;
pub mod table;
mod text;
mod weigh;

use serde::{Deserialize, Serialize};

pub use document::document;
pub use subject::Subject;
pub use weigh::causes;

/// A cause of many mappings, and what can be done about it.
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
    /// What the finding rests on.
    #[serde(default)]
    pub evidence: String,
    /// What to do about it.
    pub advice: String,
    /// What the advice was measured to do, or `not measured`.
    #[serde(default)]
    pub measured: String,
    /// Addresses of the documents on which the advice is based.
    pub references: Vec<String>,
    /// Versions to which the entry applies.
    pub versions: String,
}

impl Cause {
    /// True if the addresses are used up, which a higher limit on mappings does not change.
    pub fn is_of_space(&self) -> bool {
        matches!(
            self.name.as_str(),
            "address-space-full" | "low-addresses-full"
        )
    }
}
