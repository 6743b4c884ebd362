//! JSON schemas of the results that `--json` writes, one for each command.
//!
//! The schemas are derived from the types that are written, so they cannot differ from them, and
//! the descriptions are the documentation of these types. A schema permits only the listed fields.
//! This module exists only with the feature `schema`: the program itself needs no schema. The
//! example `generate` writes them to `docs/schemas`, and `tests/schemas.rs` checks real output.

use super::{bench, compare, merge, show, trace};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;
use std::borrow::Cow;
use vmarea_conform::report::Report as Conformance;
use vmarea_experiments::{brk, calls, experiment, fault, layout, lookup};
use vmarea_explain::Report as Explanation;
use vmarea_explain::top::Look;
use vmarea_replay::Report as Replay;
use vmarea_report::{anatomy, maps};
use vmarea_trace::event::{Event, Header};

/// Returns the name of each command that has `--json`, such as `show maps`, with its schema.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    let mut all = vec![
        ("bench brk", of_bench::<brk::Report>()),
        ("bench cache", of_bench::<bench::cache::Tables>()),
        ("bench calls", of_bench::<calls::Report>()),
        ("bench fault", of_bench::<fault::Report>()),
        ("bench layout", of_bench::<layout::Report>()),
        ("bench lookup", of_bench::<lookup::Report>()),
        ("bench spacing", of_bench::<bench::spacing::Tables>()),
        ("compare", of::<compare::Document>()),
        ("conform", of::<Conformance>()),
        ("experiment", of::<experiment::Document>()),
        ("explain", of::<Explanation>()),
        ("merge", of::<merge::Said>()),
        ("replay", of::<Replay>()),
        ("run", of::<Replay>()),
        ("show anatomy", of::<anatomy::Anatomy>()),
        ("show diff", of::<show::diff::Document<'_>>()),
        ("show graph", of::<show::graph::Report>()),
        ("show maps", of::<maps::Maps>()),
        ("top", of::<Look>()),
        ("trace dump", of::<Line>()),
        ("trace info", of::<trace::info::Summary>()),
    ];
    for (command, schema) in &mut all {
        schema.insert(
            "title".to_owned(),
            format!("vmarea {command} --json").into(),
        );
    }
    all
}

/// Returns the schema of a type as it is written, not as it could be read.
fn of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings.with_transform(RecursiveTransform(close));
    let settings = settings.with_transform(RecursiveTransform(describe));
    settings.into_generator().into_root_schema_for::<T>()
}

/// Returns the schema of a benchmark's result, described as the result and not as its envelope.
fn of_bench<T: JsonSchema>() -> Schema {
    let mut schema = of::<bench::Document<T>>();
    if let Some(description) = of::<T>().get("description") {
        schema.insert("description".to_owned(), description.clone());
    }
    schema
}

/// Permits only the listed fields in an object that has a list of fields.
fn close(schema: &mut Schema) {
    let listed = schema.get("properties").is_some();
    if listed && schema.get("additionalProperties").is_none() {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
}

/// Turns a description from Rust's documentation to plain text.
fn describe(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = plain(text);
    }
}

/// Returns documentation with each paragraph on one line, without links to Rust items, and with
/// JSON's name for a missing value.
fn plain(documentation: &str) -> String {
    let mut text = documentation.replace("[`", "`");
    while let Some(at) = text.find("`](") {
        let length = text[at..].find(')').unwrap_or("`](".len() - 1);
        text.replace_range(at + 1..=at + length, "");
    }
    let text = text.replace("`]", "`").replace("`None`", "`null`");
    let paragraphs = text.split("\n\n").map(|lines| lines.replace('\n', " "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// A line of `trace dump`, which writes many documents.
struct Line;

impl JsonSchema for Line {
    fn schema_name() -> Cow<'static, str> {
        "Line".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "One line of the output: the first line is the header, each other line an event.",
            "anyOf": [
                generator.subschema_for::<Header>(),
                generator.subschema_for::<Event>(),
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn descriptions_have_no_links_and_no_lines() {
        let rust = "See [`a`](Self::a), [`B::c`] and\n`[heap]`, or `None`.\n\nAnd [`d`](x).";
        assert_eq!(
            plain(rust),
            "See `a`, `B::c` and `[heap]`, or `null`.\n\nAnd `d`."
        );
    }
}
