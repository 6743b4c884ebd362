//! The result of `run` and `replay` as text: a table of policies, and the counts of the comparison.

use crate::failed_calls;
use comfy_table::{CellAlignment, Table};
use std::collections::BTreeMap;
use std::io::{self, Write};
use vmarea_explain::text::{count, plural};
use vmarea_replay::{PolicyName, PolicyReport, Report, Unsettled};
use vmarea_terminal::fit;
use vmarea_terminal::table::ruled;

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

/// Smallest width in columns at which a row has all columns, with the merges and refusals by kind.
/// A narrower table has the first columns with the sums of the kinds, and the rest is below it.
const WHOLE: usize = 104;
/// Number of columns of a narrower table.
const FIRST: usize = 5;

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
    let rows = rows(&whole);
    if fit::width(&io::stdout()).is_none_or(|width| width >= WHOLE) {
        let table = policies::<{ HEADINGS.len() }>(&rows, by_kind);
        writeln!(out, "{table}")?;
    } else {
        let sum = |kinds: &BTreeMap<_, u64>| count(kinds.values().sum());
        writeln!(out, "{}", policies::<FIRST>(&rows, sum))?;
        remainders(out, &rows)?;
    }
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
        plural(verify.processes, "address space"),
        count(verify.vmas_compared),
        count(verify.results_compared),
        count(verify.undecided),
        count(verify.resyncs)
    )?;
    if !verify.reasons.is_empty() {
        writeln!(out, "{}", reasons(&verify.reasons))?;
    }
    failed_calls::write(out, &report.failed_calls)?;
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

/// Returns a table of the reasons why results are undecided or lists were imported again.
fn reasons(reasons: &BTreeMap<String, Unsettled>) -> Table {
    let mut table = ruled(["reason", "undecided", "resyncs"], 1);
    for (reason, unsettled) in reasons {
        let counts = [unsettled.undecided, unsettled.resyncs].map(count);
        table.add_row([reason.clone()].into_iter().chain(counts));
    }
    table
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
    write!(out, "{BAD}{}{PLAIN}", plural(all, "difference"))?;
    let causes = plural(report.differences.len() as u64, "cause");
    write!(out, " from the kernel, with {causes}")?;
    let shown: usize = report.differences.iter().map(|g| g.shown.len()).sum();
    if (shown as u64) < all {
        write!(out, "; --differences all shows every one")?;
    }
    writeln!(out)
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

/// A row of the table: the names of policies with equal counts, and one of them.
type Row<'a> = (Vec<&'a str>, &'a PolicyReport);

/// Returns the rows of the table. Policies with equal counts share a row.
fn rows<'a>(policies: &[(&'a String, &'a PolicyReport)]) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (name, policy) in policies {
        let cells = cells(policy, by_kind);
        match rows
            .iter_mut()
            .find(|(_, of)| self::cells(of, by_kind) == cells)
        {
            Some((names, _)) => names.push(name),
            None => rows.push((vec![name], policy)),
        }
    }
    rows
}

