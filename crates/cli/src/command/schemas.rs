//! JSON schemas of the results that `--json` writes, one for each command.
//!
//! The example `generate` writes them to `docs/schemas`, and `tests/schemas.rs` checks real output.

use super::{compare, merge, show, trace};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;
use vmarea_explain::Report as Explanation;
use vmarea_explain::top::Look;
use vmarea_replay::Report as Replay;
use vmarea_report::{anatomy, maps};
use vmarea_terminal::schema::{of, titled};
use vmarea_trace::event::{Event, Header};

/// Returns the name of each command that has `--json`, such as `show maps`, with its schema.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    let all = vec![
        ("compare", of::<compare::Document>()),
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
    titled("vmarea", all)
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
