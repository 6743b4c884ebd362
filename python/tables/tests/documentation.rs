//! docs/tables.md lists the columns that the tables have.
//!
//! `VMAREA_RENEW=1 cargo test -p vmarea-tables --all-features` writes its lists anew.
#![cfg(feature = "explain")]
#![forbid(unsafe_code)]

use arrow_schema::Schema;
use std::fmt::Write;
use vmarea_tables::{DESCRIPTION, MAPPINGS, Table, mappings_schema, type_name};

const BEGIN: &str = "<!-- Generated from the schemas of the tables. -->\n";
const END: &str = "<!-- Generated up to here. -->\n";

fn section(name: &str, description: &str, schema: &Schema) -> String {
    let mut text =
        format!("## `{name}`\n\n{description}\n\n| column | type | meaning |\n|---|---|---|\n");
    for field in schema.fields() {
        let null = if field.is_nullable() {
            ", may be null"
        } else {
            ""
        };
        let meaning = field.metadata()[DESCRIPTION].replace('|', "\\|");
        let kind = type_name(field.data_type());
        writeln!(text, "| `{}` | {kind}{null} | {meaning} |", field.name()).unwrap();
    }
    text + "\n"
}

#[test]
fn the_columns_are_documented() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tables.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the mark is there");
    let (_, after) = rest.split_once(END).expect("the second mark is there");
    let tables =
        Table::ALL.map(|table| section(table.name(), table.description(), &table.schema()));
    let mappings = section("mappings", MAPPINGS, &mappings_schema());
    let whole = format!("{before}{BEGIN}\n{}{mappings}{END}{after}", tables.concat());
    if std::env::var_os("VMAREA_RENEW").is_some() {
        std::fs::write(&path, &whole).unwrap();
    }
    assert!(
        whole == page || std::env::var_os("VMAREA_RENEW").is_some(),
        "docs/tables.md is not current: run this test with VMAREA_RENEW=1"
    );
}
