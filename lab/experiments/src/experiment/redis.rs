//! Redis's own test suite and its benchmark, recorded and replayed (tables 4.6 and 4.7).

use super::figure::{Published, Unit};
use super::merges::{self, Run};
use super::report::{Line, Report, Table};
use super::{Context, jemalloc, source};

/// The thesis's intervals of time, diff m., pgoff m. and failed m., for the unpatched machines.
const UNPATCHED: [(&str, [[f64; 2]; 4]); 2] = [
    ("Apollo", [[394.7, 399.0], [0.0; 2], [0.0; 2], [39.0, 57.0]]),
    ("Orion", [[498.8, 499.1], [0.0; 2], [0.0; 2], [27.0, 37.0]]),
];
const PATCHED: [(&str, [[f64; 2]; 4]); 2] = [
    (
        "Apollo",
        [[392.6, 395.3], [1.0, 2.0], [18.0, 28.0], [0.0, 1.0]],
    ),
    (
        "Orion",
        [[498.8, 499.0], [1.0, 3.0], [13.0, 18.0], [5.0, 10.0]],
    ),
];
/// Names of the workloads, in claims.
pub(super) const WORKLOADS: [&str; 2] = ["test suite", "benchmark with saves"];
/// The tests of the suite that run with `--quick`.
const QUICK: &str = "--single unit/type/list --single unit/type/hash --single unit/other";

/// Runs the experiment.
pub(super) fn run(context: &Context<'_>, report: &mut Report) {
    merges::substitutions(report);
    report.substitute(
        "Redis 7.0.2 built from source: Debian's build of 7.0 with Debian's jemalloc, and the test \
         suite of Debian's source package",
    );
    if context.quick {
        report.shorten("all tests of the suite but unit/type/list, unit/type/hash and unit/other");
        report.shorten("19 of 20 requests of the benchmark; repeated runs of the workloads");
    }
    report
        .substitute("redis-benchmark with background saves is ours: the thesis ran the suite only");
    let mut table = Table::new(
        "Redis",
        "tables 4.6 and 4.7, section 4.3.4",
        &["time", "diff m.", "pgoff m.", "failed m."],
    );
    table.with_means = true;
    merges::explain(&mut table, Some(jemalloc::RECORDED));
    let line = |(who, cells): (&str, [[f64; 2]; 4])| {
        let units = [Unit::Seconds, Unit::Count, Unit::Count, Unit::Count];
        let cells = cells.into_iter().zip(units);
        Line::full(
            who,
            cells.map(|([low, high], unit)| Published::between(&[], low, high, unit)),
        )
    };
    table.row("unpatched", UNPATCHED.map(line).into(), Vec::new());
    table.row("patched", PATCHED.map(line).into(), Vec::new());
    let scripts = [suite(context), benchmark(context)];
    for (name, script) in WORKLOADS.into_iter().zip(scripts) {
        let runs = script.and_then(|script| {
            let one = |_| merges::run(context, &format!("Redis's {name}"), &script);
            (0..context.runs)
                .map(one)
                .collect::<Result<Vec<Run>, String>>()
        });
        if let Some(runs) = report.keep(name, runs) {
            let policies = ["kernel"]
                .iter()
                .chain(runs.first().map_or(&[][..], |run| &run.policies));
            let lines = policies
                .map(|policy| jemalloc::line(policy, &runs))
                .collect();
            table.row(format!("here, {name}"), Vec::new(), lines);
            merges::claims(&format!("Redis, {name}"), &runs, report);
        }
    }
    let failed = context.cache.join(FAILED);
    if failed.exists() {
        report.missing.push(format!(
            "test suite: some of its tests fail on this server, see {FAILED} in the cache directory; \
             merges are counted all the same"
        ));
    }
    report.tables.push(table);
}

const SERVER: [(&str, &str); 3] = [
    ("redis-server", "redis-server"),
    ("redis-cli", "redis-tools"),
    ("redis-benchmark", "redis-tools"),
];

/// Name of the file that contains the suite's output after a failed test.
const FAILED: &str = "redis-test-failed.log";

/// Returns the script that runs the test suite on the installed server.
///
/// If a test fails, the suite and the measurement continue. The servers that a failed test leaves
/// are ended with the script, because the recording waits for every process.
fn suite(context: &Context<'_>) -> Result<String, String> {
    source::need(&SERVER)?;
    source::need(&[("tclsh", "tcl")])?;
    let tree = source::debian(context, "redis")?;
    let link = "for program in server cli benchmark sentinel check-rdb check-aof; do
            ln -sf \"$(command -v redis-$program || echo /usr/bin/redis-server)\" src/redis-$program
        done";
    source::shell("preparing the test suite", &tree, link)?;
    let tests = if context.quick { QUICK } else { "" };
    Ok(format!(
        "cd '{}'
        setsid ./runtest --clients 2 {tests} >'{failed}' 2>&1 & suite=$!
        trap 'kill -- -$suite 2>/dev/null' EXIT
        trap 'exit 1' INT TERM
        if wait $suite; then rm '{failed}'; fi",
        tree.display(),
        failed = context.cache.join(FAILED).display()
    ))
}

/// Returns the script of the benchmark, which writes and reads while the server saves its data.
fn benchmark(context: &Context<'_>) -> Result<String, String> {
    source::need(&SERVER)?;
    let requests = if context.quick { 10_000 } else { 200_000 };
    Ok(format!(
        "folder=$(mktemp -d); trap 'rm -rf \"$folder\"' EXIT
        redis-server --port 0 --unixsocket \"$folder/socket\" --dir \"$folder\" --save '1 1' \\
            & server=$!
        until redis-cli -s \"$folder/socket\" ping >/dev/null 2>&1; do
            kill -0 $server || exit 1
            sleep 0.1
        done
        for round in 1 2 3; do
            redis-benchmark -s \"$folder/socket\" -q -n {requests} -r 100000 -d 300 \\
                -t set,get,lpush,sadd,hset
            redis-cli -s \"$folder/socket\" bgsave
        done
        redis-cli -s \"$folder/socket\" shutdown nosave
        wait $server || true"
    ))
}
