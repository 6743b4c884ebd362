//! Usage errors of new users, and features that a machine may lack.
//!
//! The command must print one line with the actual reason, and return the right exit status.

use crate::support::VMAREA;
use crate::support::vmarea;
use std::process::{Command, Output};

/// Checks a command's exit status, and returns what the command wrote to standard error.
fn said(output: &Output, status: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// Runs a shell script, in which `$0` is vmarea.
fn shell(script: &str) -> Output {
    let shell = Command::new("sh").args(["-c", script, VMAREA]).output();
    shell.expect("sh")
}

/// True for root, who alone can drop privileges.
fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id");
    id.stdout == b"0\n"
}

#[test]
fn a_folder_that_is_not_there_is_named_in_the_kernels_words() {
    for arguments in [
        &["run", "--json=/nonexistent/x", "--", "true"][..],
        &["record", "-o", "/nonexistent/x", "--", "true"],
        &["top", "--once", "--json=/nonexistent/x"],
    ] {
        let text = said(&vmarea(arguments), 1);
        assert!(
            text.contains("cannot create /nonexistent/x: No such file or directory"),
            "{text}"
        );
        assert!(!text.contains(".vmarea-"), "{text}");
    }
}

#[test]
fn a_part_of_the_limit_is_between_nothing_and_all_of_it() {
    for wrong in ["150%", "-1%", "NaN%", "inf%"] {
        let text = said(
            &vmarea(&["explain", "-p", "1", &format!("--fail-above={wrong}")]),
            2,
        );
        assert!(text.contains("between 0% and 100%"), "{wrong}: {text}");
    }
}

#[test]
fn all_options_take_a_length_of_time_in_one_form() {
    // No process has this number.
    let nobody = i32::MAX.to_string();
    for option in [
        &["merge", "-p", &nobody, "--max-pause"][..],
        &["record", "-o", "/nonexistent/x", "-p", &nobody, "--for"],
        &["explain", "-p", &nobody, "--record"],
        &["top", "--once", "-n", "1", "--interval"],
        &["run", "--keep-merged", "--trace", "x", "--max-pause"],
    ] {
        let with = |time| vmarea(&[option, &[time]].concat());
        let unit = said(&with("2"), 2);
        assert!(unit.contains("write 2s for seconds"), "{option:?}: {unit}");
        let unit = said(&with("2x"), 2);
        assert!(unit.contains("use us, ms, s, m or h"), "{option:?}: {unit}");
        let range = said(&with("0s"), 2);
        assert!(
            range.contains("a length of time from "),
            "{option:?}: {range}"
        );
        for good in ["500000us", "500ms", "1s", "1m", "0.5h"] {
            let text = String::from_utf8(with(good).stderr).unwrap();
            assert!(!text.contains("invalid value"), "{option:?} {good}: {text}");
        }
    }
}

#[test]
fn the_choices_of_a_merge_are_named_if_one_is_wrong() {
    for (option, choices) in [
        ("--by", "[possible values: move, copy]"),
        (
            "--fix",
            "[possible values: guards, flags, empties, priming]",
        ),
    ] {
        let text = said(&vmarea(&["merge", "-p", "1", option, "x"]), 2);
        assert!(text.contains(choices), "{text}");
    }
}

#[test]
fn root_that_lacks_a_capability_is_told_which_and_not_to_be_root() {
    if !is_root() {
        return;
    }
    for (command, capability) in [
        ("top --once", "CAP_SYS_PTRACE"),
        ("merge -p 1", "CAP_SYS_PTRACE"),
        ("show graph -p 1", "CAP_BPF and CAP_PERFMON"),
    ] {
        let without = "setpriv --bounding-set -sys_ptrace,-bpf,-perfmon,-sys_admin";
        let output = shell(&format!("{without} \"$0\" {command}"));
        let mut text = String::from_utf8_lossy(&output.stderr).into_owned();
        text += &String::from_utf8_lossy(&output.stdout);
        assert!(
            text.contains(&format!("root lacks {capability}")),
            "{command}: {text}"
        );
        assert!(!text.contains("run as root"), "{command}: {text}");
    }
}

