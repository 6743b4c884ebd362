//! `vmarea-lab experiment`: the form of its results, and its messages if something is missing.
//!
//! These tests run only experiments that need no other program. Times are never compared.
#![forbid(unsafe_code)]

mod support;

use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::{LAB, lab, leash, text};

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("no {key}: {value}"))
}

/// Runs an experiment and checks the form of its JSON document.
fn report(name: &str) -> Value {
    let output = lab(&["experiment", name, "--quick", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], 1);
    for key in ["machine", "kernel", "command"] {
        assert!(
            !document["header"][key].as_str().unwrap().is_empty(),
            "{key}"
        );
    }
    let [report] = list(&document, "experiments").as_slice() else {
        panic!("one report: {document}");
    };
    assert_eq!(report["name"], name);
    assert!(list(report, "missing").is_empty());
    assert!(!list(report, "substituted").is_empty());
    assert!(!list(report, "shortened").is_empty(), "--quick does less");
    for table in list(report, "tables") {
        let columns = list(table, "columns").len();
        assert!(!list(table, "rows").is_empty(), "{}", table["title"]);
        assert!(!list(table, "about").is_empty(), "{}", table["title"]);
        for row in list(table, "rows") {
            for line in list(row, "paper").iter().chain(list(row, "ours")) {
                assert_eq!(
                    list(line, "cells").len(),
                    columns,
                    "{}: {row}",
                    table["title"]
                );
            }
        }
    }
    for claim in list(report, "claims") {
        let decision = claim["decision"].as_str().unwrap();
        let decisions = ["holds", "does_not_hold", "undecided", "withdrawn"];
        assert!(decisions.contains(&decision));
        assert_eq!(claim["refuted_by"].is_null(), decision == "withdrawn");
        for key in ["text", "paper", "ours"] {
            assert!(!claim[key].as_str().unwrap().is_empty(), "{claim}");
        }
    }
    report.clone()
}

fn decision(report: &Value, claim: &str) -> String {
    let claims = list(report, "claims");
    let found = claims
        .iter()
        .find(|one| one["text"].as_str().unwrap().contains(claim));
    let found = found.unwrap_or_else(|| panic!("no claim has {claim:?}"));
    found["decision"].as_str().unwrap().to_owned()
}

#[test]
fn the_sizes_of_the_lock_series_hold() {
    let report = report("vma-lock");
    for claim in ["50 pages", "64 pages", "48 pages", "102", "192 bytes"] {
        assert_eq!(decision(&report, claim), "holds");
    }
    // This claim is about another processor.
    assert_eq!(decision(&report, "Broadwell"), "undecided");
}

#[test]
fn brk_needs_no_lock_of_the_reverse_map() {
    let report = report("anon-vma-lock");
    assert_eq!(decision(&report, "brk needs no anon_vma lock"), "holds");
    assert_eq!(decision(&report, "AIM7"), "undecided");
}

#[test]
fn two_writers_are_measured_beside_the_kernel() {
    let report = report("scaling");
    let tables = list(&report, "tables");
    assert_eq!(tables.len(), 2);
    for row in list(&tables[0], "rows") {
        let who: Vec<&str> = list(row, "ours")
            .iter()
            .map(|line| line["who"].as_str().unwrap())
            .collect();
        assert_eq!(who, ["one writer", "parts", "kernel"]);
    }
}

#[test]
fn the_text_has_the_papers_figures_above_ours() {
    let output = lab(&["experiment", "vma-lock", "--quick"]);
    let said = text(&output.stdout);
    let memory = said
        .split("\n\n")
        .find(|part| part.starts_with("Memory of a VMA"))
        .unwrap();
    let lines: Vec<&str> = memory.lines().collect();
    let after = lines
        .iter()
        .position(|line| line.contains("after: atomic"))
        .unwrap();
    for (line, source) in lines[after..].iter().zip(["paper", "ours model"]) {
        assert!(line.contains(source), "{line}");
        let figures: Vec<&str> = line.split_whitespace().rev().take(5).collect();
        assert_eq!(figures, ["48", "2", "42", "0", "192"], "{line}");
    }
    for heading in [
        "machine  ",
        "kernel   ",
        "command  vmarea-lab experiment vma-lock",
        "substituted:",
        "left out by --quick:",
        "  The series moves the lock of a VMA",
    ] {
        assert!(said.contains(heading), "{heading}");
    }
}

