//! `explain` and `top` under adverse conditions: other users, other pid namespaces, no access to
//! the kernel's own data, processes that end while they are read, and traces of other machines.

use crate::support::leash::{self, Leashed};
use crate::support::{Idle, Nobody, VMAREA, text, vmarea};
use std::process::{Command, Output, Stdio};

#[test]
fn an_ordinary_user_is_told_what_is_hidden_and_what_would_show_it() {
    let Some(nobody) = Nobody::new() else {
        return;
    };
    let cat = Idle::start(&mut nobody.command("cat"));
    let output = nobody.vmarea(&["explain", "-p", &cat.pid()]);
    drop(cat);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let hidden = std::fs::read_to_string("/proc/sys/kernel/unprivileged_bpf_disabled");
    if hidden.is_ok_and(|setting| setting.trim() != "0") {
        assert!(said.contains("likely, not certain"), "{said}");
        assert!(said.contains("CAP_BPF"), "{said}");
    }
}

#[test]
fn top_counts_what_it_may_not_look_into() {
    let Some(nobody) = Nobody::new() else {
        return;
    };
    let cat = Idle::cat();
    let output = nobody.vmarea(&["top", "--once", "-n", "0", "--json"]);
    let look: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    let pid = cat.0.id();
    drop(cat);
    assert_eq!(output.status.code(), Some(0));
    assert!(look["unreadable"].as_u64() > Some(0), "{look}");
    let rows = look["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["pid"] != pid), "{look}");
}

/// Runs a shell script in a new pid namespace; returns `None` if that is not permitted.
fn in_namespace(options: &[&str], script: &str, argument: &str) -> Option<Output> {
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork"])
            .args(options)
            .args(["sh", "-c", script, VMAREA, argument]);
        leash::output(&mut command).expect("unshare")
    };
    let possible = unshare("true");
    if !possible.status.success() {
        eprintln!("skipped: no pid namespace: {}", text(&possible.stderr));
        return None;
    }
    Some(unshare(script))
}

#[test]
fn a_number_of_another_namespace_is_no_process_here() {
    let cat = Idle::cat();
    let pid = cat.pid();
    let output = in_namespace(&["--mount-proc"], r#""$0" explain -p "$1""#, &pid);
    drop(cat);
    let Some(output) = output else { return };
    let said = crate::support::complaint(&output, 1);
    assert!(said.contains("NSpid"), "{said}");
}

#[test]
fn the_list_of_another_namespace_is_not_mixed_with_a_view_of_this_one() {
    // In the other namespace, this pid belongs to another process or to none.
    let cat = Idle::cat();
    let pid = cat.pid();
    let output = in_namespace(&[], r#""$0" explain --json -p "$1""#, &pid);
    drop(cat);
    let Some(output) = output else { return };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!(said["source"], "maps", "{said}");
    let why = said["without_view"].as_str().unwrap();
    assert!(why.contains("pid namespace"), "{why}");
    assert_eq!(said["changed"], 0);
}

#[test]
fn a_process_that_ends_midway_has_ended() {
    for delay in 0..40 {
        let mut child = Idle::cat();
        let mut explain = Command::new(VMAREA);
        explain
            .args(["explain", "--all", "--json", "-p", &child.pid()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let explain = Leashed::start(&mut explain).unwrap();
        std::thread::sleep(std::time::Duration::from_micros(delay * 500));
        child.0.kill().unwrap();
        // In every second round the process is reaped at once, so that its pid no longer exists.
        if delay % 2 == 0 {
            child.0.wait().unwrap();
        }
        let output = leash::finish(explain).unwrap();
        child.0.wait().unwrap();
        let said = text(&output.stderr);
        match output.status.code() {
            Some(0) => {
                let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
                assert_eq!(report["mappings"], report["rows"].as_array().unwrap().len());
            }
            Some(1) => {
                let known = said.contains("has ended") || said.contains("there is no process");
                assert!(known && said.lines().count() == 1, "{said}");
            }
            other => panic!("{other:?}: {said}"),
        }
    }
}

#[test]
fn a_trace_is_explained_at_its_peak() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/java-zgc.vmtrace");
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = vmarea(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON alone")
    };
    let report = json(&["explain", "--from", trace, "--json"]);
    let replay = json(&["replay", "--policy", "linux", "--json", trace]);
    let most = &replay["policies"]["linux"]["vmas_peak_single"];
    assert_eq!(
        (&report["mappings"], &report["source"]),
        (most, &"replay".into())
    );
    assert!(report["limit"].as_u64() > Some(0), "{report}");
    let range = vmarea(&["explain", "--from", trace, "--range", "1000,2000"]);
    assert!(crate::support::complaint(&range, 2).contains("--range"));
    let stacks = vmarea(&["explain", "--from", trace, "--stacks"]);
    assert!(crate::support::complaint(&stacks, 2).contains("stacks need a recording"));
}

#[test]
fn a_log_of_strace_ends_in_advice_and_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (log, trace) = (path("log"), path("trace"));
    let mut lines = String::new();
    for n in 0..300_u64 {
        let (tid, start) = (4343 + n % 2, 0x7f8e_0000_0000 - n * 0x10_1000);
        let rest = "PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0)";
        lines += &format!("[pid  {tid}] mmap(NULL, 1052672, {rest} = {start:#x}\n");
        lines += &format!("[pid  {tid}] mprotect({start:#x}, 4096, PROT_NONE) = 0\n");
    }
    lines += "[pid  4343] mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3, 0) = 0x7f0000000000\n";
    std::fs::write(&log, lines).unwrap();
    let said = crate::support::complaint(&vmarea(&["explain", "--from", &log]), 1);
    assert!(said.contains("vmarea trace import --from strace"), "{said}");
    let imported = vmarea(&["trace", "import", "--from", "strace", &log, "-o", &trace]);
    assert!(imported.status.success(), "{imported:?}");
    assert!(text(&imported.stderr).contains("strace -y"), "{imported:?}");
    let explained = vmarea(&["explain", "--from", &trace]);
    let said = text(&explained.stdout);
    assert!(explained.status.success(), "{explained:?}");
    assert!(
        said.contains("program without a known name: 601 mappings"),
        "{said}"
    );
    assert!(said.contains("no verdict on the limit"), "{said}");
    assert!(said.contains("MADV_GUARD_INSTALL"), "{said}");
    assert!(text(&explained.stderr).contains("older ones are missing"));
}
