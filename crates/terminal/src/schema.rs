//! JSON schemas of the results that a program writes with `--json`.
//!
//! A schema is derived from the type that is written, so it cannot differ from it, and its
//! descriptions are the documentation of this type. It permits only the listed fields. This module
//! exists only with the feature `schema`: a program itself needs no schema.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;
use std::io;
use std::path::Path;

/// Returns the schema of a type as it is written, not as it could be read.
pub fn of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings.with_transform(RecursiveTransform(close));
    let settings = settings.with_transform(RecursiveTransform(describe));
    settings.into_generator().into_root_schema_for::<T>()
}

/// Gives each schema its title; `program` and the name of the schema are the command.
pub fn titled<'a>(program: &str, mut all: Vec<(&'a str, Schema)>) -> Vec<(&'a str, Schema)> {
    for (command, schema) in &mut all {
        let title = format!("{program} {command} --json");
        schema.insert("title".to_owned(), title.into());
    }
    all
}

/// Writes one file for each schema: `explain.json`, `show-maps.json`, and so on.
///
/// # Errors
/// Fails if a file cannot be written.
pub fn write(folder: &Path, all: Vec<(&str, Schema)>) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (command, schema) in all {
        let text = serde_json::to_string_pretty(&schema)?;
        let name = format!("{}.json", command.replace(' ', "-"));
        std::fs::write(folder.join(name), text + "\n")?;
    }
    Ok(())
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