/// Runs an experiment with an empty `PATH`.
fn without_programs(arguments: &[&str]) -> Output {
    let mut command = Command::new(LAB);
    command
        .arg("experiment")
        .args(arguments)
        .env("PATH", "/nonexistent");
    leash::output(command.stdin(Stdio::null())).unwrap()
}

#[test]
fn a_missing_program_names_its_package_and_the_exit_status_says_so() {
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path().to_str().unwrap();
    for (name, package) in [
        (
            "redis",
            "there is no redis-server: apt-get install redis-server",
        ),
        ("jemalloc", "there is no make: apt-get install make"),
    ] {
        let output = without_programs(&[name, "--quick", "--cache", cache]);
        assert_eq!(output.status.code(), Some(6), "{}", text(&output.stderr));
        let said = text(&output.stdout).replace('\n', " ");
        let said: Vec<&str> = said.split_whitespace().collect();
        let said = said.join(" ");
        assert!(
            said.contains("left out:") && said.contains(package),
            "{said}"
        );
        // The paper's figures are printed nevertheless.
        assert!(said.contains("paper Apollo"), "{said}");
    }
}

/// Writes a program that prints a line and fails.
fn failing(folder: &Path, name: &str, line: &str) {
    let program = folder.join(name);
    fs::write(&program, format!("#!/bin/sh\necho '{line}' >&2\nexit 3\n")).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
}

/// Runs the redis experiment with programs that fail, under the shell's resource limits `limits`;
/// returns the exit status and the words of its output.
fn failing_redis(limits: &str, cache: &Path) -> (Option<i32>, String) {
    let programs = tempfile::tempdir().unwrap();
    for name in ["redis-server", "redis-cli", "redis-benchmark", "tclsh"] {
        failing(programs.path(), name, "it cannot start");
    }
    failing(programs.path(), "apt-get", "E: no such source");
    failing(programs.path(), "dpkg-source", "");
    let script = format!("{limits}; exec '{LAB}' experiment redis --quick --cache \"$1\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(cache);
    let path = format!("{}:/usr/bin:/bin", programs.path().display());
    let output = leash::output(command.env("PATH", path).stdin(Stdio::null())).unwrap();
    let said = text(&output.stdout);
    (
        output.status.code(),
        said.split_whitespace().collect::<Vec<_>>().join(" "),
    )
}

#[test]
fn a_source_that_cannot_be_fetched_and_a_program_that_fails_are_left_out() {
    let cache = tempfile::tempdir().unwrap();
    let (status, said) = failing_redis(":", cache.path());
    assert_eq!(status, Some(6), "{said}");
    let log = cache.path().join("output.log");
    for part in [
        "test suite: fetching the source of redis failed: E: no such source",
        "benchmark with saves: the program failed (exit status: 1): nothing is measured",
        &format!("its output is in {}", log.display()),
        "paper Apollo",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(fs::read_to_string(log).unwrap().contains("it cannot start"));
}

#[test]
fn too_little_memory_is_a_line_and_the_rest_goes_on() {
    let cache = tempfile::tempdir().unwrap();
    let (status, said) = failing_redis("ulimit -v 600000", cache.path());
    assert_eq!(status, Some(6), "{said}");
    let why = "benchmark with saves: address space is limited to 585 MiB and 1 GiB is needed";
    assert!(
        said.contains(why) && said.contains("paper Apollo"),
        "{said}"
    );
}

#[test]
fn an_unknown_name_is_wrong_usage() {
    let output = lab(&["experiment", "vma-locks"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("vma-lock"),
        "the near name is offered"
    );
    assert_eq!(lab(&["experiment"]).status.code(), Some(2));
}
