//! `explain` as used by people and scripts: formats, exit statuses, and invalid targets.

use crate::support::leash::{self, Leashed};
use crate::support::{Idle, Nobody, text, vmarea};
use std::io::Write;
use std::process::{Command, Stdio};

/// Returns the command's one-line error message.
fn complaint(arguments: &[&str], status: i32) -> String {
    crate::support::complaint(&vmarea(arguments), status)
}

fn maps_of(pid: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap()
}

#[test]
fn all_formats_have_every_mapping_of_the_list() {
    let cat = Idle::cat();
    let pid = cat.pid();
    let lines = maps_of(&pid).lines().count();
    for bpf in [&["--no-bpf"][..], &[]] {
        let json = vmarea(&[&["explain", "-p", &pid, "--all", "--json"], bpf].concat());
        let report: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON alone");
        assert_eq!(report["schema"], 2);
        let mappings = report["mappings"].as_u64().unwrap();
        let not_counted = report["not_counted"].as_u64().unwrap();
        assert_eq!(mappings + not_counted, lines as u64);
        let reasons = report["reasons"].as_array().unwrap();
        let sum: u64 = reasons
            .iter()
            .map(|r| r["mappings"].as_u64().unwrap())
            .sum();
        assert_eq!(
            sum + 1,
            mappings,
            "the reasons and the first mapping are all"
        );
        let rows = report["rows"].as_array().unwrap().len();
        assert_eq!(rows as u64, mappings);

        let csv = vmarea(&[&["explain", "-p", &pid, "--all", "--csv"], bpf].concat());
        let csv = text(&csv.stdout);
        let head = "ADDRESS,SIZE,PERM,OFFSET,INODE,FLAGS,MAPPING,REASON,FIX";
        assert_eq!(csv.lines().next(), Some(head));
        assert_eq!(csv.lines().count(), rows + 1);
        let markdown = vmarea(&[&["explain", "-p", &pid, "--all", "--markdown"], bpf].concat());
        assert_eq!(text(&markdown.stdout).lines().count(), rows + 2);
        let table = vmarea(&[&["explain", "-p", &pid, "--all"], bpf].concat());
        assert_eq!(text(&table.stdout).lines().count(), rows + 1);
    }
}

