//! The tables: names, columns, and what each column means.

use crate::column::{Column, schema};
use crate::{differences, events, lifetimes, merges, vmas};
use arrow_schema::SchemaRef;
use std::fmt;
use std::str::FromStr;

/// A table that can be made of a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Table {
    /// The events of the trace, as recorded.
    Events,
    /// The number of VMAs of each address space over time, under each policy.
    Vmas,
    /// The VMAs under each policy, with the events that made and ended them.
    Lifetimes,
    /// The merge attempts under the recorded kernel's rules, with the verdict of each policy.
    Merges,
    /// The differences between the kernel and the core.
    Differences,
}

impl Table {
    /// All tables.
    pub const ALL: [Table; 5] = [
        Table::Events,
        Table::Vmas,
        Table::Lifetimes,
        Table::Merges,
        Table::Differences,
    ];

    /// Returns the name, which is also that of the file without its extension.
    pub fn name(self) -> &'static str {
        match self {
            Table::Events => "events",
            Table::Vmas => "vmas",
            Table::Lifetimes => "lifetimes",
            Table::Merges => "merges",
            Table::Differences => "differences",
        }
    }

    /// Returns sentences that say what a row is.
    pub fn description(self) -> &'static str {
        match self {
            Table::Events => "One row for each event of the trace, as it was recorded.",
            Table::Vmas => {
                "One row for each change of the number of VMAs of an address space under a policy."
            }
            Table::Lifetimes => {
                "One row for each VMA under a policy, in the order in which they ended. A VMA stays the \
                 same while it grows, shrinks or gets other permissions; a split makes another one, and a \
                 merge ends all but one. A VMA that the same event makes and ends has no row."
            }
            Table::Merges => {
                "One row for each policy and each merge attempt of the recorded kernel's rules: what \
                 the policy decides in the state that these rules have led to."
            }
            Table::Differences => {
                "One row for each result or list of mappings in which the replay under the recorded \
                 kernel's rules differs from the kernel."
            }
        }
    }

    /// Returns the schema; the metadata of each field has its meaning under [`DESCRIPTION`](crate::DESCRIPTION).
    pub fn schema(self) -> SchemaRef {
        let columns: &[Column] = match self {
            Table::Events => &events::COLUMNS,
            Table::Vmas => &vmas::COLUMNS,
            Table::Lifetimes => &lifetimes::COLUMNS,
            Table::Merges => &merges::COLUMNS,
            Table::Differences => &differences::COLUMNS,
        };
        schema(columns)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Table {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Table::ALL.into_iter().find(|table| table.name() == text);
        found.ok_or_else(|| {
            let names = Table::ALL.map(Table::name).join(", ");
            format!("there is no table `{text}`: the tables are {names}")
        })
    }
}
