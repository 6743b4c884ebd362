//! `explain --since`, `show diff`, and the files that `explain --from` reads.

use crate::support::{Idle, text, vmarea};
use serde_json::Value;
use std::fs;

/// Builds a list of `n` mappings with free space between them.
fn list(n: u64) -> String {
    let lines = (0..n).map(|n| {
        let start = 0x10_0000 + n * 0x2000;
        format!("{start:x}-{:x} rw-p 00000000 00:00 0 \n", start + 0x1000)
    });
    lines.collect()
}

#[test]
fn a_running_process_is_compared_with_its_earlier_report() {
    let cat = Idle::cat();
    let folder = tempfile::tempdir().unwrap();
    let before = folder.path().join("before.json");
    let before = before.to_str().unwrap();
    let pid = cat.pid();
    assert!(
        vmarea(&["explain", "-p", &pid, "--all", &format!("--json={before}")])
            .status
            .success()
    );
    let output = vmarea(&["explain", "-p", &pid, "--since", before, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let since = &report["since"];
    assert_eq!(since["mappings"]["before"], since["mappings"]["now"]);
    assert!(since["seconds"].as_f64().unwrap() > 0.0, "{since}");
    assert_eq!(since["reasons"].as_array().unwrap().len(), 0, "{since}");

    // A clock that was set back in between.
    let mut earlier: Value = serde_json::from_slice(&fs::read(before).unwrap()).unwrap();
    earlier["taken_unix_ms"] = Value::from(u64::MAX / 4);
    fs::write(before, earlier.to_string()).unwrap();
    let output = vmarea(&["explain", "-p", &pid, "--since", before]);
    assert!(
        text(&output.stdout).contains("time went backwards"),
        "{output:?}"
    );
}

#[test]
fn two_copies_are_compared_by_the_times_of_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, n, minutes: u64| {
        let path = folder.path().join(name);
        fs::write(&path, list(n)).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 + 60 * minutes);
        fs::File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .set_modified(time)
            .unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (before, after) = (write("before", 1_000, 0), write("after", 1_600, 10));
    let output = vmarea(&["show", "diff", &before, &after, "--json"]);
    let growth: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(growth["seconds"], 600.0);
    assert_eq!(growth["reasons"][0]["what"], "gap");
    assert_eq!(growth["reasons"][0]["per_minute"], 60.0);
    assert!(
        growth["limit_met_in_minutes"].is_null(),
        "no limit is in a copy"
    );
    let compared = [
        "explain", "--from", &after, "--since", &before, "--limit", "65530",
    ];
    let said = text(&vmarea(&compared).stdout);
    assert!(
        said.contains("the limit of 65,530 is met in 18 h"),
        "{said}"
    );
    let prose = folder.path().join("prose");
    fs::write(&prose, "Dear all\n").unwrap();
    let output = vmarea(&["show", "diff", prose.to_str().unwrap(), &after]);
    crate::support::complaint(&output, 1);
}

#[test]
fn an_error_file_of_java_gives_its_limit_and_the_reason_of_the_failure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hs_err_pid7.log");
    let head = "#\n# There is insufficient memory for the Java Runtime Environment to continue.\n\
                # Native memory allocation (mmap) failed to map 65536 bytes. Error detail: x\n\
                # JRE version: OpenJDK\n";
    let end = "/proc/sys/vm/max_map_count (maximum number of memory map areas a process may \
               have): 1000\n\nEND.\n";
    fs::write(
        &path,
        format!("{head}\nDynamic libraries:\n{}\n{end}", list(1_000)),
    )
    .unwrap();
    let path = path.to_str().unwrap();
    let output = vmarea(&["explain", "--from", path]);
    let said = text(&output.stdout);
    assert!(said.contains("100.0 % of the limit of 1,000"), "{said}");
    assert!(said.contains("mmap failed"), "{said}");
    assert!(said.contains("as many mappings as it may have"), "{said}");
}
