//! Builders of columns, and of batches from them.

use arrow_array::builder::{ArrayBuilder, StringViewBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;

/// Returns a builder of strings that stores repeated ones once.
///
/// String views reach their readers without a copy, and hold strings of up to 12 bytes in place.
pub(crate) fn strings() -> StringViewBuilder {
    StringViewBuilder::new().with_deduplicate_strings()
}

/// Takes the rows out of the builders, which are those of the schema's fields, in this order.
///
/// # Panics
/// Panics if the builders do not fit the schema, which a test of each table would show.
pub(crate) fn batch(schema: &SchemaRef, builders: &mut [&mut dyn ArrayBuilder]) -> RecordBatch {
    let columns: Vec<ArrayRef> = builders.iter_mut().map(|one| one.finish()).collect();
    RecordBatch::try_new(schema.clone(), columns).expect("the builders fit the schema")
}
