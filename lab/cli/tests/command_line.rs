//! The command as used by a script: exit statuses, messages, and the width of text.
#![forbid(unsafe_code)]

mod support;

use std::process::Command;
use support::{LAB, lab, leash, text};

/// A recording of the documentation.
const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/example/family.vmtrace"
);

#[test]
fn wrong_usage_ends_with_two() {
    for arguments in [
        // This has no result that could be written as JSON.
        &["conform", "--play", "a-file", "--json"][..],
        &["bench"],
        &["nonsense"],
        &[],
    ] {
        assert_eq!(lab(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_profile_that_is_not_known_is_wrong_usage() {
    let output = lab(&["conform", "--profile", "nosuch"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("nosuch") && said.contains("linux-6.12"),
        "{said}"
    );
}

#[test]
fn a_typo_in_a_policy_file_has_a_line_and_a_column() {
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine.toml");
    std::fs::write(&mine, "base = \"linux\"\n[switches]\ncolector = true\n").unwrap();
    let mine = mine.to_str().unwrap();
    for words in [
        &["conform", "--profile", mine][..],
        &["experiment", "redis", "--policy", mine],
    ] {
        let output = lab(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(&format!("{mine}:3:1")), "{said}");
        assert!(said.contains("did you mean collector?"), "{said}");
    }
}

#[test]
fn a_trace_that_is_none_is_one_line_that_begins_with_the_programs_name() {
    let output = lab(&["bench", "cache", "/proc/self/status"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("vmarea-lab: "), "who speaks? {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn the_text_fits_80_columns() {
    let mut command = Command::new(LAB);
    command.env("COLUMNS", "80");
    let output = leash::output(command.args(["bench", "cache", "--rounds", "2", TRACE])).unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for line in said.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn the_graph_of_the_core_is_that_of_the_running_kernel() {
    let output = lab(&["graph"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("grandchild"), "{said}");
    let last = said.lines().last().unwrap();
    assert!(
        last.contains("are isomorphic") || last.contains("CAP_BPF"),
        "{last}"
    );
}
