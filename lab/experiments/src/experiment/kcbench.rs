//! A build of Linux, recorded and replayed (tables 4.8 to 4.11 of the thesis).

use super::figure::{Figure, Published, Unit};
use super::merges::{self, Counts, Run};
use super::report::{Line, Report, Table};
use super::{Context, source};
use std::path::Path;

/// Times in table 4.8: threads, machine, and the intervals of the unpatched and patched kernels.
const TIMES: [(u32, &str, [f64; 2], [f64; 2]); 7] = [
    (2, "Apollo", [1080.27, 1080.87], [1089.85, 1090.52]),
    (4, "Apollo", [911.44, 912.02], [919.98, 920.78]),
    (6, "Apollo", [913.30, 918.61], [927.86, 928.48]),
    (6, "Orion", [180.46, 181.23], [183.63, 183.94]),
    (9, "Orion", [156.78, 157.47], [158.85, 158.95]),
    (12, "Orion", [137.90, 138.65], [139.33, 139.54]),
    (15, "Orion", [138.88, 139.33], [140.22, 140.41]),
];
/// Intervals without the patch (tables 4.9 and 4.10): diff m., pgoff m., expand and failed m.
const UNPATCHED: [(&str, [[f64; 2]; 4]); 2] = [
    ("Apollo", [[0.0; 2], [0.0; 2], [0.0; 2], [20776.0, 20777.0]]),
    ("Orion", [[0.0; 2], [0.0; 2], [0.0; 2], [25019.0, 25030.0]]),
];
/// Intervals with the patch (tables 4.9 and 4.10), in the same columns as [`UNPATCHED`].
const PATCHED: [(&str, [[f64; 2]; 4]); 2] = [
    ("Apollo", [[19964.0; 2], [245.0; 2], [7.0; 2], [98.0; 2]]),
    (
        "Orion",
        [[23896.0, 23900.0], [344.0, 348.0], [9.0; 2], [175.0, 179.0]],
    ),
];

/// Runs the experiment.
pub(super) fn run(context: &Context<'_>, report: &mut Report) {
    merges::substitutions(report);
    report.substitute(
        "kcbench on v5.18: vmlinux of Debian's linux-source, tinyconfig, 1, 2 and 4 jobs; a patched \
         kernel's time cannot be measured, its cost is counted in instructions",
    );
    if context.quick {
        report.shorten("building all of Linux but mm/; builds with 1 and 4 jobs");
        report.shorten("the time of the build without recording");
        merges::shortened(report);
    }
    let Some(tree) = report.keep("kernel build", source::linux(context)) else {
        return;
    };
    let jobs: &[u32] = if context.quick { &[2] } else { &[1, 2, 4] };
    let mut merged = merge_table();
    let mut times = Table::new("Time of the build", "table 4.8", &["unpatched", "patched"]);
    times.explain([
        "Wall-clock time of one build of Linux, by the number of threads or jobs. unpatched and \
         patched: Linux 5.18 without and with the thesis's patches; the intervals are the thesis's. \
         Rows of ours: kernel is a build on the running kernel, recorded is a build while vmarea \
         records it there. There is no patched kernel here, and the configuration is smaller than the \
         thesis's, so our times cannot be compared with the thesis's and decide no claim. They show \
         the length of the workload and what recording adds; other programs on the machine disturb \
         both.",
    ]);
    for (threads, who, unpatched, patched) in TIMES {
        let cells = [unpatched, patched]
            .map(|[low, high]| Published::between(&[], low, high, Unit::Seconds));
        times.row(
            format!("{threads} threads"),
            vec![Line::full(who, cells)],
            Vec::new(),
        );
    }
    for &jobs in jobs {
        let name = build(jobs);
        let runs = builds(context, &tree, jobs, &mut times);
        if let Some(runs) = report.keep(&name, runs) {
            rows(jobs, &runs, &mut merged);
            merges::claims(&name, &runs, report);
            if jobs == 2 {
                let cost = merges::cost(context, &name, &runs[0], report);
                report.keep(&format!("cost of merging, {name}"), cost);
            }
        }
    }
    report.tables.insert(0, merged);
    report.tables.insert(0, times);
}

/// Returns the name of the build with this number of jobs, in claims.
pub(super) fn build(jobs: u32) -> String {
    format!("build with {}", plural(jobs))
}

fn plural(jobs: u32) -> String {
    format!("{jobs} job{}", if jobs == 1 { "" } else { "s" })
}

fn merge_table() -> Table {
    let columns = ["diff m.", "pgoff m.", "expand", "failed m."];
    let mut table = Table::new("Merges of a kernel build", "tables 4.9 and 4.10", &columns);
    merges::explain(&mut table, None);
    table.explain([
        "expand: number of merges with the following mapping after mremap had grown a mapping in \
         place up to it.",
    ]);
    table.with_means = true;
    for (label, rows) in [("unpatched", UNPATCHED), ("patched", PATCHED)] {
        let line = |(who, cells): (&str, [[f64; 2]; 4])| {
            let cell = |[low, high]: [f64; 2]| Published::between(&[], low, high, Unit::Count);
            Line::full(who, cells.map(cell))
        };
        table.row(label, rows.map(line).into(), Vec::new());
    }
    table
}

fn rows(jobs: u32, runs: &[Run], table: &mut Table) {
    let columns: [fn(&Counts) -> u64; 4] =
        [|c| c.different, |c| c.pgoff, |c| c.expand, |c| c.failed];
    let label = format!("here, {}", plural(jobs));
    let unpatched = merges::line("kernel", runs, Run::unpatched, &columns);
    let policies = runs.first().map_or(&[][..], |run| &run.policies);
    let patched = policies
        .iter()
        .map(|policy| merges::line(policy, runs, |run| run.patched(policy), &columns));
    let lines = [unpatched].into_iter().chain(patched).collect();
    table.row(label, Vec::new(), lines);
}

fn builds(
    context: &Context<'_>,
    tree: &Path,
    jobs: u32,
    times: &mut Table,
) -> Result<Vec<Run>, String> {
    source::room(context, 2)?;
    let out = context.cache.join("linux-kcbench");
    let make = format!("make -s -C '{}' O='{}'", tree.display(), out.display());
    let prepare = if context.quick {
        format!(
            "test -e '{0}/include/generated/autoconf.h' || {{ mkdir -p '{0}'; {make} tinyconfig prepare; }}
             find '{0}/mm' -name '*.o' -delete 2>/dev/null || true",
            out.display()
        )
    } else {
        format!(
            "rm -rf '{0}'; mkdir -p '{0}'; {make} tinyconfig",
            out.display()
        )
    };
    let target = if context.quick { "mm/" } else { "vmlinux" };
    let script = format!("{make} -j{jobs} {target}");
    let name = format!("the build with {}", plural(jobs));
    let (mut runs, mut natively) = (Vec::new(), Vec::new());
    for _ in 0..context.runs {
        source::shell("preparing the build", &context.cache, &prepare)?;
        runs.push(merges::run(context, &name, &script)?);
        if !context.quick {
            source::shell("preparing the build", &context.cache, &prepare)?;
            natively.push(merges::native(context, &name, &script)?);
        }
    }
    let recorded: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
    let line = |who: &str, runs: &[f64]| Line {
        who: who.to_owned(),
        cells: vec![Figure::of_runs(runs, Unit::Seconds), None],
    };
    let mut lines = vec![line("recorded", &recorded)];
    if !natively.is_empty() {
        lines.insert(0, line("kernel", &natively));
    }
    times.row(format!("here, {}", plural(jobs)), Vec::new(), lines);
    Ok(runs)
}
