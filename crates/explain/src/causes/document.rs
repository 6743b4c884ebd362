//! The table of known causes as a document in Markdown.

use super::entry::Entry;
use super::pattern::{Member, Pattern};
use super::table::table;
use crate::text::count;
use std::fmt::Write;
use vmarea_process::maps::letters_of;

const HEAD: &str = "\
# Causes known by name

`vmarea explain` recognises these causes of many mappings by patterns in the list of mappings. For
each cause it prints what it counted, on which evidence, advice for the operator, who starts the program
and has its settings, and for its author, what the advice was measured to do, and the document on which
it is based. Advice about a library is told only if the library is loaded. A cause is told only if
everything that its pattern asks for is known to be true; of several, the one that explains the most
mappings comes first, and each mapping has one cause. A cause marked *generic* only describes how
mappings lie, and is looked for in what the others leave.

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
    writeln!(text, "\n## {}\n", entry.name)?;
    writeln!(text, "{}\n", entry.cause)?;
    for advice in &entry.advice {
        write!(text, "- **Advice for {}**", advice.to.words())?;
        if !advice.needs.is_empty() {
            write!(text, ", if the list contains {}", several(&advice.needs))?;
        }
        writeln!(text, ": {}", advice.text)?;
    }
    writeln!(text, "- **Measured**: {}", entry.measured)?;
    writeln!(text, "- **Versions**: {}", entry.versions)?;
    for address in &entry.references {
        writeln!(text, "- **Reference**: <{address}>")?;
    }
    if entry.generic {
        writeln!(text, "- **Generic**: yes")?;
    }
    for pattern in &entry.patterns {
        write_pattern(text, pattern)?;
    }
    Ok(())
}

fn write_pattern(text: &mut String, pattern: &Pattern) -> std::fmt::Result {
    let members: Vec<_> = pattern.sequence.iter().map(member).collect();
    write!(text, "- **Pattern**: {}", members.join(" followed by "))?;
    write!(text, "; at least {} mappings", count(pattern.at_least))?;
    if pattern.percent > 0 {
        write!(text, " and {} % of all", pattern.percent)?;
    }
    if pattern.files > 0 {
        write!(text, " of {} files", count(pattern.files))?;
    }
    if let Some(kib) = pattern.whole_kib {
        write!(text, ", {} KiB together", count(kib))?;
    }
    let conditions = &pattern.conditions;
    let said = [
        (pattern.usual_sizes, ", of few sizes"),
        (pattern.one_file, ", of one file"),
        (pattern.beside.is_some(), ", in addition to a pattern above"),
        (
            conditions.not_stacks,
            ", not of one size with a guard of one page",
        ),
        (
            conditions.malloc_heaps,
            "; each begins with the address of an arena of glibc's malloc",
        ),
        (conditions.not_running, "; only of a list or a recording"),
    ];
    for (_, words) in said.iter().filter(|(is_so, _)| *is_so) {
        text.push_str(words);
    }
    if let Some(threads) = conditions.threads {
        write!(text, "; {}, if a recording says how many", threads.words())?;
    }
    if let Some(stacks) = conditions.stacks {
        write!(text, "; stacks {}", stacks.words())?;
    }
    if let Some(value) = conditions.overcommit {
        write!(text, "; `vm.overcommit_memory` is {value}, or not known")?;
    }
    if let Some(part) = conditions.space {
        write!(text, "; {} of the address space is full", part.words())?;
    }
    if !conditions.needs.is_empty() {
        write!(text, "; the list contains {}", several(&conditions.needs))?;
    }
    if !conditions.absent.is_empty() {
        write!(
            text,
            "; the list does not contain {}",
            several(&conditions.absent)
        )?;
    }
    writeln!(text, ". Evidence: {}", pattern.because)
}

fn several(words: &[String]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(" or ").replace("``", "no name")
}

fn member(member: &Member) -> String {
    let mut said = Vec::new();
    if !member.names.is_empty() {
        said.push(several(&member.names));
    }
    if !member.perms.is_empty() {
        let perms: Vec<_> = member.perms.iter().map(ToString::to_string).collect();
        said.push(several(&perms));
    }
    if let Some([least, most]) = member.kib {
        said.push(format!("{} to {} KiB", count(least), count(most)));
    }
    if !member.differs.is_empty() {
        said.push(format!(
            "differs in flag {}",
            several(&[letters_of(member.differs)])
        ));
    }
    if !member.reasons.is_empty() {
        said.push(format!("apart because of {}", several(&member.reasons)));
    }
    if member.data {
        said.push("of a data file".to_owned());
    }
    if member.program {
        said.push("of a program or library".to_owned());
    }
    match member.deleted {
        Some(true) => said.push("deleted".to_owned()),
        Some(false) => said.push("not deleted".to_owned()),
        None => {}
    }
    match said.is_empty() {
        true => "(any)".to_owned(),
        false => format!("({})", said.join(", ")),
    }
}
