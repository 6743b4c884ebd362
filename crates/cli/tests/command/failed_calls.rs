//! `run` and `replay` say of each memory call that failed why it failed, with the numbers, and where.

use crate::support::programs::program;
use crate::support::{text, vmarea};
use serde_json::Value;
use std::fs;

/// Runs the program with these options of `run`; returns its text, and the calls that failed.
fn run(case: &str, options: &[&str]) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let json = format!("--json={}", report.display());
    let mut args = vec!["run", "--policy", "linux", &json];
    args.extend_from_slice(options);
    let program = program("refused.c");
    args.extend(["--", &program, case]);
    let done = vmarea(&args);
    assert!(done.status.success(), "{case}: {done:?}");
    let mut report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    (text(&done.stdout), report["failed_calls"].take())
}

/// Returns the only failed call of this name and error whose reason begins like this.
fn find<'v>(failed: &'v Value, call: &str, errno: &str, reason: &str) -> &'v Value {
    let groups = failed.as_array().unwrap();
    let is_wanted = |group: &&Value| {
        let told = group["reason"].as_str();
        group["call"] == call
            && group["errno"] == errno
            && told.is_some_and(|told| told.starts_with(reason))
    };
    let found: Vec<_> = groups.iter().filter(is_wanted).collect();
    assert_eq!(found.len(), 1, "{call} {errno} {reason}: {failed:#}");
    found[0]
}

fn max_map_count() -> u64 {
    let text = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    text.trim().parse().unwrap()
}

#[test]
fn at_the_limit_on_mappings_each_call_names_it_and_the_line_of_code() {
    if max_map_count() > 1 << 18 {
        eprintln!("skipped: the limit on mappings takes too long to reach");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let page = format!("--html={}", page.display());
    let (text, failed) = run("mappings", &[&page]);
    let hole = "unmapping the middle of a mapping needs one mapping more; ";
    let part = "a change to a part of a mapping needs one mapping more; ";
    let group = find(&failed, "munmap", "ENOMEM", hole);
    let all = vmarea_explain::text::count(max_map_count());
    let words = format!("{hole}{all} of {all} are used");
    assert_eq!(group["reason"], words);
    assert_eq!(group["count"], 1);
    let place = group["first"]["function"].as_str().unwrap();
    assert!(
        place.starts_with("make_hole (") && place.contains("refused.c:"),
        "{place}"
    );
    for (call, errno) in [
        ("mprotect", "ENOMEM"),
        ("madvise", "EAGAIN"),
        ("mlock", "ENOMEM"),
    ] {
        find(&failed, call, errno, part);
    }
    assert!(text.contains(&format!("    because  {words}\n")), "{text}");
    assert!(text.contains(&format!("    in       {place}\n")), "{text}");
    assert!(
        text.contains("    remedy   raise vm.max_map_count"),
        "{text}"
    );
}

#[test]
fn limits_on_sizes_are_named_with_what_is_used() {
    let (_, failed) = run("sizes", &[]);
    let group = find(&failed, "mmap", "ENOMEM", "RLIMIT_DATA: 2 GiB more; ");
    assert!(
        group["reason"]
            .as_str()
            .unwrap()
            .ends_with(" of 1 GiB are used")
    );
    find(&failed, "mmap", "ENOMEM", "RLIMIT_AS: 8 GiB more; ");
}

#[test]
fn a_full_address_space_is_told_with_its_largest_gap() {
    let (_, failed) = run("gaps", &[]);
    let group = find(
        &failed,
        "mmap",
        "ENOMEM",
        "no gap of 100 TiB: the largest is ",
    );
    assert!(
        group["reason"].as_str().unwrap().ends_with(" TiB"),
        "{group}"
    );
    let low = "MAP_32BIT's 1 GiB has no gap of 600 MiB: the largest is ";
    find(&failed, "mmap", "ENOMEM", low);
}

#[test]
fn a_range_that_does_not_fit_the_mappings_is_told_with_its_addresses() {
    let (_, failed) = run("moves", &[]);
    find(&failed, "mremap", "EFAULT", "mremap across 3 mappings: ");
    find(&failed, "mprotect", "ENOMEM", "nothing is mapped at 0x");
    find(&failed, "mmap", "EEXIST", "the range is in use: ");
}

#[test]
fn a_fork_without_memory_for_the_copy_is_listed() {
    if fs::read_to_string("/proc/sys/vm/overcommit_memory")
        .unwrap()
        .trim()
        != "0"
    {
        eprintln!("skipped: the kernel does not estimate what may be committed");
        return;
    }
    let (text, failed) = run("forks", &[]);
    let group = &failed[0];
    assert_eq!(
        (&group["call"], &group["errno"]),
        (&"clone".into(), &"ENOMEM".into()),
        "{failed}"
    );
    assert!(text.contains("  clone: ENOMEM, once"), "{text}");
}

#[test]
fn replay_tells_what_run_told() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let option = format!("--trace={}", trace.display());
    let (_, failed) = run("moves", &[&option]);
    let replayed = vmarea(&[
        "replay",
        "--json=-",
        "--policy",
        "linux",
        trace.to_str().unwrap(),
    ]);
    assert!(replayed.status.success(), "{replayed:?}");
    let report: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    assert_eq!(report["failed_calls"], failed);
    let page = vmarea(&["replay", "--html=-", trace.to_str().unwrap()]);
    let page = text(&page.stdout);
    let section = page.split_once("id=\"failed\"").expect("a section").1;
    let section = section.split_once("</section>").unwrap().0;
    for group in failed.as_array().unwrap() {
        let reason = group["reason"].as_str().unwrap_or("not known");
        assert!(section.contains(reason), "{reason}: {section}");
    }
}

#[test]
fn explain_of_a_command_names_the_function_whose_call_failed() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let json = format!("--json={}", report.display());
    let program = program("refused.c");
    let done = vmarea(&["explain", "--stacks", &json, "--", &program, "moves"]);
    assert!(done.status.success(), "{done:?}");
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    let failed = &report["failed_calls"];
    let group = find(failed, "mremap", "EFAULT", "mremap across 3 mappings: ");
    let place = group["first"]["function"].as_str().unwrap();
    assert!(place.contains("refused.c:"), "{place}");
    let said = text(&done.stdout);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("failed with E") && said.contains(" in moves ("),
        "{said}"
    );
}

#[test]
fn a_log_of_strace_is_said_to_have_failed_calls_and_info_lists_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let log = "\
100 10.000000 mmap(NULL, 12288, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000
100 10.100000 mprotect(0x7f0000000000, 16384, PROT_NONE) = -1 ENOMEM (Cannot allocate memory)
100 10.200000 munmap(0x7f0000000001, 4096) = -1 EINVAL (Invalid argument)
";
    fs::write(path("log"), log).unwrap();
    let import = [
        "trace",
        "import",
        "--from=strace",
        &path("log"),
        "-o",
        &path("trace"),
    ];
    let imported = vmarea(&import);
    assert!(imported.status.success(), "{imported:?}");
    let note = format!("2 memory calls failed: vmarea trace info {}", path("trace"));
    assert!(text(&imported.stderr).contains(&note), "{imported:?}");
    let info = text(&vmarea(&["trace", "info", &path("trace")]).stdout);
    assert!(info.contains("mprotect: ENOMEM, once"), "{info}");
    assert!(
        info.contains("because  nothing is mapped at 0x7f0000003000\n"),
        "{info}"
    );
    let misaligned = "because  the address is not a multiple of the page size\n";
    assert!(info.contains(misaligned), "{info}");
}
