//! `vmarea run` and `record` do not change what a program does, and keep the trace when killed.

use crate::support::leash::{self, Leashed};
use crate::support::programs::program;
use crate::support::{VMAREA, text, vmarea};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The beginning of an older trace, which a recording may replace.
const OLD: &[u8] = b"\x89vmarea\nold";

fn is_root() -> bool {
    let root = text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0";
    if !root {
        eprintln!("skipped: only root has capabilities to lose");
    }
    root
}

/// Asserts that the program prints the same output with and without a recorder, and that the
/// results of the replay equal the kernel's.
fn is_equal(case: &str) {
    let program = &program("rights.c");
    let natively = leash::output(Command::new(program).arg(case)).unwrap();
    assert!(natively.status.success(), "{natively:?}");
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let json = report.to_str().unwrap();
    let recorded = vmarea(&["run", &format!("--json={json}"), "--", program, case]);
    assert!(recorded.status.success(), "{case}: {recorded:?}");
    let said = text(&recorded.stdout);
    assert!(said.starts_with(&text(&natively.stdout)), "{case}: {said}");
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let verify = &report["verify"];
    assert_eq!(verify["differences"], 0, "{case}: {said}");
    assert!(verify["results_compared"].as_u64() > Some(0), "{case}");
    assert_eq!(report["lost"], 0, "{case}");
}

#[test]
fn capabilities_that_change_after_execve_decide_about_locked_memory() {
    if is_root() {
        for case in ["uid", "euid", "capset", "thread", "namespace"] {
            is_equal(case);
        }
    }
}

#[test]
fn limits_are_those_of_the_process() {
    if is_root() {
        for case in ["other", "told", "vfork"] {
            is_equal(case);
        }
    }
}

/// Script that counts a signal for a moment and exits with the count.
const COUNTS: &str = "n=0; trap 'n=$((n+1))' INT HUP QUIT TERM; echo ready; i=0; \
     while [ $i -lt 15 ]; do sleep 0.1; i=$((i+1)); done; exit $n";

fn counting(prefix: &[&str]) -> (Leashed, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("env");
    command
        // A shell cannot trap a signal that was ignored when the shell started, as in a background
        // job.
        .arg("--default-signal")
        .args(prefix)
        .args([VMAREA, "record", "-o"])
        .arg(folder.path().join("trace"))
        .args(["--", "sh", "-c", COUNTS])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = Leashed::start(&mut command).unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.as_mut().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, folder)
}

fn send(signal: &str, whom: &str) {
    let sent = Command::new("kill").args([signal, "--", whom]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn signals_that_vmarea_gets_alone_are_passed_on() {
    for signal in ["-INT", "-HUP", "-QUIT", "-TERM"] {
        let (mut child, _folder) = counting(&[]);
        send(signal, &child.id().to_string());
        assert_eq!(child.wait().unwrap().code(), Some(1), "{signal}");
    }
}

#[test]
fn signals_that_the_group_gets_come_once() {
    for signal in ["-INT", "-HUP", "-TERM"] {
        // `setsid` creates a new session, so that the process group contains only vmarea and the
        // command. The child is not yet a group leader, so `setsid` does not fork.
        let (mut child, _folder) = counting(&["setsid"]);
        let leader = child.id();
        send(signal, &format!("-{leader}"));
        assert_eq!(child.wait().unwrap().code(), Some(1), "{signal}");
    }
}

#[test]
fn a_trace_grows_and_can_be_read_when_vmarea_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    for words in [&["record", "-o"][..], &["run", "--trace"]] {
        let trace = folder.path().join(words[0]);
        std::fs::write(&trace, OLD).unwrap();
        let mut command = Command::new(VMAREA);
        command
            .args(words)
            .arg(&trace)
            .args(["--", "sh", "-c", "while :; do ls / >/dev/null; done"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = Leashed::start(&mut command).unwrap();
        let bytes = || std::fs::metadata(&trace).map_or(0, |meta| meta.len());
        let grows_beyond = |least: u64| {
            let until = Instant::now() + leash::LIMIT;
            while bytes() <= least {
                assert!(Instant::now() < until, "{least} bytes and no more");
                std::thread::sleep(Duration::from_millis(50));
            }
            bytes()
        };
        let first = grows_beyond(1000);
        let second = grows_beyond(first);
        send("-KILL", &child.id().to_string());
        child.wait().unwrap();
        let path = trace.to_str().unwrap();
        let dump = vmarea(&["trace", "dump", path]);
        let said = text(&dump.stdout);
        assert!(said.contains("mmap("), "{second} bytes: {said}");
        assert!(said.contains("execve") || said.contains("exec"), "{said}");
        // No other file remains.
        let left = folder.path().read_dir().unwrap().count();
        assert_eq!(left, 1);
        std::fs::remove_file(&trace).unwrap();
    }
}

#[test]
fn a_program_that_cannot_begin_leaves_the_old_trace() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    std::fs::write(&trace, OLD).unwrap();
    let broken = folder.path().join("broken");
    std::fs::write(&broken, "#!/nonexistent/interpreter\n").unwrap();
    let mut chmod = Command::new("chmod");
    assert!(chmod.arg("+x").arg(&broken).status().unwrap().success());
    let paths = [&trace, &broken].map(|path| path.to_str().unwrap());
    let output = vmarea(&["record", "-o", paths[0], "--", paths[1]]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(std::fs::read(&trace).unwrap(), OLD);
}
