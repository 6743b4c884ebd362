//! jemalloc's own tests, recorded and replayed (tables 4.4 and 4.5 of the thesis).

use super::figure::{Figure, Published, Unit};
use super::merges::{self, Counts, Run};
use super::report::{Line, Report, Table};
use super::{Context, source};

/// A row of the thesis: test, machine, and the intervals of time, diff m., pgoff m. and failed m.
/// (merges of different anon_vmas, page-offset merges and failed merges).
type Paper = (&'static str, &'static str, [[f64; 2]; 4]);

const UNPATCHED: [Paper; 8] = [
    (
        "unit",
        "Apollo",
        [[238.4, 238.9], [0.0; 2], [0.0; 2], [460.0; 2]],
    ),
    (
        "unit",
        "Orion",
        [[129.9, 130.6], [0.0; 2], [0.0; 2], [1284.0, 1445.0]],
    ),
    (
        "integ.",
        "Apollo",
        [[114.0, 114.4], [0.0; 2], [0.0; 2], [310.0; 2]],
    ),
    (
        "integ.",
        "Orion",
        [[61.2, 61.5], [0.0; 2], [0.0; 2], [631.0, 683.0]],
    ),
    (
        "analyze",
        "Apollo",
        [[107.4, 107.6], [0.0; 2], [0.0; 2], [274.0; 2]],
    ),
    (
        "analyze",
        "Orion",
        [[57.3, 58.0], [0.0; 2], [0.0; 2], [626.0, 664.0]],
    ),
    (
        "stress",
        "Apollo",
        [[212.5, 213.0], [0.0; 2], [0.0; 2], [530.0, 531.0]],
    ),
    (
        "stress",
        "Orion",
        [[113.8, 114.9], [0.0; 2], [0.0; 2], [1267.0, 1308.0]],
    ),
];
const PATCHED: [Paper; 8] = [
    (
        "unit",
        "Apollo",
        [[239.1, 239.9], [460.0; 2], [0.0; 2], [0.0; 2]],
    ),
    (
        "unit",
        "Orion",
        [[131.2, 131.5], [487.0, 497.0], [347.0, 431.0], [66.0, 73.0]],
    ),
    (
        "integ.",
        "Apollo",
        [[114.5, 114.9], [310.0; 2], [0.0; 2], [0.0; 2]],
    ),
    (
        "integ.",
        "Orion",
        [[61.6, 62.3], [317.0, 322.0], [152.0, 178.0], [28.0, 34.0]],
    ),
    (
        "analyze",
        "Apollo",
        [[107.7, 107.8], [274.0; 2], [0.0; 2], [0.0; 2]],
    ),
    (
        "analyze",
        "Orion",
        [[58.1, 58.5], [275.0, 293.0], [156.0, 180.0], [22.0, 27.0]],
    ),
    (
        "stress",
        "Apollo",
        [[213.4, 213.9], [530.0; 2], [0.0; 2], [0.0; 2]],
    ),
    (
        "stress",
        "Orion",
        [[115.5, 115.9], [546.0, 562.0], [298.0, 358.0], [37.0, 59.0]],
    ),
];

/// The tests that are built and run with `--quick`.
const QUICK: [&str; 8] = [
    "allocated",
    "extent",
    "malloc",
    "MALLOCX_ARENA",
    "overflow",
    "slab_sizes",
    "thread_arena",
    "thread_tcache_enabled",
];

/// Runs the experiment.
pub(super) fn run(context: &Context<'_>, report: &mut Report) {
    merges::substitutions(report);
    report.substitute(
        "jemalloc 5.3.0 from Debian's source: the library and its integration tests are built and \
         run, because most failed merges are the compiler's; unit, analyze and stress are left to \
         the thesis",
    );
    if context.quick {
        report.shorten("building the library and the tests' common part: done beforehand");
        report.shorten(format!(
            "all integration tests but {} of 15: {}",
            QUICK.len(),
            QUICK.join(", ")
        ));
        merges::shortened(report);
    }
    let mut runs = Vec::new();
    match scripts(context) {
        Ok((prepare, script)) => {
            for _ in 0..context.runs {
                context.host.note("preparing jemalloc");
                let one = source::shell("preparing jemalloc", &context.cache, &prepare)
                    .and_then(|_| merges::run(context, "jemalloc's integration tests", &script));
                runs.extend(report.keep("integration tests", one));
            }
        }
        Err(why) => report.missing.push(format!("integration tests: {why}")),
    }
    report.tables.push(table(&runs));
    if let Some(first) = runs.first() {
        merges::claims("jemalloc", &runs, report);
        let cost = merges::cost(context, "jemalloc", first, report);
        report.keep("cost of merging, jemalloc", cost);
    }
}

