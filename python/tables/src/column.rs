//! A column of a table: its name, its type, and what it means.
//!
//! Each table lists its columns in a constant, from which its schema is made.

use arrow_schema::DataType;

/// A column of a table.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: DataType,
    pub(crate) nullable: bool,
    pub(crate) description: &'static str,
}

impl Column {
    /// A column that has a value in every row.
    pub(crate) const fn always(
        name: &'static str,
        kind: DataType,
        description: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            nullable: false,
            description,
        }
    }

    /// A column that is null in rows that it does not concern.
    pub(crate) const fn sometimes(
        name: &'static str,
        kind: DataType,
        description: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            nullable: true,
            description,
        }
    }
}