#[test]
fn without_a_list_of_processes_its_absence_is_said() {
    if !is_root() {
        return;
    }
    for command in [
        "run -- true",
        "record -o /dev/null -- true",
        "top --once",
        "explain -p 1",
        "show maps -p 1",
    ] {
        let script = format!("mount -t tmpfs none /proc && exec \"$0\" {command}");
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", &script, VMAREA])
            .output();
        let text = said(&output.expect("unshare"), 1);
        assert!(
            text.contains("/proc shows no processes"),
            "{command}: {text}"
        );
    }
}

#[test]
fn a_version_without_rules_of_its_own_takes_the_nearest_and_says_so() {
    let output = vmarea(&["run", "--policy", "linux-6.6", "--json", "--", "true"]);
    let text = said(&output, 0);
    assert!(
        text.contains("Linux 6.6") && text.contains("Linux 6.1"),
        "{text}"
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let policies = report["policies"].as_object().unwrap();
    assert_eq!(policies.keys().collect::<Vec<_>>(), ["linux", "linux-6.1"]);

    let text = said(&vmarea(&["run", "--policy", "linux-six", "--", "true"]), 2);
    assert!(
        text.contains("linux-six") && text.contains("thesis"),
        "{text}"
    );
}

#[test]
fn an_answer_that_nobody_can_read_is_a_failure() {
    for command in [
        "--help",
        "--version",
        "run --help",
        "show maps -h",
        "top --once",
        "run -- true",
    ] {
        let text = said(&shell(&format!("\"$0\" {command} >/dev/full")), 1);
        assert!(text.contains("No space left"), "{command}: {text}");
    }
}

#[test]
fn json_takes_its_file_in_the_same_form_in_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.vmtrace");
    let trace = trace.to_str().unwrap();
    said(&vmarea(&["record", "-o", trace, "--", "true"]), 0);
    let pid = std::process::id().to_string();
    let file = folder.path().join("json");
    let file = file.to_str().unwrap();
    for command in [
        &["run", "--", "true"][..],
        &["replay", trace],
        &["explain", "-p", &pid],
        &["show", "maps", "-p", &pid],
        &["show", "anatomy", "-p", &pid],
        &["show", "graph", "--trace", trace],
        &["top", "--once"],
        &["trace", "info", trace],
        &["trace", "dump", trace],
    ] {
        let with = |json: &[&str]| {
            // Put `--json` before the other arguments, none of which it takes.
            let words = command
                .iter()
                .take_while(|word| !word.starts_with('-') && **word != trace);
            let at = words.count();
            vmarea(&[&command[..at], json, &command[at..]].concat())
        };
        let output = with(&["--json"]);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {output:?}");
        let first = output.stdout.split(|byte| *byte == b'\n').next().unwrap();
        serde_json::from_slice::<serde_json::Value>(first)
            .unwrap_or_else(|_| panic!("{command:?}"));
        let to_file = || with(&[&format!("--json={file}")]);
        assert_eq!(to_file().status.code(), Some(0), "{command:?}");
        assert!(std::fs::metadata(file).unwrap().len() > 0, "{command:?}");
        assert_eq!(to_file().status.code(), Some(0), "{command:?}");
        std::fs::write(file, "notes\n").unwrap();
        let text = said(&to_file(), 2);
        assert!(text.contains("is not JSON: name another file"), "{text}");
        assert_eq!(std::fs::read(file).unwrap(), b"notes\n");
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_file_of_another_kind_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.vmtrace");
    let trace = trace.to_str().unwrap();
    said(&vmarea(&["record", "-o", trace, "--", "true"]), 0);
    let recorded = std::fs::read(trace).unwrap();
    let pid = std::process::id().to_string();
    for command in [
        &["replay", trace, "--html", trace][..],
        &["show", "anatomy", "-p", &pid, "--svg", trace],
        &["show", "graph", "--trace", trace, "--dot", trace],
        &["show", "graph", "--trace", trace, "--svg", trace],
        &["top", "--once", "--openmetrics", trace],
        &["explain", "--folded", trace, "--", "true"],
        &["explain", "--pprof", trace, "--", "true"],
        &["export", trace, "--perfetto", trace],
        &["export", trace, "--folded", trace],
        &[
            "compare", trace, "--policy", "linux", "--policy", "thesis", "--html", trace,
        ],
    ] {
        let text = said(&vmarea(command), 2);
        assert!(
            text.contains(": name another file, or remove it"),
            "{command:?}: {text}"
        );
        assert_eq!(text.lines().count(), 1, "{command:?}: {text}");
        assert!(std::fs::read(trace).unwrap() == recorded, "{command:?}");
    }
    let notes = folder.path().join("notes");
    std::fs::write(&notes, "notes\n").unwrap();
    let notes = notes.to_str().unwrap();
    let log = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../trace/tests/data/strace-o.txt"
    );
    for command in [
        &["record", "-o", notes, "--", "true"][..],
        &["run", "--trace", notes, "--", "true"],
        &["trace", "import", "--from", "strace", "-o", notes, log],
    ] {
        let text = said(&vmarea(command), 2);
        assert!(text.contains("is not a trace: name another file"), "{text}");
        assert_eq!(std::fs::read(notes).unwrap(), b"notes\n", "{command:?}");
    }
    said(&vmarea(&["record", "-o", trace, "--", "true"]), 0);
}

