//! Programs whose mappings depend on more than memory calls.
//!
//! The programs use shared memory segments, memory policies, userfaultfd contexts, files that
//! cannot be mapped, and data about their own files. Each program prints the same output with and
//! without a recorder, and the results of each replay equal the kernel's.

use crate::support::programs::program;
use crate::support::{VMAREA, leash, text};
use serde_json::Value;
use std::process::Command;

/// Exit status of a program that needs a feature that this machine lacks.
const NOT_HERE: i32 = 77;

/// Runs the program in a mode, both natively and recorded; `None` if the mode cannot run here.
fn recorded(mode: &str) -> Option<Value> {
    recorded_with(mode, "")
}

/// Like [`recorded`], with a limit on the recorder's open file descriptors.
fn recorded_with(mode: &str, descriptors: &str) -> Option<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut outcomes = Vec::new();
    for (run, words) in [
        ("alone", &[][..]),
        ("recorded", &["run", "--json=report", "--"]),
    ] {
        let work = path(run);
        std::fs::create_dir(&work).unwrap();
        let said = work.join("said");
        let mut command = match words {
            [] => Command::new(program("beyond.c")),
            words => {
                let mut command = Command::new("sh");
                let limited = "[ -z \"$0\" ] || ulimit -n \"$0\"; exec \"$@\"";
                command.args(["-c", limited, descriptors, VMAREA]);
                command.args(words).arg(program("beyond.c"));
                command
            }
        };
        command
            .arg(mode)
            .arg(&said)
            .arg(&work)
            .current_dir(folder.path());
        let output = leash::output(&mut command).unwrap();
        let code = output.status.code();
        if code == Some(NOT_HERE) {
            eprintln!("{mode}: not on this machine");
            return None;
        }
        let said = std::fs::read_to_string(&said).unwrap_or_default();
        assert!(!said.is_empty(), "{run} {mode}: {}", text(&output.stderr));
        outcomes.push((code, said, text(&output.stdout)));
    }
    let report: Value = serde_json::from_slice(&std::fs::read(path("report")).unwrap()).unwrap();
    let verify = &report["verify"];
    assert_eq!(verify["differences"], 0, "{mode}: {report:#}");
    assert_eq!(report["lost"], 0, "{mode}: {report:#}");
    assert_eq!(outcomes[0].0, Some(0), "{mode}");
    assert_eq!(outcomes[1].0, Some(0), "{mode}: {}", outcomes[1].2);
    assert_eq!(
        outcomes[0].1, outcomes[1].1,
        "{mode}: the program saw the recorder"
    );
    Some(report)
}

/// Checks that the core models every call that the program makes in this mode.
fn modelled(mode: &str) {
    if let Some(report) = recorded(mode) {
        assert_eq!(report["opaque"], 0, "{mode}: {report:#}");
    }
}

#[test]
fn memory_policies() {
    modelled("policy");
}

#[test]
fn segments_of_system_v() {
    modelled("segments");
}

#[test]
fn other_pages_of_a_file() {
    modelled("file_pages");
}

#[test]
fn what_a_userfaultfd_fills_is_undecided() {
    if let Some(report) = recorded("contexts") {
        assert_eq!(report["opaque"], 0, "{report:#}");
        let verify = &report["verify"];
        let filled = &verify["reasons"]["a userfaultfd may have filled pages"]["undecided"];
        assert!(filled.as_u64() > Some(0), "{report:#}");
        assert_eq!(filled, &verify["undecided"], "{report:#}");
    }
}

#[test]
fn huge_pages() {
    modelled("huge");
}

#[test]
fn files_that_refuse() {
    modelled("refused");
}

#[test]
fn locks_of_files_that_were_mapped() {
    modelled("locks");
}

#[test]
fn the_space_of_deleted_files() {
    modelled("space");
}

#[test]
fn neighbours_of_one_description() {
    modelled("neighbours");
}

#[test]
fn more_files_than_the_recorder_may_hold() {
    modelled("many");
    if let Some(report) = recorded_with("many", "200") {
        assert_eq!(report["verify"]["differences"], 0, "{report:#}");
    }
}

#[test]
fn advice_about_several_ranges() {
    modelled("advice");
}

#[test]
fn what_is_written_through_proc_is_undecided_and_no_difference() {
    if let Some(report) = recorded("forced") {
        assert!(
            report["verify"]["undecided"].as_u64() > Some(0),
            "{report:#}"
        );
    }
}

#[test]
fn rings_of_asynchronous_io() {
    modelled("rings");
}

#[test]
fn a_write_to_a_setting_is_noted() {
    if let Some(report) = recorded("setting") {
        let notes = report["notes"].as_array().unwrap();
        let is_written = |note: &Value| {
            let note = note.as_str().unwrap();
            note.starts_with("the setting vm.max_map_count was written")
        };
        assert!(notes.iter().any(is_written), "{report:#}");
    }
}
