//! Follows the advice of `explain`: the command that it prints removes the reported boundaries.

use crate::support::VMAREA;
use std::process::Command;
use vmarea::types::VmRange;
use vmarea_process::{AskKernel, Process, Remedy, Smaps};
use vmarea_repair::{Options, Remote};
use vmarea_test_support::boundaries::Program;
use vmarea_test_support::leash;

/// Number of boundaries in each case: enough for `explain` to advise a repair.
const N: u64 = 2_200;

/// Returns the JSON report on the process.
fn explained(pid: i32) -> serde_json::Value {
    let mut command = Command::new(VMAREA);
    command.args(["explain", "--json", "-p", &pid.to_string()]);
    let output = leash::output(&mut command).unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON alone")
}

/// Runs the command as a shell would, with a `--max-pause` for busy machines.
fn run(command: &str) -> std::process::Output {
    let words = command.strip_prefix("vmarea ").expect("a command of ours");
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(format!("exec \"$0\" {words} --max-pause 1s"))
        .arg(VMAREA);
    leash::output(&mut shell).unwrap()
}

/// True if the kernel's own data about address spaces can be read.
///
/// Without this data `explain` advises no repair, because the reason for a boundary could be
/// hidden.
fn is_all_seen() -> bool {
    let view = vmarea_process::view::KernelView::open();
    view.inspect_err(|error| eprintln!("skipped: {error}"))
        .is_ok()
}

#[test]
fn the_advised_command_takes_away_what_was_promised() {
    if let Err(error) = vmarea_repair::can_repair_itself() {
        return eprintln!("skipped: {error}");
    }
    if !is_all_seen() {
        return;
    }
    let program = Program::compile();
    for (name, share) in [
        ("page_offset", 1),
        ("anon_vma_committed", 1),
        ("anon_vma_mapped", 1),
        ("anon_vma_inherited", 1),
        ("anon_vma_shared_with_child", 1),
        ("guard_protected", 1),
        ("guard_reserved", 2),
        ("guard_touched_apart", 2),
        ("flags_dontfork", 1),
        ("flags_decommitted", 1),
    ] {
        let case = program.start(name, N).expect("every Linux makes this");
        let before = explained(case.pid);
        let promised = before["joinable"].as_u64().unwrap();
        assert_eq!(promised, N / share, "{name}: {before}");
        let command = before["advice"]["command"].as_str().expect("a command");
        let planned = stage(&before, command);
        let output = run(command);
        assert_eq!(output.status.code(), Some(0), "{command}: {output:?}");
        let after = explained(case.pid);
        assert_eq!(
            after["mappings"], planned["after"],
            "{name}: {command}: {output:?}: {after}"
        );
        let gone = before["mappings"].as_u64().unwrap() - after["mappings"].as_u64().unwrap();
        assert_eq!(gone, promised, "{name}: {command}: {output:?}: {after}");
        assert_eq!(after["joinable"], 0, "{name}: {after}");
    }
}

/// Returns the stage of the plan that has this command.
fn stage<'a>(report: &'a serde_json::Value, command: &str) -> &'a serde_json::Value {
    let plan = &report["plan"];
    let not_safe = plan["not_safe"].as_array().unwrap();
    let mut stages = std::iter::once(&plan["safe"]).chain(not_safe);
    let stage = stages.find(|stage| stage["command"] == command);
    stage.expect("the advice is a part of the plan")
}

/// Returns the number of mappings that a dry run of `command` promises.
fn dry_run(command: &str) -> u64 {
    let words = command.split_whitespace().skip(1);
    let words = words.filter(|word| *word != "--apply");
    let mut dry = Command::new(VMAREA);
    dry.args(words).args(["--json"]);
    let output = leash::output(&mut dry).unwrap();
    assert_eq!(output.status.code(), Some(0), "{command}: {output:?}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    said["after"].as_u64().unwrap()
}

#[test]
fn explain_the_dry_run_and_the_result_have_the_same_count() {
    if let Err(error) = vmarea_repair::can_repair_itself() {
        return eprintln!("skipped: {error}");
    }
    if !is_all_seen() {
        return;
    }
    let program = Program::compile();
    for name in [
        "several_habits",
        "guard_touched_apart",
        "anon_vma_shared_with_child",
    ] {
        let case = program.start(name, N).expect("every Linux makes this");
        loop {
            let report = explained(case.pid);
            let plan = &report["plan"];
            let not_safe = plan["not_safe"].as_array().unwrap();
            let mut stages = std::iter::once(&plan["safe"]).chain(not_safe);
            let Some(stage) = stages.find(|stage| !stage["command"].is_null()) else {
                break;
            };
            let command = stage["command"].as_str().unwrap();
            let promised = stage["after"].as_u64().unwrap();
            assert_eq!(dry_run(command), promised, "{name}: {command}: {stage}");
            let output = run(command);
            assert_eq!(output.status.code(), Some(0), "{command}: {output:?}");
            let left = explained(case.pid)["mappings"].as_u64().unwrap();
            assert_eq!(left, promised, "{name}: {command}: {output:?}");
        }
    }
}

#[test]
fn what_repairs_leave_is_not_advised() {
    if !is_all_seen() {
        return;
    }
    let program = Program::compile();
    for name in ["flags_random", "flags_wipeonfork", "heap_flags"] {
        let case = program.start(name, N).expect("every Linux makes this");
        let said = explained(case.pid);
        assert_eq!(said["joinable"], 0, "{name}: {said}");
        assert!(said["advice"]["command"].is_null(), "{name}: {said}");
    }
}

#[test]
fn explain_counts_what_a_merge_plans() {
    let kernel = match is_all_seen() {
        true => (AskKernel::Try, Smaps::Never),
        // Without the kernel's view, a merge reads the flags from `smaps`.
        false => (AskKernel::Never, Smaps::Always),
    };
    let program = Program::compile();
    let options = Options {
        copy_pages: u64::MAX,
        ..Options::default()
    };
    let mut merged = 0;
    for seed in 0..100 {
        let case = program.start("random_layout", seed).expect("a layout");
        let (ask_kernel, smaps) = kernel;
        let mut process = Process::live(case.pid, ask_kernel, smaps).unwrap();
        let (start, end) = case.range;
        process.narrow(VmRange::new(start, end));
        let boundaries = process.boundaries();
        let counted = boundaries.iter().filter(|boundary| {
            let remedy = boundary.remedy;
            remedy.is_some_and(Remedy::takes_pages)
        });
        let remote = match Remote::new(case.pid, options) {
            Ok(remote) => remote,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let survey = remote.survey(&(start..end), &[]).unwrap();
        let counted = counted.count() as u64;
        assert_eq!(
            counted,
            survey.mappings - survey.after,
            "seed {seed}: {survey:?} {boundaries:?}"
        );
        merged += counted;
    }
    assert!(merged > 300, "only {merged} in all layouts");
}