/// Returns two scripts: one that prepares a run, and one that is recorded.
fn scripts(context: &Context<'_>) -> Result<(String, String), String> {
    source::need(&[("make", "make"), ("gcc", "gcc")])?;
    let tree = source::debian(context, "jemalloc")?;
    let build = context.cache.join("jemalloc-build");
    let (tree, build) = (tree.display(), build.display());
    if context.quick {
        let tests = |names: &[&str]| {
            let files = names
                .iter()
                .map(|name| format!("test/integration/{name}.c"));
            let files = files.collect::<Vec<_>>().join(" ");
            format!("TESTS_INTEGRATION='{files}' TESTS_INTEGRATION_CPP=")
        };
        let prepare = format!(
            "if ! test -e '{build}/quick'; then
                 rm -rf '{build}'; cp -r '{tree}' '{build}'
                 cd '{build}'; ./configure; make -j2 build_lib tests_integration {}; touch quick
             fi
             find '{build}/test/integration' -type f '(' -name '*.o' -o -perm -100 ')' \
                 ! -name '*.sh' -delete",
            tests(&QUICK[..1])
        );
        let tests = tests(&QUICK);
        let check = format!("make -j2 tests_integration {tests} && make check_integration {tests}");
        return Ok((prepare, format!("cd '{build}' && {check}")));
    }
    let prepare = format!("rm -rf '{build}'; cp -r '{tree}' '{build}'; cd '{build}'; ./configure");
    let check = "make -j2 tests_integration && make check_integration";
    let script = format!("cd '{build}' && make -j2 && {check}");
    Ok((prepare, script))
}

fn table(runs: &[Run]) -> Table {
    let columns = ["time", "diff m.", "pgoff m.", "failed m."];
    let title = "Stress tests of jemalloc";
    let mut table = Table::new(title, "tables 4.4 and 4.5, section 4.3.3", &columns);
    table.with_means = true;
    table.explain([
        "The four groups of jemalloc's own tests, of which the row integ. was repeated here.",
    ]);
    merges::explain(&mut table, Some(RECORDED));
    for name in ["unit", "integ.", "analyze", "stress"] {
        let replayed = runs.first().map_or(&[][..], |run| &run.policies);
        for (label, rows, policies) in [
            ("", &UNPATCHED, &["kernel"][..]),
            (", patched", &PATCHED, replayed),
        ] {
            let paper = rows.iter().filter(|(test, ..)| *test == name);
            let paper = paper.map(|(_, who, [time, counts @ ..])| {
                let cell = |[low, high]: [f64; 2], unit| Published::between(&[], low, high, unit);
                let counts = counts.map(|interval| cell(interval, Unit::Count));
                Line::full(*who, [cell(*time, Unit::Seconds)].into_iter().chain(counts))
            });
            let ours = policies
                .iter()
                .filter(|_| name == "integ." && !runs.is_empty());
            let ours = ours.map(|policy| line(policy, runs)).collect();
            table.row(format!("{name}{label}"), paper.collect(), ours);
        }
    }
    table
}

/// Explanation of the column `time`.
pub(super) const RECORDED: &str = "wall-clock time of the workload. Ours includes the recording and \
    is of another machine and a smaller workload, so it cannot be compared with the thesis's.";

/// Returns the table line with our figures, including the time of the recorded run.
pub(super) fn line(policy: &str, runs: &[Run]) -> Line<Figure> {
    let columns: [fn(&Counts) -> u64; 3] = [|c| c.different, |c| c.pgoff, |c| c.failed];
    let is_kernel = policy == "kernel";
    let counts = |run: &Run| {
        if is_kernel {
            run.unpatched()
        } else {
            run.patched(policy)
        }
    };
    let mut line = merges::line(policy, runs, counts, &columns);
    let seconds: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
    let time = Figure::of_runs(&seconds, Unit::Seconds).filter(|_| is_kernel);
    line.cells.insert(0, time);
    line
}
