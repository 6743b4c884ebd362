//! Tests with programs that create a known number of boundaries of one kind.
//!
//! The boundaries are explained with and without the kernel's own view, as root and as an ordinary
//! user.
//!
//! A reason counts as wrong if it is certain but not the true reason, or if it is likely but the
//! true reason is not among its candidates. No reason may be wrong.
#![forbid(unsafe_code)]

mod recorded;

use std::collections::BTreeMap;
use std::process::Command;
use vmarea::policy::kernel::KernelRules;
use vmarea::types::VmRange;
use vmarea::vma::merge::Refusal;
use vmarea_explain::{List, explain};
use vmarea_process::view::KernelView;
use vmarea_process::{AskKernel, Boundary, Certainty, Process, Reason, Smaps, Source};
use vmarea_test_support::boundaries::{Case, Program};
use vmarea_test_support::leash;

/// Number of boundaries that each program creates. The number is even, because some cases create
/// boundaries in pairs.
const N: u64 = 12;

/// Cases of the program: name, reason why the mappings are not merged, and remedy.
const CASES: [(&str, Reason, Option<&str>); 60] = {
    use Reason::{Gap, Guard, Nothing, Rule};
    use Refusal::*;
    [
        ("gap", Gap, None),
        ("protection_read", Rule(Protection), None),
        ("protection_exec", Rule(Protection), None),
        ("protection_uncharged", Rule(Protection), None),
        ("protection_reserve", Rule(Protection), None),
        ("protection_shared", Rule(Protection), None),
        ("guard_protected", Guard, Some("guards")),
        ("guard_reserved", Guard, Some("guards")),
        ("flags_dontfork", Rule(Flags), Some("flags")),
        ("flags_dontdump", Rule(Flags), Some("flags")),
        ("flags_hugepage", Rule(Flags), None),
        ("flags_nohugepage", Rule(Flags), None),
        ("flags_mergeable", Rule(Flags), None),
        ("flags_wipeonfork", Rule(Flags), None),
        ("flags_random", Rule(Flags), None),
        ("flags_sequential", Rule(Flags), None),
        ("flags_locked", Rule(Flags), None),
        ("flags_noreserve", Rule(Flags), None),
        ("flags_sealed", Rule(Sealed), None),
        ("flags_decommitted", Rule(Flags), Some("empties")),
        ("flags_file_once_writable", Rule(Flags), None),
        ("flags_file_random", Rule(Flags), None),
        ("flags_shared_private", Rule(Flags), None),
        ("flags_userfaultfd", Rule(Userfaultfd), None),
        ("userfaultfd_contexts", Rule(Userfaultfd), None),
        ("file_different", Rule(File), None),
        ("file_opened_twice_private", Rule(File), None),
        ("file_opened_twice_shared", Rule(File), None),
        ("file_and_anonymous", Rule(File), None),
        ("file_shared_anonymous", Rule(File), None),
        ("file_deleted", Rule(File), None),
        ("file_offset", Rule(FileOffset), None),
        ("file_offset_memfd", Rule(FileOffset), None),
        ("anon_vma_committed", Rule(AnonVma), Some("merge")),
        ("anon_vma_mapped", Rule(AnonVma), Some("merge")),
        ("anon_vma_moved", Rule(AnonVma), Some("merge")),
        ("anon_vma_inherited", Rule(AnonVma), Some("copy")),
        ("page_offset", Rule(PageOffset), Some("merge")),
        ("page_offset_read_only", Rule(PageOffset), None),
        ("special_perf", Rule(Special), None),
        ("special_socket", Rule(Special), None),
        ("close_hook_sysv", Rule(CloseHook), None),
        ("name_set", Rule(Name), None),
        ("policy_bound", Rule(Policy), None),
        ("policy_modes", Rule(Policy), None),
        ("pkey_flags", Rule(Flags), None),
        ("flags_growsdown", Rule(Flags), None),
        ("flags_locked_on_fault", Rule(Flags), None),
        ("flags_droppable", Rule(Flags), None),
        ("heap_flags", Rule(Flags), None),
        ("heap_protection", Rule(Protection), None),
        ("stack_flags", Rule(Flags), None),
        ("stack_protection", Rule(Protection), None),
        ("special_vdso", Rule(Special), None),
        ("special_hugetlb", Rule(Hugetlb), None),
        ("file_dev_zero", Rule(File), None),
        ("anon_vma_file", Rule(AnonVma), None),
        ("anon_vma_shared_with_child", Rule(AnonVma), Some("copy")),
        ("nothing_after_fork", Nothing, Some("merge")),
        // Guard markers in the page table create no boundary.
        ("none_guard_markers", Nothing, None),
    ]
};

