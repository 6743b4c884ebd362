//! The corpus: recorded programs, replayed under every preset and compared with golden files.
//!
//! `linux`, the rules of the recorded kernel, must give the kernel's results. The counts of every
//! preset must be those of `corpus/golden`. After a change of a rule or a switch, renew these files and
//! read the difference:
//! `VMAREA_RENEW=1 cargo test -p vmarea-replay --test corpus`.
//!
//! Replays are deterministic, so renewing twice changes nothing. What the table in
//! `corpus/README.md` says is checked as well; `ci/run corpus --table` renews it. The table in
//! `docs/successors.md` is checked and renewed with the golden files.
#![forbid(unsafe_code)]

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use vmarea::policy::Policy;
use vmarea_replay::{Options, PolicyReport, Replayer, Report};
use vmarea_trace::Reader;

/// Limits of the corpus, which every clone of the repository contains.
const TRACE_BYTES: u64 = 1_000_000;
const ALL_BYTES: u64 = 8_000_000;
const TRACES: std::ops::RangeInclusive<usize> = 15..=20;

/// The rules of `relocate` without the relocation; the row `linux` has those of the recorded kernel.
const NEWEST: &str = "linux-7.3";

const RENEW: &str = "VMAREA_RENEW=1 cargo test -p vmarea-replay --test corpus";

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus")
}

fn golden() -> PathBuf {
    corpus().join("golden")
}

/// Returns the files in `folder` with this extension, by name without extension.
fn files(folder: &Path, extension: &str) -> BTreeMap<String, PathBuf> {
    let entries = folder
        .read_dir()
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path))
        .collect()
}