/// Returns the first `N` columns of the table of policies; `kinds` formats the merges and refusals.
fn policies<const N: usize>(
    rows: &[Row<'_>],
    kinds: impl Fn(&BTreeMap<String, u64>) -> String,
) -> Table {
    let headings: [&str; N] = core::array::from_fn(|column| HEADINGS[column]);
    let mut table = ruled(headings, 1);
    for (names, policy) in rows {
        let cells = [names.join("\n")].into_iter().chain(cells(policy, &kinds));
        table.add_row(cells.take(N));
    }
    for (heading, column) in HEADINGS.iter().zip(table.column_iter_mut()) {
        if ["merges", "refusals"].contains(heading) {
            column.set_cell_alignment(CellAlignment::Left);
        }
    }
    table
}

fn cells(
    policy: &PolicyReport,
    kinds: impl Fn(&BTreeMap<String, u64>) -> String,
) -> [String; HEADINGS.len() - 1] {
    [
        count(policy.vmas_peak),
        count(policy.vmas_exit),
        kinds(&policy.merges),
        kinds(&policy.refusals),
        count(policy.splits),
        count(policy.lookups),
        share(policy.last_used_hits, policy.lookups),
    ]
}

/// Writes what a narrow table lacks: for each row, the merges and refusals by kind, and the last
/// columns.
fn remainders(out: &mut dyn Write, rows: &[Row<'_>]) -> io::Result<()> {
    for (names, policy) in rows {
        writeln!(out, "{}", names.join(", "))?;
        for (what, counts) in [("merges", &policy.merges), ("refusals", &policy.refusals)] {
            let kinds = by_kind(counts);
            // A line is not broken between a number and its kind.
            let whole = |line: &str| line.trim_start().replace(' ', "\u{a0}");
            let kinds: Vec<_> = kinds.lines().map(whole).collect();
            writeln!(out, "  {what}: {}", kinds.join(", "))?;
        }
        let [.., splits, lookups, hits] = cells(policy, by_kind);
        writeln!(
            out,
            "  splits: {splits}; lookups: {lookups}, of which last-used hits: {hits}"
        )?;
    }
    Ok(())
}

/// Formats one line per kind that occurred, the most frequent first.
fn by_kind(counts: &BTreeMap<String, u64>) -> String {
    let mut kinds: Vec<_> = counts.iter().filter(|(_, n)| **n > 0).collect();
    kinds.sort_unstable_by_key(|(name, n)| (std::cmp::Reverse(**n), *name));
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
        let rows = rows(&all);
        let table = policies::<{ HEADINGS.len() }>(&rows, by_kind);
        assert_eq!(table.row_iter().count(), 2);
        let text = table.to_string();
        let line = |name: &str| text.lines().position(|line| line.contains(name)).unwrap();
        assert_eq!(line("vmarea"), line("linux") + 1, "{text}");
    }

    #[test]
    fn the_lines_below_a_narrow_table_have_what_it_lacks() {
        let kinds_of = |kinds: &[(&str, u64)]| {
            let kinds = kinds.iter().map(|(name, n)| ((*name).to_owned(), *n));
            kinds.collect::<BTreeMap<_, _>>()
        };
        let policy = PolicyReport {
            merges: kinds_of(&[("extend_next", 1200), ("join_three", 7)]),
            lookups: 4,
            last_used_hits: 3,
            ..PolicyReport::default()
        };
        let mut text = Vec::new();
        remainders(&mut text, &[(vec!["linux", "vmarea"], &policy)]).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text,
            "linux, vmarea\n  merges: 1,200\u{a0}extend_next, 7\u{a0}join_three\n  refusals: 0\n  \
             splits: 0; lookups: 4, of which last-used hits: 75.0 %\n"
        );
    }

    #[test]
    fn undecided_results_and_resyncs_have_a_row_for_each_reason() {
        let unsettled = |undecided, resyncs| Unsettled { undecided, resyncs };
        let counts = [
            ("events were lost", unsettled(1200, 3)),
            ("a list", unsettled(0, 1)),
        ];
        let counts = counts.map(|(name, n)| (name.to_owned(), n)).into();
        let text = reasons(&counts).to_string();
        let rows: Vec<Vec<_>> = text
            .lines()
            .map(|line| {
                line.split("  ")
                    .map(str::trim)
                    .filter(|s| !s.is_empty())
                    .collect()
            })
            .filter(|row: &Vec<&str>| row.len() == 3)
            .collect();
        let expected = [
            ["reason", "undecided", "resyncs"],
            ["a list", "0", "1"],
            ["events were lost", "1,200", "3"],
        ];
        assert_eq!(rows, expected, "{text}");
    }

    #[test]
    fn a_share_of_nothing_is_no_number() {
        assert_eq!(share(0, 0), "-");
        assert_eq!(share(1, 3), "33.3 %");
    }
}
