//! The command as used by a script: exit statuses, one-line errors, no leftover files.
//!
//! Other tests check the results; these tests check only the conventions.

use crate::support::vmarea;
use std::path::Path;
use std::process::{Command, Output};

/// Returns the only line on standard error.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(text.lines().count(), 1, "not one line: {text}");
    assert!(text.starts_with("vmarea: "), "who speaks? {text}");
    assert!(output.stdout.is_empty(), "a failure wrote data");
    text
}

fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().expect("a folder");
    entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn wrong_usage_ends_with_two() {
    for arguments in [
        &["run"][..],
        &["run", "--policy", "none", "--", "true"],
        // This has no result that could be written as JSON.
        &["merge", "-p", "1", "--resume", "--json"],
        &["nonsense"],
        &[],
    ] {
        assert_eq!(vmarea(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_trace_that_is_none_is_one_line_and_ends_with_one() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no trace\n").unwrap();
    let text = text.to_str().unwrap();
    for arguments in [
        &["replay", text][..],
        &["trace", "info", text],
        &["trace", "dump", text],
        &["replay", "/nonexistent/trace"],
    ] {
        let output = vmarea(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(
            complaint(&output).contains(arguments.last().unwrap()),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_missing_program_leaves_no_trace_file() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.vmtrace");
    let output = vmarea(&[
        "record",
        "-o",
        trace.to_str().unwrap(),
        "--",
        "/nonexistent/program",
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("/nonexistent/program"));
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn a_place_that_cannot_be_written_is_known_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let witness = folder.path().join("ran");
    let witness = witness.to_str().unwrap();
    for option in [
        &["run", "--json=/nonexistent/report"][..],
        &["run", "--trace", "/nonexistent/trace"],
        &["record", "-o", "/nonexistent/trace"],
    ] {
        let output = vmarea(&[option, &["--", "touch", witness]].concat());
        assert_eq!(output.status.code(), Some(1), "{option:?}");
        assert!(complaint(&output).contains("/nonexistent/"));
    }
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn the_programs_own_status_and_streams_come_through() {
    let output = vmarea(&[
        "run",
        "--json=/dev/null",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 42",
    ]);
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    assert!(output.stdout.starts_with(b"out\n"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("err\n"));

    let output = vmarea(&["run", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.code(), Some(128 + 15), "{output:?}");
}

#[test]
fn json_on_standard_output_is_all_there_is_on_it() {
    let output = vmarea(&["run", "--json", "--", "true"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!(report["schema"], 1);
    assert_eq!(report["verify"]["differences"], 0);
    assert!(report["verify"]["vmas_compared"].as_u64() > Some(0));
}

#[test]
fn colour_comes_only_when_asked_for_through_a_pipe() {
    let plain = vmarea(&["run", "--", "true"]);
    assert!(!plain.stdout.contains(&0x1b));
    let coloured = vmarea(&["run", "--color", "always", "--", "true"]);
    assert!(coloured.stdout.contains(&0x1b));
}

#[test]
fn a_trace_can_be_kept_looked_into_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("true.vmtrace");
    let trace = trace.to_str().unwrap();
    let recorded = vmarea(&["record", "-o", trace, "--", "true"]);
    assert_eq!(recorded.status.code(), Some(0), "{recorded:?}");

    let info = vmarea(&["trace", "info", "--json", trace]);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).expect("JSON alone");
    assert_eq!(info["status"], 0, "the trace is whole");

    let dump = vmarea(&["trace", "dump", trace]);
    assert_eq!(dump.status.code(), Some(0));
    let lines = dump.stdout.split(|byte| *byte == b'\n').count() as u64;
    assert!(
        lines > info["events"].as_u64().unwrap(),
        "at least a line an event"
    );

    let replayed = vmarea(&["replay", "--json", trace]);
    assert_eq!(replayed.status.code(), Some(0), "{replayed:?}");

    // A truncated trace is reported, and the part before the truncation is still read.
    let bytes = std::fs::read(trace).unwrap();
    std::fs::write(trace, &bytes[..bytes.len() - 7]).unwrap();
    let cut = vmarea(&["trace", "info", trace]);
    assert_eq!(cut.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&cut.stderr).contains("block"));
}

#[test]
fn a_log_of_strace_becomes_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (log, trace) = (path("log"), path("trace"));
    let traced = Command::new("strace")
        .args(["-f", "-y", "-o", &log, "true"])
        .status();
    if !traced.is_ok_and(|status| status.success()) {
        return; // strace is not installed or may not trace
    }
    let imported = vmarea(&["trace", "import", "--from", "strace", &log, "-o", &trace]);
    assert_eq!(imported.status.code(), Some(0), "{imported:?}");
    let info = vmarea(&["trace", "info", "--json", &trace]);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).expect("JSON alone");
    assert!(info["kinds"]["call"].as_u64() > Some(10), "{info:#}");
    let replayed = vmarea(&["replay", &trace]);
    assert_eq!(replayed.status.code(), Some(0), "{replayed:?}");

    let wrong = vmarea(&[
        "trace",
        "import",
        "--from",
        "perf-script",
        &log,
        "-o",
        &path("other"),
    ]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    assert!(!folder.path().join("other").exists());
}

/// Adds the names of the files below `folder` whose text contains `what`.
fn files_with(what: &str, folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_with(what, &path, found);
        } else if std::fs::read_to_string(&path).is_ok_and(|text| text.contains(what)) {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn the_environment_is_read_only_where_the_architecture_says() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    for one in std::fs::read_dir(crates).unwrap() {
        let source = one.unwrap().path().join("src");
        if source.is_dir() {
            files_with("env::var", &source, &mut found);
        }
    }
    found.sort();
    let ends = [
        "process/src/probed.rs",
        "recorder/src/command.rs",
        "terminal/src/fit.rs",
    ];
    let known = found
        .iter()
        .zip(ends)
        .all(|(path, end)| path.ends_with(end));
    assert!(
        known && found.len() == ends.len(),
        "invariant 11 of ARCHITECTURE.md does not name the variables of {found:?}"
    );
}
