//! `vmarea export`: what other programs read is complete, and agrees with a replay of the trace.

use crate::support::{complaint, text, vmarea};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

fn corpus(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    root.join(format!("{name}.vmtrace")).display().to_string()
}

fn json(output: &std::process::Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_chrome_trace_has_the_calls_merges_and_counts_of_a_replay() {
    let trace = corpus("regions");
    let document = json(&vmarea(&["export", &trace, "--perfetto", "-"]));
    let report = json(&vmarea(&["replay", &trace, "--policy", "linux", "--json"]));
    let linux = &report["policies"]["linux"];

    let (mut calls, mut splits, mut merges, mut peak) = (0, 0, 0, 0);
    for event in document["traceEvents"].as_array().unwrap() {
        assert!(event["pid"].is_i64() && event["ts"].is_number(), "{event}");
        let arguments = event["args"].as_object().unwrap();
        let sum = |prefix: &str| -> u64 {
            let named = arguments
                .iter()
                .filter(|(name, _)| name.starts_with(prefix));
            named.filter_map(|(_, n)| n.as_u64()).sum()
        };
        match event["ph"].as_str().unwrap() {
            "X" => {
                calls += 1;
                splits += sum("splits");
                merges += sum("merged, ");
            }
            "C" => peak = peak.max(arguments.get("linux").and_then(Value::as_u64).unwrap_or(0)),
            "M" => {}
            other => panic!("a kind of event that is not documented: {other}"),
        }
    }
    assert_eq!(calls, report["calls"].as_u64().unwrap());
    assert_eq!(splits, linux["splits"].as_u64().unwrap());
    let kinds: BTreeMap<String, u64> = serde_json::from_value(linux["merges"].clone()).unwrap();
    assert_eq!(merges, kinds.values().sum::<u64>());
    assert_eq!(peak, linux["vmas_peak_single"].as_u64().unwrap());
}

#[test]
fn folded_stacks_count_every_mapping_of_the_peak() {
    let output = vmarea(&["export", &corpus("regions"), "--folded", "-"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let written = text(&output.stdout);
    let counts = written.lines().map(|line| {
        let (frames, count) = line.rsplit_once(' ').unwrap();
        assert!(!frames.is_empty(), "{line}");
        count.parse::<u64>().unwrap()
    });
    // corpus/README.md: the VMAs at the peak.
    assert_eq!(counts.sum::<u64>(), 102, "{written}");
}

#[test]
fn wrong_usage_is_refused() {
    let said = complaint(&vmarea(&["export", &corpus("gcc")]), 2);
    assert!(said.contains("--folded FILE or --parquet DIR"), "{said}");
}

#[test]
fn a_full_disk_is_named() {
    for format in ["--perfetto", "--folded"] {
        let said = complaint(&vmarea(&["export", &corpus("gcc"), format, "/dev/full"]), 1);
        assert!(said.contains("/dev/full"), "{said}");
        assert!(said.contains("No space left on device"), "{said}");
    }
}

#[test]
fn a_torn_trace_leaves_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    let torn = folder.path().join("torn.vmtrace");
    let whole = std::fs::read(corpus("gcc")).unwrap();
    std::fs::write(&torn, &whole[..whole.len() / 2]).unwrap();
    for format in ["--perfetto", "--folded"] {
        let out = folder.path().join("out");
        let arguments = [
            "export",
            torn.to_str().unwrap(),
            format,
            out.to_str().unwrap(),
        ];
        let output = vmarea(&arguments);
        assert_ne!(output.status.code(), Some(0), "{format}");
        assert_eq!(
            text(&output.stderr).lines().count(),
            1,
            "{}",
            text(&output.stderr)
        );
        assert!(!out.exists(), "{format} left a file");
    }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn without_parquet_one_line_says_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tables");
    let output = vmarea(&[
        "export",
        &corpus("regions"),
        "--parquet",
        &out.display().to_string(),
    ]);
    let line = complaint(&output, 1);
    assert!(
        line.contains("--features parquet") && line.contains("pip install"),
        "{line}"
    );
    assert!(!out.exists());
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_files_appear_only_when_all_are_complete() {
    let folder = tempfile::tempdir().unwrap();
    let tables = |trace: &str, out: &str| {
        let out = folder.path().join(out).display().to_string();
        vmarea(&["export", trace, "--parquet", &out, "--policy", "thesis"])
    };
    let output = tables(&corpus("regions"), "good");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let names = |folder: &Path| {
        let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let all = ["differences", "events", "merges", "vmas"].map(|name| format!("{name}.parquet"));
    assert_eq!(names(&folder.path().join("good")), all);

    let data = std::fs::read(corpus("regions")).unwrap();
    let torn = folder.path().join("torn.vmtrace");
    std::fs::write(&torn, &data[..data.len() / 2]).unwrap();
    let output = tables(&torn.display().to_string(), "bad");
    // Its first block is torn, so it has no events.
    assert!(complaint(&output, 1).contains("cut off"));
    assert!(names(&folder.path().join("bad")).is_empty());
}
