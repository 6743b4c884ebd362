//! The spacing speed test in the thesis's layout (tables 4.2 and 4.3).

use super::Context;
use super::claim::{Bound, Claim};
use super::figure::{Figure, Published, Unit};
use super::idle::{Idle, Watch};
use super::report::{Line, Report, Table};
use crate::spacing::{self, AnonVmas, Setup};

/// A row in the thesis: seconds, merges of different anon_vmas, page-offset merges, failed merges.
struct Paper {
    who: &'static str,
    seconds: ([f64; 3], f64, f64),
    different: ([f64; 3], f64, f64),
    pgoff: ([f64; 3], f64, f64),
    failed: ([f64; 3], f64, f64),
}

/// Creates the cell for a count that was the same in all three runs.
const fn thrice(value: f64) -> ([f64; 3], f64, f64) {
    ([value; 3], value, value)
}

/// Rows of the table for mappings with one anon_vma, then of the table for different anon_vmas.
///
/// Each table contains the rows for the unpatched machines, then those for the patched machines.
static TABLES: [[[Paper; 2]; 2]; 2] = [
    [
        [
            Paper {
                who: "Apollo",
                seconds: ([5.51, 5.38, 5.50], 5.40, 5.53),
                different: thrice(0.0),
                pgoff: thrice(0.0),
                failed: thrice(40018.0),
            },
            Paper {
                who: "Orion",
                seconds: ([3.41, 3.36, 3.37], 3.36, 3.40),
                different: thrice(0.0),
                pgoff: thrice(0.0),
                failed: ([40018.0, 40024.0, 40022.0], 40019.0, 40024.0),
            },
        ],
        [
            Paper {
                who: "Apollo",
                seconds: ([2.57, 2.64, 2.65], 2.58, 2.66),
                different: thrice(0.0),
                pgoff: thrice(19989.0),
                failed: thrice(0.0),
            },
            Paper {
                who: "Orion",
                seconds: ([1.65, 1.66, 1.67], 1.65, 1.67),
                different: ([1.0, 0.0, 0.0], -0.20, 0.87),
                pgoff: ([19996.0, 19992.0, 19992.0], 19991.0, 19996.0),
                failed: ([1.0, 0.0, 0.0], -0.2, 0.9),
            },
        ],
    ],
    [
        [
            Paper {
                who: "Apollo",
                seconds: ([5.53, 5.52, 5.52], 5.52, 5.53),
                different: thrice(0.0),
                pgoff: thrice(0.0),
                failed: thrice(40018.0),
            },
            Paper {
                who: "Orion",
                seconds: ([3.44, 3.41, 3.49], 3.41, 3.48),
                different: thrice(0.0),
                pgoff: thrice(0.0),
                failed: ([40024.0, 40022.0, 40026.0], 40022.0, 40026.0),
            },
        ],
        [
            Paper {
                who: "Apollo",
                seconds: ([2.53, 2.52, 2.55], 2.52, 2.55),
                different: thrice(20000.0),
                pgoff: thrice(19989.0),
                failed: thrice(0.0),
            },
            Paper {
                who: "Orion",
                seconds: ([1.65, 1.65, 1.67], 1.65, 1.67),
                different: thrice(20000.0),
                pgoff: ([19995.0, 19989.0, 19994.0], 19990.0, 19996.0),
                failed: thrice(20000.0),
            },
        ],
    ],
];

impl Paper {
    fn line(&'static self) -> Line<Published> {
        let cell = |(runs, low, high): &'static ([f64; 3], f64, f64), unit| {
            Published::between(runs, *low, *high, unit)
        };
        let cells = [
            cell(&self.seconds, Unit::Seconds),
            cell(&self.different, Unit::Count),
            cell(&self.pgoff, Unit::Count),
            cell(&self.failed, Unit::Count),
        ];
        Line::full(self.who, cells)
    }
}

/// Number of mappings in the thesis's tables and in ours.
const MAPPINGS: u64 = 20_000;

/// Runs the experiment.
pub(super) fn run(context: &Context<'_>, report: &mut Report) {
    report.substitute(
        "patched kernels: the core under the policy thesis; unpatched: the core under linux-5.18, \
         and the running kernel (whose time has a trap for each move)",
    );
    let rounds = if context.quick { 5 } else { 11 };
    if context.quick {
        report.shorten(format!("{rounds} rounds instead of 11"));
    }
    let mut table = table();
    for (av, papers) in [AnonVmas::Same, AnonVmas::Different]
        .into_iter()
        .zip(&TABLES)
    {
        let setup = Setup {
            mappings: MAPPINGS,
            pages: 1,
            anon_vmas: av,
        };
        let watch = Watch::begin();
        let measured = spacing::run(&setup, rounds).map_err(|error| error.to_string());
        let idle = watch.end();
        if let Some(measured) = report.keep("spacing", measured) {
            rows(av, papers, &measured, &mut table, report);
            report.claims.extend(claims(av, &measured.rows, idle));
        }
    }
    report.tables.insert(0, table);
}