#[test]
fn no_argument_is_taken_for_the_file_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.vmtrace");
    let trace = trace.to_str().unwrap();
    said(&vmarea(&["record", "-o", trace, "--", "true"]), 0);
    for command in [
        ["trace", "info", "--json", trace],
        ["trace", "dump", "--json", trace],
    ] {
        let output = vmarea(&command);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stdout.starts_with(b"{"), "{output:?}");
    }
}

#[test]
fn the_processes_that_are_waited_for_are_named_with_the_way_to_end_them() {
    let output = vmarea(&["run", "--", "sh", "-c", "sleep 1 & echo $!"]);
    let left = String::from_utf8_lossy(&output.stdout);
    let left = left.lines().next().unwrap_or_default().to_owned();
    let text = said(&output, 0);
    assert!(
        text.contains(&format!("waiting for process {left} that it started")),
        "{text}"
    );
    assert!(text.contains("to end them: kill "), "{text}");
}

#[test]
fn a_method_of_recording_needs_a_recording_and_lists_after_calls_need_stops() {
    let text = said(&vmarea(&["explain", "-p", "1", "--by", "tracing"]), 2);
    assert!(text.contains("--by needs a recording"), "{text}");
    let file = tempfile::tempdir().expect("a folder");
    let trace = file.path().join("trace");
    let trace = trace.to_str().expect("a name");
    let lists = ["--by", "observing", "--checkpoint", "3"];
    let record = [&["record", "-o", trace][..], &lists, &["--", "true"]].concat();
    let text = said(&vmarea(&record), 2);
    assert!(text.contains("record with --by tracing"), "{text}");
}

#[test]
fn a_command_is_traced_if_it_cannot_be_observed() {
    if !is_root() {
        return println!("skipped: without root, nothing can be observed");
    }
    let without = "setpriv --bounding-set -bpf,-perfmon,-sys_admin \"$0\" run";
    let text = said(&shell(&format!("{without} --by observing -- true")), 5);
    assert!(text.contains("CAP_BPF and CAP_PERFMON"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let text = said(&shell(&format!("{without} -- true")), 0);
    assert!(text.contains("recorded"), "{text}");
}
