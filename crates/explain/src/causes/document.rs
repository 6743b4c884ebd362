//! The table of known causes as a document in Markdown.

use super::entry::Entry;
use super::table::table;
use crate::text::count;
use std::fmt::Write;

const HEAD: &str = "\
# Causes known by name

`vmarea explain` recognises these causes of many mappings by patterns in the list of mappings. For
each cause it prints what it counted, advice, and the document on which the advice is based. The
patterns are tried in this order, and each mapping is counted for one cause only. No count is
promised for a setting: only a new run of the program shows its effect.

This file is generated from `crates/explain/src/causes/table.toml`; the test
`crates/explain/tests/causes` checks it, and writes it anew if `UPDATE_DOCS` is set. The lists of
mappings with which each pattern is tested are in `crates/explain/tests/causes/lists`.
";

/// Returns the document.
pub fn document() -> String {
    let mut text = HEAD.to_owned();
    for entry in table() {
        // Writing to a string cannot fail.
        let _ = write(&mut text, entry);
    }
    text
}

fn write(text: &mut String, entry: &Entry) -> std::fmt::Result {
    let pattern = &entry.pattern;
    writeln!(text, "\n## {}\n", entry.name)?;
    writeln!(text, "{}\n", entry.cause)?;
    writeln!(text, "- **Advice**: {}", entry.advice)?;
    writeln!(text, "- **Versions**: {}", entry.versions)?;
    for address in &entry.references {
        writeln!(text, "- **Reference**: <{address}>")?;
    }
    let several = |words: &[String]| {
        let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
        quoted.join(" or ").replace("``", "no name")
    };
    let mut members = Vec::new();
    for member in &pattern.sequence {
        let mut said = Vec::new();
        if !member.names.is_empty() {
            said.push(several(&member.names));
        }
        if !member.perms.is_empty() {
            said.push(several(&member.perms));
        }
        if let Some([least, most]) = member.kib {
            said.push(format!("{} to {} KiB", count(least), count(most)));
        }
        if let Some(flag) = &member.flag {
            said.push(format!("flag `{flag}`"));
        }
        if !member.reasons.is_empty() {
            said.push(format!("apart because of {}", several(&member.reasons)));
        }
        members.push(format!("({})", said.join(", ")));
    }
    write!(text, "- **Pattern**: {}", members.join(" followed by "))?;
    write!(text, "; at least {} mappings", count(pattern.at_least))?;
    if pattern.files > 0 {
        write!(text, " of {} files", count(pattern.files))?;
    }
    if pattern.equal_sizes {
        write!(text, ", half of them of one size")?;
    }
    if !pattern.needs.is_empty() {
        write!(text, "; the list contains {}", several(&pattern.needs))?;
    }
    writeln!(text)
}