fn table() -> Table {
    let columns = ["time", "diff m.", "pgoff m.", "failed m."];
    let title = "Spacing speed test with 20,000 mappings";
    let mut table = Table::new(title, "tables 4.2 and 4.3, section 4.3.2", &columns);
    table.with_means = true;
    table.explain([
        "20,000 private anonymous mappings of one written page each lie apart by the size of a page. \
         mremap moves each but the first to the end of the mapping before it. The thesis patches \
         Linux 5.18 so that the moved mapping then merges with that one; unpatched kernels keep all \
         of them. Apollo and Orion are the thesis's machines.",
        "one anon_vma: the mappings were cut out of one mapping and their pages belong to one \
         anon_vma (the list by which the kernel finds the mappings of a page); only the page offset \
         keeps them apart. own anon_vmas: each mapping was created by itself, so both keep them apart.",
        "time: wall-clock time of all moves; the figures of the thesis are 95 % intervals of the \
         mean, below ours are the interval of the median and that of the mean. Ours is a program's \
         time in the core, without traps, so compare the time with merges to the time without them, \
         not with the thesis's.",
        "diff m.: number of merges of two mappings with different anon_vmas. pgoff m.: number of \
         moved mappings that merged because their pages took the page offset of the new address. \
         19,999 merges make one mapping of 20,000. The thesis counts all merges in its trace, which \
         makes 20,000 and 19,989 to 19,996 of them and does not say why they differ.",
        "failed m.: number of attempts to merge that the anon_vma or the page offset made fail. The \
         core counts one for each neighbour of a mapping's new place: the mapping before it, and in \
         the first move also the one that is moved. The thesis's trace has about two for each move. \
         The kernel row has no counts: nothing in a kernel counts merges.",
    ]);
    table
}

fn line(row: &spacing::Row) -> Line<Figure> {
    let count = |n: Option<u64>| n.map(|n| Figure::exact(n as f64, Unit::Count));
    Line {
        who: row.who.clone(),
        cells: vec![
            Figure::of_runs(&row.rounds, Unit::Seconds),
            count(row.different),
            count(row.page_offsets),
            count(row.failed),
        ],
    }
}

fn rows(
    av: AnonVmas,
    [unpatched, patched]: &'static [[Paper; 2]; 2],
    measured: &spacing::Report,
    table: &mut Table,
    report: &mut Report,
) {
    if let Some(why) = &measured.without_kernel {
        report.missing.push(format!("spacing on the kernel: {why}"));
    }
    let name = name(av);
    let ours = |names: [&str; 2]| {
        let rows = measured.rows.iter();
        rows.filter(|row| names.contains(&row.who.as_str()))
            .map(line)
            .collect()
    };
    let paper = |papers: &'static [Paper; 2]| papers.iter().map(Paper::line).collect();
    table.row(
        format!("{name}, unpatched"),
        paper(unpatched),
        ours(["linux-5.18", "kernel"]),
    );
    table.row(
        format!("{name}, patched"),
        paper(patched),
        ours(["thesis", "vmarea"]),
    );
}

fn name(av: AnonVmas) -> &'static str {
    match av {
        AnonVmas::Same => "one anon_vma",
        AnonVmas::Different => "own anon_vmas",
    }
}

fn claims(av: AnonVmas, rows: &[spacing::Row], idle: Idle) -> Vec<Claim> {
    let name = name(av);
    let row = |who: &str| rows.iter().find(|row| row.who == who);
    let (Some(base), Some(thesis)) = (row("linux-5.18"), row("thesis")) else {
        return Vec::new();
    };
    let mut claims = Vec::new();
    if let Some(ratio) = Figure::of_pairs(&thesis.rounds, &base.rounds) {
        for (text, bound) in [
            ("moves with merges take less time than without", 1.0),
            ("moves with merges take half the time", 0.49),
        ] {
            claims.push(Claim::by_clock(
                format!("{name}: {text}"),
                "the patched kernel takes 0.46 to 0.49 of the unpatched kernel's time",
                ("time under thesis / time under linux-5.18", &ratio),
                Bound::AtMost(bound),
                idle,
            ));
        }
    }
    let paper = match av {
        AnonVmas::Same => "19,989 to 19,996 moves merge, by page offset",
        AnonVmas::Different => {
            "20,000 merges of different anon_vmas, 19,989 to 19,996 by page offset"
        }
    };
    let count = |n: u64| Figure::exact(n as f64, Unit::Count);
    let merges = |n: Option<u64>| count(n.unwrap_or(0));
    let what = format!(
        "mappings at the end under thesis, after {} merges by page offset and {} of different \
         anon_vmas",
        merges(thesis.page_offsets),
        merges(thesis.different)
    );
    claims.push(Claim::by(
        format!("{name}: the patches merge all mappings into one"),
        paper,
        (&what, &count(thesis.vmas)),
        Bound::Exactly(1.0),
    ));
    claims.push(Claim::by(
        format!("{name}: the unpatched kernel merges none"),
        "0 merges",
        ("mappings at the end under linux-5.18", &count(base.vmas)),
        Bound::Exactly(MAPPINGS as f64),
    ));
    claims
}

/// Claims decided by figures that contradict them.
#[cfg(test)]
pub(super) fn refuted() -> Vec<Claim> {
    let row = |who: &str, time: f64, vmas: u64| spacing::Row {
        who: who.to_owned(),
        seconds: time,
        rounds: vec![time, 1.1 * time, 1.2 * time],
        ratio: None,
        different: Some(0),
        page_offsets: Some(MAPPINGS - vmas),
        failed: Some(0),
        outcomes: Vec::new(),
        vmas,
    };
    let rows = [row("linux-5.18", 1.0, 19_999), row("thesis", 1.5, 2)];
    let of = |av| claims(av, &rows, Idle(Some(0.0)));
    [AnonVmas::Same, AnonVmas::Different]
        .into_iter()
        .flat_map(of)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::figure::thesis_interval;

    /// The intervals in the thesis can be computed from the runs that the thesis lists.
    #[test]
    fn the_tables_are_those_of_the_thesis() {
        for paper in TABLES.iter().flatten().flatten() {
            let (runs, low, high) = paper.seconds;
            let interval = thesis_interval(&runs);
            assert!(
                (interval.low - low).abs() < 0.006,
                "{}: {interval:?}",
                paper.who
            );
            assert!(
                (interval.high - high).abs() < 0.006,
                "{}: {interval:?}",
                paper.who
            );
        }
    }
}