fn look(case: &Case, kernel: AskKernel, smaps: Smaps) -> Process {
    let mut process = Process::live(case.pid, kernel, smaps).unwrap();
    let (start, end) = case.range;
    process.narrow(VmRange::new(start, end));
    process
}

fn counts(all: &[Boundary]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for boundary in all {
        *counts.entry(boundary.label()).or_default() += 1;
    }
    counts
}

/// True if a reason is wrong.
fn is_wrong(boundary: &Boundary, truth: Reason) -> bool {
    match (boundary.certainty, truth) {
        (Certainty::Certain, truth) => boundary.reason != truth,
        (Certainty::Likely, Reason::Rule(truth)) => {
            let known = |name| boundary.candidates.contains(&name);
            !known(truth) && !name_where_hidden(truth).is_some_and(known)
        }
        // The readable attributes are equal, and the others may be equal too.
        (Certainty::Likely, Reason::Nothing) => false,
        (Certainty::Likely, _) => true,
    }
}

/// Returns the reason reported instead of `truth` if the flags that show `truth` are hidden.
fn name_where_hidden(truth: Refusal) -> Option<Refusal> {
    match truth {
        Refusal::Sealed | Refusal::Userfaultfd => Some(Refusal::Flags),
        Refusal::Hugetlb => Some(Refusal::Special),
        _ => None,
    }
}

/// Checks that reasons derived from `/proc` alone are certain or likely, and never wrong.
fn judge_proc(name: &str, case: &Case, truth: Reason, smaps: Smaps) {
    let process = look(case, AskKernel::Never, smaps);
    let found = process.boundaries();
    let counts = counts(&found);
    let read = process.source;
    assert_eq!(
        found.len() as u64,
        case.boundaries,
        "{name} from {read:?}: {counts:?}"
    );
    for boundary in &found {
        assert!(
            !is_wrong(boundary, truth),
            "{name} from {read:?}: {boundary:?}"
        );
    }
    // `smaps` shows flags and permissions.
    let shown = matches!(
        truth,
        Reason::Rule(Refusal::Flags | Refusal::Protection) | Reason::Guard | Reason::Gap
    );
    if read == Source::Smaps && shown {
        let certain = found.iter().all(|b| b.certainty == Certainty::Certain);
        assert!(certain, "{name} from smaps: {counts:?}");
    }
}

/// Checks that every reason is certain if the kernel's own view is available.
fn judge_kernel(name: &str, case: &Case, truth: Reason, remedy: Option<&str>) {
    let process = look(case, AskKernel::Try, Smaps::Never);
    assert_eq!(process.source, Source::Kernel);
    let found = process.boundaries();
    let all = (case.boundaries > 0).then(|| (truth.name().to_owned(), case.boundaries));
    let expected = BTreeMap::from_iter(all);
    assert_eq!(counts(&found), expected, "{name} from the kernel");
    // The neighbours of a reserved guard have different anon_vmas, so it can join only the lower one.
    let expected = match name {
        "guard_reserved" => [remedy, None],
        _ => [remedy; 2],
    };
    for (boundary, expected) in found.iter().zip(expected.iter().cycle()) {
        let found = boundary.remedy.map(|remedy| remedy.name());
        assert_eq!(found, *expected, "{name}: {boundary:?}");
    }
}

#[test]
fn every_constructed_boundary_is_counted_by_its_reason() {
    let program = Program::compile();
    let kernel_view = KernelView::open().map_err(|error| eprintln!("no kernel view: {error}"));
    let mut made = 0;
    for (name, truth, fix) in CASES {
        let Some(case) = program.start(name, N) else {
            continue;
        };
        made += 1;
        judge_proc(name, &case, truth, Smaps::Never);
        judge_proc(name, &case, truth, Smaps::Always);
        if kernel_view.is_ok() {
            judge_kernel(name, &case, truth, fix);
        }
    }
    let how = match kernel_view {
        Ok(_) => "with the kernel's view",
        Err(()) => "without the kernel's view",
    };
    println!("{made} of {} cases judged, {how}", CASES.len());
    assert!(made >= 30, "only {made} cases could be made here");
}