#[test]
fn a_summary_is_short_and_ends_with_advice() {
    let cat = Idle::cat();
    let output = vmarea(&["explain", "-p", &cat.pid()]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(said.lines().count() <= 25, "{said}");
    assert!(
        said.contains("nothing to do") || said.contains("nothing urgent"),
        "{said}"
    );
}

#[test]
fn a_pasted_list_says_what_the_process_says() {
    let cat = Idle::cat();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("maps.txt");
    // A list pasted from a ticket: with other line endings and surrounded by empty lines.
    std::fs::write(
        &path,
        format!("\n{}\n\n", maps_of(&cat.pid())).replace('\n', "\r\n"),
    )
    .unwrap();
    let path = path.to_str().unwrap();
    let reasons = |arguments: &[&str]| {
        let output = vmarea(arguments);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report["reasons"].clone()
    };
    let pasted = reasons(&["explain", "--from", path, "--json"]);
    let live = reasons(&["explain", "-p", &cat.pid(), "--no-bpf", "--json"]);
    assert_eq!(pasted, live);
}

#[test]
fn a_pasted_smaps_has_its_flags() {
    // The process is idle, because a list that changes while it is read is inconsistent.
    let cat = Idle::cat();
    let smaps = std::fs::read(format!("/proc/{}/smaps", cat.pid())).unwrap();
    let mut command = Command::new(crate::support::VMAREA);
    command
        .args(["explain", "--from", "-", "--all", "--csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = Leashed::start(&mut command).unwrap();
    child.stdin.take().unwrap().write_all(&smaps).unwrap();
    let output = leash::finish(child).unwrap();
    assert!(
        text(&output.stdout).contains(",rd ex mr mw me,"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn rss_is_read_only_when_it_is_asked_for() {
    let cat = Idle::cat();
    let with = vmarea(&["explain", "-p", &cat.pid(), "--rss", "--all", "--csv"]);
    assert!(text(&with.stdout).starts_with("ADDRESS,SIZE,RSS,"));
    let without = vmarea(&["explain", "-p", &cat.pid(), "--all", "--csv"]);
    assert!(text(&without.stdout).starts_with("ADDRESS,SIZE,PERM,"));
}

#[test]
fn a_threshold_ends_with_three() {
    let cat = Idle::cat();
    for (limit, status) in [("0%", 3), ("70%", 0), ("1", 3), ("60000", 0)] {
        let output = vmarea(&["explain", "-p", &cat.pid(), "--fail-above", limit]);
        assert_eq!(output.status.code(), Some(status), "{limit}");
        assert!(!output.stdout.is_empty(), "the report is there in any case");
    }
}

#[test]
fn a_range_shows_a_part() {
    let cat = Idle::cat();
    let maps = maps_of(&cat.pid());
    let first = maps.split(' ').next().unwrap();
    let output = vmarea(&[
        "explain",
        "-p",
        &cat.pid(),
        "--all",
        "--csv",
        "--range",
        first,
    ]);
    assert_eq!(text(&output.stdout).lines().count(), 2, "{first}");
    let nothing = complaint(&["explain", "-p", &cat.pid(), "--range", "1,2"], 4);
    assert!(nothing.contains("no mapping between 1 and 2"), "{nothing}");
}

#[test]
fn subjects_that_are_none_are_named_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let prose = write("prose", b"Dear all,\nthe server is down.\n");
    let said = complaint(&["explain", "--from", &prose], 1);
    assert!(said.contains("prose") && said.contains("line 1"), "{said}");
    let binary = write("binary", &[0xff; 4096]);
    complaint(&["explain", "--from", &binary], 1);
    complaint(&["explain", "--from", &write("empty", b"")], 4);
    let twice = format!("{0}{0}", maps_of("self"));
    let said = complaint(&["explain", "--from", &write("twice", twice.as_bytes())], 1);
    assert!(said.contains("two lists"), "{said}");
    complaint(&["explain", "--from", "/nonexistent/maps"], 1);
    let said = complaint(&["explain", "-p", "2147483647"], 1);
    assert!(said.contains("no process 2147483647"), "{said}");
}

#[test]
fn a_process_that_has_ended_and_one_without_mappings_are_told_apart() {
    let mut ended = Leashed::start(&mut Command::new("true")).unwrap();
    let pid = ended.id().to_string();
    // The process becomes a zombie as soon as it ends, because it is not waited for yet.
    while !std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .unwrap()
        .contains(") Z ")
    {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let said = complaint(&["explain", "-p", &pid], 1);
    assert!(said.contains("has ended"), "{said}");
    ended.wait().unwrap();
    let kthreadd = std::fs::read_to_string("/proc/2/comm").unwrap_or_default();
    if kthreadd.trim() == "kthreadd" {
        let said = complaint(&["explain", "-p", "2"], 4);
        assert!(said.contains("kernel thread"), "{said}");
    }
}

#[test]
fn another_users_process_needs_a_permission_and_says_which() {
    let Some(nobody) = Nobody::new() else {
        return;
    };
    let cat = Idle::cat();
    let said = crate::support::complaint(&nobody.vmarea(&["explain", "-p", &cat.pid()]), 5);
    assert!(said.contains("CAP_SYS_PTRACE"), "{said}");
}

#[test]
fn wrong_usage_ends_with_two() {
    for arguments in [
        &["explain"][..],
        &["explain", "-p", "0"],
        &["explain", "-p", "x"],
        &["explain", "-p", "1", "--from", "maps"],
        &["explain", "-p", "1", "--range", "2000,1000"],
        &["explain", "-p", "1", "--fail-above", "much"],
        &["explain", "-p", "1", "--json", "--csv"],
    ] {
        assert_eq!(vmarea(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

/// A list that has a mapping with free space below it `mappings` times, and a stack.
fn long_list(mappings: u64) -> String {
    let line = |n: u64| {
        format!(
            "{:x}000-{:x}000 rw-p 00000000 00:00 0 \n",
            0x10000 + 2 * n,
            0x10001 + 2 * n
        )
    };
    let lines: String = (1..mappings).map(line).collect();
    lines + "7ffd1c000000-7ffd1c021000 rw-p 00000000 00:00 0                          [stack]\n"
}

#[test]
fn a_list_is_compared_with_no_limit_but_a_stated_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("maps");
    std::fs::write(&path, long_list(70_000)).unwrap();
    let from = ["explain", "--from", path.to_str().unwrap()];
    let with = |more: &[&str]| vmarea(&[&from[..], more].concat());
    let said = text(&with(&[]).stdout);
    assert!(
        said.contains("the limit is not in the list; --limit N states it"),
        "{said}"
    );
    assert!(
        !said.contains("of the limit") && !said.contains("far away"),
        "{said}"
    );
    let report: serde_json::Value = serde_json::from_slice(&with(&["--json"]).stdout).unwrap();
    assert!(report["limit"].is_null() && report["incomplete"].is_null());
    let said = text(&with(&["--limit", "280000"]).stdout);
    assert!(said.contains("25.0 % of the limit of 280,000"), "{said}");
    let lower = with(&["--limit", "65530"]);
    let note = "the list has more mappings than --limit 65530 allows";
    assert!(text(&lower.stderr).contains(note), "{lower:?}");
    let said = complaint(&[&from[..], &["--fail-above", "70%"]].concat(), 2);
    assert!(
        said.contains("--fail-above: the limit is not in the list"),
        "{said}"
    );
    assert_eq!(with(&["--fail-above", "60000"]).status.code(), Some(3));
    assert_eq!(
        with(&["--fail-above", "20%", "--limit", "280000"])
            .status
            .code(),
        Some(3)
    );
    let of_process = vmarea(&["explain", "-p", "1", "--limit", "7"]);
    assert_eq!(of_process.status.code(), Some(2), "a process has its limit");
}

#[test]
fn a_list_from_which_lines_were_cut_gives_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("maps");
    let list = long_list(100);
    let lines: Vec<_> = list.lines().collect();
    let cut = format!(
        "{}\n<65,000 more>\n{}\n",
        lines[..5].join("\n"),
        lines[90..].join("\n")
    );
    std::fs::write(&path, cut).unwrap();
    let from = [
        "explain",
        "--from",
        path.to_str().unwrap(),
        "--limit",
        "65530",
    ];
    let output = vmarea(&from);
    let said = text(&output.stdout);
    assert!(
        said.contains("no verdict on the limit: mappings may be missing"),
        "{said}"
    );
    assert!(said.contains("unknown: the list was cut here"), "{said}");
    assert!(
        !said.contains("far away") && !said.contains("of the limit"),
        "{said}"
    );
    let unknown = vmarea(&[&from[..], &["--fail-above", "60000"]].concat());
    assert_eq!(unknown.status.code(), Some(2));
    let said = text(&unknown.stderr);
    assert!(
        said.contains("--fail-above: mappings may be missing from the list"),
        "{said}"
    );
    assert_eq!(
        vmarea(&[&from[..], &["--fail-above", "10"]].concat())
            .status
            .code(),
        Some(3)
    );
}

#[test]
fn a_core_larger_than_any_text_is_read() {
    let core = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../process/tests/pasted/samples/core.bin"
    );
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&std::fs::read(core).unwrap()).unwrap();
    file.as_file().set_len(10 << 30).unwrap();
    let output = vmarea(&["explain", "--from", file.path().to_str().unwrap(), "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["mappings"], 28);
    assert_eq!(report["format"]["name"], "an ELF core");
}
