//! Changes to a recorded program: each count is that of a replay of the changed run.

use crate::support::VMAREA;
use crate::support::programs::program;
use std::process::Command;
use vmarea_test_support::leash;

#[test]
fn a_change_is_counted_by_replaying_the_changed_run() {
    let program = program("prevention.c");
    for (habit, change, call) in [
        ("commits", "priming", "mmap(PROT_NONE)"),
        ("advice", "whole_advice", "madvise(MADV_DONTFORK)"),
        ("guards", "guard_markers", "mprotect(PROT_NONE)"),
    ] {
        let mut command = Command::new(VMAREA);
        command.args(["explain", "--json", "--"]);
        command.arg(&program).args([habit, "1500"]);
        let output = leash::output(&mut command).unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = report["prevention"].as_array();
        let found = found.into_iter().flatten().find(|p| p["change"] == change);
        let found = found.unwrap_or_else(|| panic!("{habit}: {report}"));
        assert_eq!(found["call"], call, "{found}");
        let before = found["before"].as_u64().unwrap();
        assert!(before > 1_500, "{found}");
        match found["after"].as_u64() {
            Some(after) => {
                assert!(after < 60, "{found}");
                let advice = report["advice"]["text"].as_str().unwrap();
                assert!(advice.starts_with("change the program"), "{advice}");
            }
            // Without permission to record all faults there is no count, but a reason.
            None => assert!(found["no_count"].is_string(), "{found}"),
        }
    }
}