/// Runs the test of the constructed boundaries as an ordinary user, who can read less.
///
/// An ordinary user cannot read this test program, so the test copies it.
#[test]
fn an_ordinary_user_gets_no_wrong_verdict() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let open = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(folder.path(), open(0o1777)).unwrap();
    let copy = folder.path().join("explain");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args([
            "--exact",
            "every_constructed_boundary_is_counted_by_its_reason",
        ])
        .arg("--nocapture")
        .env("TMPDIR", folder.path())
        .current_dir(folder.path());
    let output = leash::output(&mut command).expect("setpriv");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(127) || complained.contains("setpriv: ") {
        return eprintln!("skipped: only root can become another user: {complained}");
    }
    assert!(output.status.success(), "{said}{complained}");
    assert!(said.contains("cases judged"), "{said}");
    let hidden = std::fs::read_to_string("/proc/sys/kernel/unprivileged_bpf_disabled");
    if hidden.is_ok_and(|setting| setting.trim() != "0") {
        assert!(said.contains("without the kernel's view"), "{said}");
    }
}

#[test]
fn what_depends_on_rules_in_doubt_is_likely() {
    let case = Program::compile().start("anon_vma_mapped", N).unwrap();
    let live = Process::live(case.pid, AskKernel::Try, Smaps::Never).unwrap();
    if live.source != Source::Kernel {
        return eprintln!("skipped: {:?}", live.without_view);
    }
    let under = |release, answers| {
        let kernel = KernelRules::of(release, answers);
        let process = Process {
            notes: Vec::new(),
            ..live.clone()
        };
        let process = process.under(&kernel);
        let report = explain(&process, List::Summary);
        let mut text = Vec::new();
        report
            .write_text(&mut text, &|bytes| bytes.to_string())
            .unwrap();
        let anon_vma = report.reasons.into_iter().find(|r| r.reason == "anon_vma");
        let anon_vma = anon_vma.expect("the program makes some");
        let is_certain = anon_vma.certain == anon_vma.mappings;
        let rules = report.rules.expect("those of a kernel");
        assert_eq!(rules.remark, process.notes.first().cloned());
        let text = String::from_utf8(text).unwrap();
        let text: Vec<_> = text.split_whitespace().collect();
        let text = text.join(" ");
        (
            is_certain,
            rules,
            text.contains("rules of this kernel are not verified"),
        )
    };
    let (certain, rules, said) = under("6.18.2", "");
    assert!(certain && rules.verified && !said, "{rules:?}");
    let (certain, rules, said) = under("5.14.0-503.el9", "");
    assert!(!certain && !rules.verified && said, "{rules:?}");
    // What was found out on the kernel is certain, whatever its version says.
    let (certain, rules, said) = under("5.14.0-503.el9", "one_sided=holder_singular,mseal=on");
    assert!(certain && !rules.verified && said, "{rules:?}");
    assert_eq!((rules.linux.as_str(), rules.probed), ("5.10", 2));
    assert_eq!(rules.differing, ["one_sided", "mseal"]);
}

#[test]
fn deleted_files_that_stay_mapped_are_a_cause() {
    let case = Program::compile().start("file_deleted", 1_500).unwrap();
    let process = look(&case, AskKernel::Never, Smaps::Never);
    let report = explain(&process, List::Summary);
    let [cause] = &report.causes[..] else {
        panic!("{:?}", report.causes);
    };
    assert_eq!(
        (cause.name.as_str(), cause.mappings),
        ("deleted-files", 1_501)
    );
}

#[test]
fn what_can_be_joined_is_advised_with_its_command() {
    let case = Program::compile().start("page_offset", 2_000).unwrap();
    let process = Process::live(case.pid, AskKernel::Try, Smaps::Never).unwrap();
    let report = explain(&process, List::Summary);
    let command = format!("vmarea merge -p {} --apply", case.pid);
    assert_eq!(report.advice.command, Some(command));
    assert!(report.joinable >= 2_000, "{report:?}");
    let all: u64 = report.reasons.iter().map(|reason| reason.mappings).sum();
    assert_eq!(all + 1, report.mappings);
}
