//! The result of `run` and `replay` as text: a table of policies, and the counts of the comparison.

use crate::console::{address_spaces, count};
use crate::table::ruled;
use comfy_table::{CellAlignment, Table};
use std::collections::BTreeMap;
use std::io::{self, Write};
use vmarea_replay::{PolicyReport, Report};

const HEADINGS: [&str; 8] = [
    "policy",
    "VMAs\npeak",
    "VMAs\nexit",
    "merges",
    "refusals",
    "splits",
    "lookups",
    "last-used\nhits",
];

/// Writes the complete result as text.
///
/// # Errors
/// Fails if `out` cannot be written.
pub fn write(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    writeln!(out, "{}", policies(report))?;
    counterfactual(out, report)?;
    let verify = &report.verify;
    writeln!(
        out,
        "{} events: {} calls, {} faults, {} lost, {} opaque",
        count(report.events),
        count(report.calls),
        count(report.faults),
        count(report.lost),
        count(report.opaque)
    )?;
    writeln!(
        out,
        "{} compared: {} VMAs and {} results, {} undecided, {} resyncs",
        address_spaces(verify.processes),
        count(verify.vmas_compared),
        count(verify.results_compared),
        count(verify.undecided),
        count(verify.resyncs)
    )?;
    if verify.vmas_compared + verify.results_compared == 0 {
        writeln!(
            out,
            "nothing was compared: the trace contains no initial list of mappings"
        )
    } else if verify.differences == 0 {
        writeln!(out, "{GOOD}equal to the kernel{PLAIN}: 0 differences")
    } else {
        differences(out, report)
    }
}

/// Writes the differences by cause, in the order of their first occurrence.
fn differences(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    for group in &report.differences {
        writeln!(out, "{} × {}", count(group.count), group.cause)?;
        for difference in &group.shown {
            writeln!(out, "  {}", difference.to_string().replace('\n', "\n  "))?;
        }
    }
    let all = report.verify.differences;
    write!(out, "{BAD}{} difference{}{PLAIN}", count(all), plural(all))?;
    let causes = report.differences.len() as u64;
    write!(
        out,
        " from the kernel, with {} cause{}",
        count(causes),
        plural(causes)
    )?;
    let shown: usize = report.differences.iter().map(|g| g.shown.len()).sum();
    if (shown as u64) < all {
        write!(out, "; --differences all shows every one")?;
    }
    writeln!(out)
}

fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

// The output stream removes these escape sequences if colour is off.
const GOOD: &str = "\x1b[1;32m";
const BAD: &str = "\x1b[1;31m";
const PLAIN: &str = "\x1b[0m";

/// Writes how the other policies decide on merges that the kernel's rules refuse.
fn counterfactual(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let asked = &report.counterfactual;
    let refused = asked.refused_total();
    if refused == 0 {
        return Ok(());
    }
    let reasons: Vec<_> = asked
        .refused
        .iter()
        .map(|(reason, n)| format!("{} {reason}", count(*n)))
        .collect();
    writeln!(
        out,
        "merges of anonymous memory that the kernel refused: {}",
        reasons.join(", ")
    )?;
    for (name, made) in &asked.policies {
        writeln!(
            out,
            "  {name} would make {} ({})",
            count(made.merged),
            share(made.merged, refused)
        )?;
    }
    Ok(())
}

fn policies(report: &Report) -> Table {
    let mut table = ruled(HEADINGS, 1);
    for (name, policy) in &report.policies {
        table.add_row(row(name, policy));
    }
    for (heading, column) in HEADINGS.iter().zip(table.column_iter_mut()) {
        if ["merges", "refusals"].contains(heading) {
            column.set_cell_alignment(CellAlignment::Left);
        }
    }
    table
}

fn row(name: &str, policy: &PolicyReport) -> Vec<String> {
    vec![
        name.to_owned(),
        count(policy.vmas_peak),
        count(policy.vmas_exit),
        by_kind(&policy.merges),
        by_kind(&policy.refusals),
        count(policy.splits),
        count(policy.lookups),
        share(policy.last_used_hits, policy.lookups),
    ]
}

/// Formats one line per kind that occurred, the most frequent first.
fn by_kind(counts: &BTreeMap<String, u64>) -> String {
    let mut kinds: Vec<_> = counts.iter().filter(|(_, n)| **n > 0).collect();
    kinds.sort_by_key(|(name, n)| (std::cmp::Reverse(**n), *name));
    if kinds.is_empty() {
        return "0".to_owned();
    }
    let width = count(*kinds[0].1).len();
    let lines: Vec<_> = kinds
        .iter()
        .map(|(name, n)| format!("{:>width$} {name}", count(**n)))
        .collect();
    lines.join("\n")
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_listed_by_how_often_they_occurred() {
        let counts = [("flags", 2), ("file", 1200), ("gap", 0), ("anon_vma", 2)];
        let counts = counts.map(|(name, n)| (name.to_owned(), n)).into();
        assert_eq!(by_kind(&counts), "1,200 file\n    2 anon_vma\n    2 flags");
        assert_eq!(by_kind(&BTreeMap::new()), "0");
    }

    #[test]
    fn a_share_of_nothing_is_no_number() {
        assert_eq!(share(0, 0), "-");
        assert_eq!(share(1, 3), "33.3 %");
    }
}
