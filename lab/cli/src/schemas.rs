//! JSON schemas of the results that `--json` writes, one for each command.
//!
//! The example `schemas` writes them to `lab/schemas`, and `tests/schemas.rs` checks real output.

use crate::{bench, graph};
use schemars::{JsonSchema, Schema};
use vmarea_conform::report::Report as Conformance;
use vmarea_experiments::{brk, calls, experiment, fault, layout, lookup};
use vmarea_terminal::schema::{of, titled};

/// Returns the name of each command that has `--json`, such as `bench cache`, with its schema.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    let all = vec![
        ("bench brk", of_bench::<brk::Report>()),
        ("bench cache", of_bench::<bench::cache::Tables>()),
        ("bench calls", of_bench::<calls::Report>()),
        ("bench fault", of_bench::<fault::Report>()),
        ("bench layout", of_bench::<layout::Report>()),
        ("bench lookup", of_bench::<lookup::Report>()),
        ("bench spacing", of_bench::<bench::spacing::Tables>()),
        ("conform", of::<Conformance>()),
        ("experiment", of::<experiment::Document>()),
        ("graph", of::<graph::Report>()),
    ];
    titled("vmarea-lab", all)
}

/// Returns the schema of a benchmark's result, described as the result and not as its envelope.
fn of_bench<T: JsonSchema>() -> Schema {
    let mut schema = of::<bench::Document<T>>();
    if let Some(description) = of::<T>().get("description") {
        schema.insert("description".to_owned(), description.clone());
    }
    schema
}
