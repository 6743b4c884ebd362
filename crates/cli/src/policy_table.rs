//! The result of `run` and `replay` as text: a table of policies, and the counts of the comparison.

use crate::console::{address_spaces, count};
use crate::table::ruled;
use comfy_table::{CellAlignment, Table};
use std::collections::BTreeMap;
use std::io::{self, Write};
use vmarea_replay::{PolicyName, PolicyReport, Report};

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

/// A policy without one of its switches: the policy, the switch, and what remains.
pub type Without = (&'static str, &'static str, PolicyName);

/// Writes the complete result as text. `without` lists policies of the report that leave a switch
/// out.
///
/// # Errors
/// Fails if `out` cannot be written.
pub fn write(out: &mut dyn Write, report: &Report, without: &[Without]) -> io::Result<()> {
    let whole: Vec<_> = report
        .policies
        .iter()
        .filter(|(name, _)| {
            without
                .iter()
                .all(|(.., rest)| rest.policy().name != **name)
        })
        .collect();
    writeln!(out, "{}", policies(&whole))?;
    gains(out, report, without)?;
    let counted: Vec<_> = whole.iter().map(|(name, _)| name.as_str()).collect();
    counterfactual(out, report, &counted)?;
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
fn counterfactual(out: &mut dyn Write, report: &Report, counted: &[&str]) -> io::Result<()> {
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
        if !counted.contains(&name.as_str()) {
            continue;
        }
        writeln!(
            out,
            "  {name} would make {} ({})",
            count(made.merged),
            share(made.merged, refused)
        )?;
    }
    Ok(())
}

/// Writes how many VMAs each switch saves: the difference that its absence makes.
fn gains(out: &mut dyn Write, report: &Report, without: &[Without]) -> io::Result<()> {
    if without.is_empty() {
        return Ok(());
    }
    let headings = [
        "switch",
        "VMAs saved\nat the peak",
        "VMAs saved\nat exit",
        "of policy",
    ];
    let mut table = ruled(headings, 1);
    for (policy, switch, rest) in without {
        let reports = [*policy, rest.policy().name].map(|name| report.policies.get(name));
        let [Some(with), Some(rest)] = reports else {
            continue;
        };
        let saved = |with: u64, rest: u64| format!("{:+}", rest as i64 - with as i64);
        table.add_row([
            (*switch).to_owned(),
            saved(with.vmas_peak, rest.vmas_peak),
            saved(with.vmas_exit, rest.vmas_exit),
            (*policy).to_owned(),
        ]);
    }
    writeln!(out, "{table}")?;
    writeln!(
        out,
        "each switch is left out alone: two that need each other each save what both save together,\n\
         and two that can replace each other each save 0"
    )
}

/// Returns the table of policies. Policies with equal counts share a row.
fn policies(policies: &[(&String, &PolicyReport)]) -> Table {
    let mut table = ruled(HEADINGS, 1);
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for (name, policy) in policies {
        let cells = row(policy);
        match rows.iter_mut().find(|(_, known)| *known == cells) {
            Some((names, _)) => *names += &format!("\n{name}"),
            None => rows.push(((*name).clone(), cells)),
        }
    }
    for (names, cells) in rows {
        table.add_row([names].into_iter().chain(cells));
    }
    for (heading, column) in HEADINGS.iter().zip(table.column_iter_mut()) {
        if ["merges", "refusals"].contains(heading) {
            column.set_cell_alignment(CellAlignment::Left);
        }
    }
    table
}

fn row(policy: &PolicyReport) -> Vec<String> {
    vec![
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
    fn policies_with_equal_counts_share_a_row() {
        let splits = |splits| PolicyReport {
            splits,
            ..PolicyReport::default()
        };
        let names = ["linux", "thesis", "vmarea"].map(str::to_owned);
        let reports = [splits(1), splits(2), splits(1)];
        let all: Vec<_> = names.iter().zip(&reports).collect();
        let table = policies(&all);
        assert_eq!(table.row_iter().count(), 2);
        let text = table.to_string();
        let line = |name: &str| text.lines().position(|line| line.contains(name)).unwrap();
        assert_eq!(line("vmarea"), line("linux") + 1, "{text}");
    }

    #[test]
    fn a_share_of_nothing_is_no_number() {
        assert_eq!(share(0, 0), "-");
        assert_eq!(share(1, 3), "33.3 %");
    }
}