/// Replays a trace under every preset and [`NEWEST`].
fn replay(trace: &Path) -> Report {
    let name = trace.display();
    let reader = Reader::open(trace).unwrap_or_else(|error| panic!("{name}: {error}"));
    let names = Policy::PRESETS.iter().map(|preset| preset.name);
    let policies = names.chain([NEWEST]).map(str::parse);
    let options = Options {
        policies: policies.collect::<Result<_, _>>().unwrap(),
        ..Options::default()
    };
    let mut replayer = Replayer::new(reader.header(), &options).unwrap();
    for event in reader {
        let event = event.unwrap_or_else(|error| panic!("{name}: {error}"));
        let done = replayer.event(&event);
        done.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    replayer.finish()
}

/// Replays traces on all processors, the largest first.
fn replay_all(traces: &BTreeMap<String, PathBuf>) -> BTreeMap<String, Report> {
    let mut queue: Vec<_> = traces.iter().collect();
    queue.sort_by_key(|(_, path)| std::cmp::Reverse(path.metadata().unwrap().len()));
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        // ORDERING: Relaxed: the counter only gives each trace to one thread.
        while let Some((name, path)) = queue.get(next.fetch_add(1, Ordering::Relaxed)) {
            let report = replay(path);
            done.lock().unwrap().insert((*name).clone(), report);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    done.into_inner().unwrap()
}

/// Returns the counts that a golden file contains.
fn counts(report: &Report) -> Value {
    let of_policy = |policy: &PolicyReport| {
        let mut counts = json!({
            "vmas_peak": policy.vmas_peak,
            "vmas_exit": policy.vmas_exit,
            "merges": policy.merges,
            "refusals": policy.refusals,
            "splits": policy.splits,
            "pgoff_updates": policy.pgoff_updates,
            "collected": policy.collected,
        });
        if !policy.relocations.is_empty() {
            counts["relocations"] = json!(policy.relocations);
        }
        counts
    };
    let policies = report.policies.iter().filter(|(name, _)| *name != NEWEST);
    let policies: BTreeMap<_, _> = policies.map(|(name, p)| (name, of_policy(p))).collect();
    json!({
        "events": report.events,
        "calls": report.calls,
        "faults": report.faults,
        "opaque": report.opaque,
        "verify": report.verify,
        "policies": policies,
    })
}

/// Returns the content of a golden file.
fn text(report: &Report) -> String {
    serde_json::to_string_pretty(&counts(report)).unwrap() + "\n"
}

/// Writes the golden files of these traces.
fn renew(folder: &Path, reports: &BTreeMap<String, Report>) {
    for (name, report) in reports {
        fs::write(folder.join(format!("{name}.json")), text(report)).unwrap();
    }
}

/// Adds one line for each value that differs.
fn differences(at: &str, golden: &Value, now: &Value, found: &mut Vec<String>) {
    let (Value::Object(old), Value::Object(new)) = (golden, now) else {
        if golden != now {
            found.push(format!("{at}: {golden} in the golden file, now {now}"));
        }
        return;
    };
    let mut keys: Vec<_> = old.keys().chain(new.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let [old, new] = [golden, now].map(|side| side.get(key).unwrap_or(&Value::Null));
        differences(&format!("{at}/{key}"), old, new, found);
    }
}

#[test]
fn every_trace_gives_the_kernels_results_and_the_golden_counts() {
    let traces = files(&corpus(), "vmtrace");
    let reports = replay_all(&traces);
    if std::env::var_os("VMAREA_RENEW").is_some_and(|value| value == "1") {
        for (name, path) in files(&golden(), "json") {
            if !traces.contains_key(&name) {
                fs::remove_file(path).unwrap();
            }
        }
        renew(&golden(), &reports);
    }
    let mut wrong = Vec::new();
    for (name, report) in &reports {
        for group in &report.differences {
            let shown = group.shown.first().map(ToString::to_string);
            let times = group.count;
            let shown = shown.unwrap_or_default();
            wrong.push(format!("{name}, {times} × {}: {shown}", group.cause));
        }
        if report.verify.vmas_compared == 0 {
            wrong.push(format!("{name}: no VMA was compared with the kernel's"));
        }
        let presets = Policy::PRESETS.iter().map(|preset| preset.name);
        let missing = presets.filter(|preset| !report.policies.contains_key(*preset));
        wrong.extend(missing.map(|preset| format!("{name}: was not replayed under {preset}")));
        match fs::read_to_string(golden().join(format!("{name}.json"))) {
            Ok(old) if old == text(report) => {}
            Ok(old) => match serde_json::from_str(&old) {
                Ok(old) => differences(name, &old, &counts(report), &mut wrong),
                Err(error) => wrong.push(format!("{name}: golden file: {error}")),
            },
            Err(error) => wrong.push(format!("{name}: golden file: {error}")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nif the new counts are right: {RENEW}",
        wrong.join("\n")
    );
    table_is_current(&traces, &reports);
    successors_are_current(&reports);
}

/// Checks the rows of the table in the README against the replays.
fn table_is_current(traces: &BTreeMap<String, PathBuf>, reports: &BTreeMap<String, Report>) {
    let readme = fs::read_to_string(corpus().join("README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: BTreeMap<_, _> = rows.filter_map(|row| row.split_once('`')).collect();
    let names = traces.keys().map(String::as_str);
    let command = "ci/run corpus --table";
    assert!(
        rows.keys().copied().eq(names),
        "rows and traces differ: {command}"
    );
    for (name, report) in reports {
        let exact = match report.verify.undecided {
            0 => "yes".to_owned(),
            undecided => format!("no, {} undecided", grouped(undecided)),
        };
        let expected = format!(
            "| {} | {} | {exact} | {} |",
            grouped(report.events),
            grouped(report.policies["linux"].vmas_peak),
            grouped(traces[name].metadata().unwrap().len())
        );
        let row = rows[name.as_str()];
        assert!(
            row.ends_with(&expected),
            "{name}: the row must end with `{expected}`, but is `{row}`: {command}"
        );
    }
}

/// Returns the table of `docs/successors.md`: the merges and VMAs of each policy, and what became of
/// the relocations. A trace without a refused merge and without a relocation is only counted.
fn successors(reports: &BTreeMap<String, Report>) -> String {
    const POLICIES: [&str; 4] = [NEWEST, "thesis", "relocate", "vmarea"];
    let mut text = "\n| trace | refused | `linux-7.3` makes | `thesis` | `relocate` | `vmarea` | \
        VMAs at exit: `linux-7.3` | `thesis` | `relocate` | `vmarea` | relocations |\n\
        |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n"
        .to_owned();
    let mut without = Vec::new();
    for (name, report) in reports {
        let relocations = &report.policies["relocate"].relocations;
        let refused = report.counterfactual.refused_total();
        if refused == 0 && relocations.is_empty() {
            without.push(format!("`{name}`"));
            continue;
        }
        let made = |policy: &&str| {
            report
                .counterfactual
                .policies
                .get(*policy)
                .map(|p| p.merged)
        };
        let merges = POLICIES.iter().map(|policy| made(policy).unwrap_or(0));
        let vmas = POLICIES.map(|policy| report.policies[policy].vmas_exit);
        let counts = [refused].into_iter().chain(merges).chain(vmas);
        let kinds = relocations
            .iter()
            .map(|(what, n)| format!("{} {what}", grouped(*n)));
        let cells = counts
            .map(grouped)
            .chain([kinds.collect::<Vec<_>>().join(", ")]);
        text += &format!("| `{name}` | {} |\n", cells.collect::<Vec<_>>().join(" | "));
    }
    text + &format!(
        "\nNeither a refused merge nor a relocation: {}.\n",
        without.join(", ")
    )
}

/// Checks the table of `docs/successors.md`, or renews it.
fn successors_are_current(reports: &BTreeMap<String, Report>) {
    let page = corpus().join("../docs/successors.md");
    let text = fs::read_to_string(&page).unwrap();
    let (begin, end) = (
        "<!-- corpus: written by its test, crates/replay/tests/corpus.rs -->\n",
        "<!-- end of the corpus -->",
    );
    let (head, rest) = text.split_once(begin).expect("the table begins");
    let (old, tail) = rest.split_once(end).expect("the table ends");
    let new = successors(reports);
    if std::env::var_os("VMAREA_RENEW").is_some_and(|value| value == "1") {
        fs::write(page, [head, begin, &new, end, tail].concat()).unwrap();
    } else {
        assert_eq!(old, new, "docs/successors.md is not of now: {RENEW}");
    }
}

/// Formats a number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[test]
fn the_corpus_keeps_its_limits_and_every_golden_file_has_a_trace() {
    let traces = files(&corpus(), "vmtrace");
    assert!(TRACES.contains(&traces.len()), "{} traces", traces.len());
    let bytes = |path: &PathBuf| path.metadata().unwrap().len();
    for (name, path) in &traces {
        assert!(
            bytes(path) <= TRACE_BYTES,
            "{name}: {} bytes, at most {TRACE_BYTES}",
            bytes(path)
        );
    }
    let all: u64 = traces.values().map(bytes).sum();
    assert!(all <= ALL_BYTES, "{all} bytes, at most {ALL_BYTES}");
    let golden = files(&golden(), "json");
    let lonely: Vec<_> = golden.keys().filter(|n| !traces.contains_key(*n)).collect();
    assert!(
        lonely.is_empty(),
        "golden files without trace: {lonely:?}; {RENEW} removes them"
    );
}

#[test]
fn renewing_twice_changes_nothing() {
    let mut traces = files(&corpus(), "vmtrace");
    // Replays are the same for all traces; the small ones take less time.
    traces.retain(|_, path| path.metadata().unwrap().len() < 100_000);
    assert!(!traces.is_empty());
    let folder = tempfile::tempdir().unwrap();
    renew(folder.path(), &replay_all(&traces));
    let read = |name: &String| fs::read(folder.path().join(format!("{name}.json"))).unwrap();
    let first: Vec<_> = traces.keys().map(read).collect();
    renew(folder.path(), &replay_all(&traces));
    let second: Vec<_> = traces.keys().map(read).collect();
    for (name, (first, second)) in traces.keys().zip(first.iter().zip(&second)) {
        assert!(first == second, "{name}: two renewals differ");
    }
    assert_eq!(files(folder.path(), "json").len(), traces.len());
}

#[test]
fn a_changed_count_is_named_by_its_path() {
    let mut found = Vec::new();
    let [old, new] = [
        json!({"a": {"b": 1, "c": 2}}),
        json!({"a": {"b": 1, "d": 2}}),
    ];
    differences("gcc", &old, &new, &mut found);
    assert_eq!(
        found,
        [
            "gcc/a/c: 2 in the golden file, now null",
            "gcc/a/d: null in the golden file, now 2"
        ]
    );
}
