//! A column of a table: its name, its type, and what it means.
//!
//! Each table lists its columns in a constant, from which its schema is made.

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// Key of a field's metadata under which the meaning of the column is found.
pub const DESCRIPTION: &str = "description";

/// A column of a table.
pub(crate) struct Column {
    name: &'static str,
    kind: DataType,
    nullable: bool,
    description: &'static str,
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

/// Returns the schema of these columns; the metadata of each field has its meaning under
/// [`DESCRIPTION`].
pub(crate) fn schema(columns: &[Column]) -> SchemaRef {
    let field = |column: &Column| {
        let about = (DESCRIPTION.to_owned(), column.description.to_owned());
        Field::new(column.name, column.kind.clone(), column.nullable).with_metadata([about])
    };
    let fields: Vec<_> = columns.iter().map(field).collect();
    Arc::new(Schema::new(fields))
}

/// Returns the name of a type, as Arrow's documentation and Python write it.
pub fn type_name(kind: &DataType) -> String {
    match kind {
        DataType::Utf8View => "string".to_owned(),
        DataType::Boolean => "bool".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}
