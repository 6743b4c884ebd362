//! `vmarea merge` on processes that this test starts, and on processes that the command must
//! refuse.
//!
//! The tests of `vmarea-repair` and `vmarea-repair-capi` check how pages are moved. The tests here
//! run complete merges as a script would, and check which merges are refused.

use crate::support::heap::{self, Heap, complaint, may_merge};
use crate::support::leash::{self, Leashed};
use crate::support::target::left_by_merges;
use crate::support::{Nobody, VMAREA};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Program with 500 mappings that can become one; waits for a line, then checks every byte.
const PROGRAM: &str = r#"
pages = 500
area = make(pages, 1, lambda p, i: ctypes.memset(p, i % 251, page))
for line in sys.stdin:
    wrong = sum(ctypes.string_at(area + i * page, page) != bytes([i % 251]) * page for i in range(pages))
    print("wrong", wrong, flush=True)
"#;

/// Waits until a process is stopped.
///
/// A stop signal takes effect only when the process is next scheduled, which can be a while after
/// the signal was sent or after a tracer released the process.
fn wait_until_stopped(heap: &Heap) {
    let status = || std::fs::read_to_string(format!("/proc/{}/status", heap.pid())).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !status().contains("State:\tT") {
        assert!(Instant::now() < until, "{}", status());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn merge(arguments: &[&str]) -> Output {
    leash::output(Command::new(VMAREA).arg("merge").args(arguments)).expect("the binary was built")
}

#[test]
fn a_dry_run_changes_nothing_and_a_merge_no_byte() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start(PROGRAM);
    let before = heap.mappings();
    let dry = heap.said(&[]);
    assert_eq!((&dry["before"], &dry["after"]), (&500.into(), &1.into()));
    assert_eq!(heap.mappings(), before);

    let done = heap.said(&["--apply"]);
    assert_eq!((&done["before"], &done["after"]), (&500.into(), &1.into()));
    assert_eq!(heap.mappings(), before - 499);
    assert_eq!(heap.ask("look"), "wrong 0");

    // Nothing remains to be merged, and no part of the first merge remains in the process.
    let again = heap.merge(&["--range", &heap.range, "--apply"]);
    assert_eq!(again.status.code(), Some(4), "{again:?}");
    assert!(complaint(&again).contains("nothing to merge"));
    let resume = heap.merge(&["--resume"]);
    assert_eq!(resume.status.code(), Some(4), "{resume:?}");
    assert_eq!(left_by_merges(&heap.pid()), 0);
}

#[test]
fn a_stopped_process_stays_stopped() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start(PROGRAM);
    let pid = heap.pid();
    let signal = |name: &str| leash::output(Command::new("kill").args([name, &pid])).unwrap();
    signal("-STOP");
    wait_until_stopped(&heap);
    heap.said(&["--apply"]);
    wait_until_stopped(&heap);
    signal("-CONT");
    assert_eq!(heap.ask("look"), "wrong 0");
}

#[test]
fn what_cannot_be_merged_is_said_in_one_line() {
    let cases: [(&[&str], i32, &str); 3] = [
        (&["-p", "2147483647"], 1, "no process"),
        // A kernel thread.
        (&["-p", "2"], 4, "kernel thread"),
        (&["-p", "1", "--max-pause", "1ns"], 2, "is not a unit"),
    ];
    for (arguments, status, words) in cases {
        let output = merge(arguments);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {output:?}"
        );
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
}

#[test]
fn a_traced_process_is_left_alone() {
    let heap = Heap::start(PROGRAM);
    let mut strace = Command::new("strace");
    strace
        .args(["-q", "-o", "/dev/null", "-p", &heap.pid()])
        .stderr(Stdio::null());
    let mut tracer = Leashed::start(&mut strace).expect("strace");
    let status = format!("/proc/{}/status", heap.pid());
    while std::fs::read_to_string(&status)
        .unwrap()
        .contains("TracerPid:\t0\n")
    {
        assert!(
            tracer.try_wait().unwrap().is_none(),
            "strace may not trace here"
        );
    }
    let output = merge(&["-p", &heap.pid(), "--apply"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(complaint(&output).contains("traced by process"));
}

#[test]
fn another_users_process_needs_a_permission() {
    let Some(nobody) = Nobody::new() else {
        return;
    };
    let heap = Heap::start(PROGRAM);
    let output = nobody.vmarea(&["merge", "-p", &heap.pid(), "--apply"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(complaint(&output).contains("CAP_SYS_PTRACE"));
}

/// 32-bit program that calls `pause` in a loop.
const PROGRAM_32: [u8; 95] = {
    let mut bytes = [0; 95];
    let head: [&[u8]; 4] = [
        // An i386 executable with the entry point 0x08048054.
        b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0\x01\0\0\0\x54\x80\x04\x08",
        b"\x34\0\0\0\0\0\0\0\0\0\0\0\x34\0\x20\0\x01\0\0\0\0\0\0\0",
        // One segment: the whole file, readable and executable.
        b"\x01\0\0\0\0\0\0\0\0\x80\x04\x08\0\x80\x04\x08\x5f\0\0\0\x5f\0\0\0\x05\0\0\0\0\x10\0\0",
        // mov eax, 29; int 0x80; jmp back
        b"\xb8\x1d\0\0\0\xcd\x80\xeb\xf7\0\0",
    ];
    let (mut part, mut at) = (0, 0);
    while part < head.len() {
        let mut n = 0;
        while n < head[part].len() {
            bytes[at] = head[part][n];
            (n, at) = (n + 1, at + 1);
        }
        part += 1;
    }
    bytes
};

#[test]
fn a_32_bit_program_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waits");
    std::fs::write(&path, PROGRAM_32).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let Ok(child) = Leashed::start(&mut Command::new(&path)) else {
        eprintln!("skipped: this machine runs no 32-bit programs");
        return;
    };
    let output = merge(&["-p", &child.id().to_string(), "--apply"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(complaint(&output).contains("32-bit"));
}

#[test]
fn a_process_in_a_namespace_of_its_own_is_merged() {
    if !may_merge() {
        return;
    }
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--pid", "--fork", "--kill-child"])
        .args(heap::python(PROGRAM))
        .stderr(Stdio::null());
    let mut heap = Heap::start_as(&mut unshare);
    if heap.range.is_empty() {
        eprintln!("skipped: no namespaces here");
        return;
    }
    // The program is the child of `unshare`.
    let children = format!("/proc/{0}/task/{0}/children", heap.pid());
    let pid = std::fs::read_to_string(children).unwrap().trim().to_owned();
    let base = ["-p", &pid, "--range", &heap.range];
    let output = merge(&[&base[..], &["--apply", "--max-pause", "1s"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(heap.ask("look"), "wrong 0");
}

#[test]
fn numbers_of_another_namespace_are_refused() {
    // The command runs in a new pid namespace, but with the `/proc` of the old one.
    let mut heap = Heap::start(PROGRAM);
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--pid", "--fork", VMAREA, "merge", "--apply", "-p"])
        .arg(heap.pid());
    let output = leash::output(&mut unshare).expect("unshare");
    if String::from_utf8_lossy(&output.stderr).contains("unshare") {
        eprintln!("skipped: no namespaces here");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(complaint(&output).contains("another pid namespace"));
    assert_eq!(heap.ask("look"), "wrong 0");
}
