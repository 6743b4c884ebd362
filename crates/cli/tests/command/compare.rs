//! `vmarea compare`, and policies from files, on a recorded program.

use crate::support::vmarea;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

/// Makes a mapping, populates it, and moves its pages with a call that older kernels lack.
const PROGRAM: &str = r#"
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, 1 << 16, 3, 0x22, -1, 0)
assert libc.madvise(ctypes.c_void_p(at), 1 << 16, 22) == 0
libc.madvise(ctypes.c_void_p(at), 4096, 102)  # MADV_GUARD_INSTALL: fails before Linux 6.13
"#;

fn trace() -> &'static str {
    static RECORDED: OnceLock<PathBuf> = OnceLock::new();
    let path = RECORDED.get_or_init(|| {
        let name = format!("compare-{}.vmtrace", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let words = [
            "record",
            "-o",
            path.to_str().unwrap(),
            "--",
            "python3",
            "-c",
            PROGRAM,
        ];
        let output = vmarea(&words);
        assert!(output.status.success(), "{output:?}");
        path
    });
    path.to_str().unwrap()
}

fn compared(arguments: &[&str]) -> (Output, Value) {
    let policies = [
        "--policy",
        "linux",
        "--policy",
        "linux-6.18+advice.populate=off",
    ];
    let output = vmarea(&[&["compare"], arguments, &policies, &["--json"]].concat());
    let json = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output, json)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_first_difference_is_the_call_that_the_rule_is_about() {
    let (output, json) = compared(&[trace()]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let one = &json["traces"][0];
    let first = &one["first"];
    let call = first["call"].as_str().unwrap();
    assert!(
        call.starts_with("madvise(") && call.contains("POPULATE_READ"),
        "{call}"
    );
    assert!(
        first["did"][1].as_str().unwrap().contains("EINVAL"),
        "{first}"
    );
    assert_eq!(one["differing_calls"], 1, "{one}");
    assert_eq!(one["differences"][0]["call"], "madvise");
    assert_eq!(one["complete"], true);
    let vmas = one["policies"][0]["vmas_peak"].as_u64().unwrap();
    assert_eq!(
        one["policies"][0]["bytes_peak"].as_u64().unwrap(),
        vmas * 192
    );
    let over_time = &one["over_time"]["vmas"][0];
    let highest = over_time
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_u64)
        .max();
    // Between two calls, a fork can add more.
    assert!(highest > Some(0) && highest <= Some(vmas), "{one}");
}

/// The call succeeds and no mapping is split: only a flag of the mapping differs.
#[test]
fn a_difference_in_flags_alone_is_a_difference() {
    let policies = ["--policy", "linux-6.18", "--policy"];
    let without_flag = "linux-6.18+advice.guard_flag=off";
    let words = [
        &["compare", trace(), "--json"],
        &policies[..],
        &[without_flag],
    ];
    let output = vmarea(&words.concat());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let first = &json["traces"][0]["first"];
    let call = first["call"].as_str().unwrap();
    assert!(call.contains("GUARD_INSTALL"), "{json}");
    let did = ["flags MAYBE_GUARD; +0 VMAs", "none of these flags; +0 VMAs"];
    assert_eq!(first["did"], serde_json::json!(did));
}

#[test]
fn equal_policies_never_part() {
    let output = vmarea(&[
        "compare",
        trace(),
        "--policy",
        "linux",
        "--policy",
        "linux+collector=off",
    ]);
    let kernel = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", said(&output));
    if crate::support::text(&vmarea(&["trace", "info", trace()]).stdout).contains("6.18") {
        assert!(kernel.contains("never part"), "{kernel}");
    }
}

#[test]
fn a_file_gives_the_same_comparison_as_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine.toml");
    fs::write(
        &mine,
        "base = \"linux-6.18\"\n[rules]\nadvice.populate = false\n",
    )
    .unwrap();
    let words = [
        "compare",
        trace(),
        "--json",
        "--policy",
        "linux",
        "--policy",
    ];
    let by_file = vmarea(&[&words[..], &[mine.to_str().unwrap()]].concat());
    let by_file: Value = serde_json::from_slice(&by_file.stdout).unwrap();
    let (_, by_name) = compared(&[trace()]);
    for part in ["first", "differences", "over_time", "differing_calls"] {
        assert_eq!(
            by_file["traces"][0][part], by_name["traces"][0][part],
            "{part}"
        );
    }
    let replayed = vmarea(&[
        "replay",
        trace(),
        "--json",
        "--policy",
        mine.to_str().unwrap(),
    ]);
    let replayed: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    assert!(
        replayed["policies"].get(mine.to_str().unwrap()).is_some(),
        "{replayed}"
    );
}

#[test]
fn the_example_in_the_documentation_is_a_policy() {
    let document = include_str!("../../../../docs/policies.md");
    let block = document.split("```toml\n").nth(1).unwrap();
    let (example, _) = block.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine.toml");
    fs::write(&mine, example).unwrap();
    let words = ["compare", trace(), "--json", "--policy", "linux-6.12"];
    let output = vmarea(&[&words[..], &["--policy", mine.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        json["traces"][0]["differing_calls"].as_u64() > Some(0),
        "{json}"
    );
}

#[test]
fn each_switch_is_left_out_of_a_replay() {
    let words = [
        "replay",
        trace(),
        "--policy",
        "linux+collector",
        "--leave-one-out",
    ];
    let text = crate::support::text(&vmarea(&words).stdout);
    assert!(
        text.contains("VMAs saved") && text.contains("of policy"),
        "{text}"
    );
    assert!(!text.contains("no collector"), "{text}");
    let json = vmarea(&[&words[..], &["--json"]].concat());
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(
        json["policies"]
            .get("linux+collector, no collector")
            .is_some(),
        "{json}"
    );
}

#[test]
fn a_typo_in_a_file_has_a_line_and_a_column_in_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine.toml");
    fs::write(&mine, "base = \"linux\"\n[switches]\ncolector = true\n").unwrap();
    let mine = mine.to_str().unwrap();
    for words in [
        &["replay", "x", "--policy", mine][..],
        &["run", "--policy", mine, "--", "true"],
        &["compare", "x", "--policy", mine, "--policy", "linux"],
    ] {
        let output = vmarea(words);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        let place = format!("{mine}:3:1");
        assert!(
            said.contains(&place) && said.contains("did you mean collector?"),
            "{said}"
        );
    }
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let good = fs::read(trace()).unwrap();
    fs::write(file("a.vmtrace"), &good).unwrap();
    // Within the first block: on a busy machine, there are several.
    fs::write(file("torn.vmtrace"), &good[..2000]).unwrap();
    let mut newer = good.clone();
    newer[8..12].copy_from_slice(&900u32.to_le_bytes());
    fs::write(file("newer.vmtrace"), newer).unwrap();
    fs::write(file("notes.txt"), "text").unwrap();
    fs::create_dir(file("inner")).unwrap();
    let (output, json) = compared(&[folder.path().to_str().unwrap()]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(6), "{said}");
    let lines = |what: &str| said.lines().filter(|line| line.contains(what)).count();
    assert_eq!(lines("not traces: inner, notes.txt"), 1, "{said}");
    assert_eq!(lines("torn.vmtrace"), 1, "{said}");
    assert_eq!(lines("newer.vmtrace"), 1, "{said}");
    assert!(said.contains("900"), "{said}");
    assert_eq!(json["traces"][0]["differing_calls"], 1, "{json}");
    assert_eq!(json["failed"].as_array().unwrap().len(), 2, "{json}");

    // Where nothing is left to compare, the command has failed.
    let torn = file("torn.vmtrace").display().to_string();
    let output = vmarea(&["compare", &torn, "--policy", "linux", "--policy", "vmarea"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("torn.vmtrace"), "{said}");
}

/// Traces on which policies differ and others on which they do not, beside files that are no traces.
#[test]
fn a_folder_has_one_line_for_each_trace_without_difference_and_a_summary() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    let folder = tempfile::tempdir().unwrap();
    for name in ["regions.vmtrace", "cow-children.vmtrace", "README.md"] {
        fs::copy(corpus.join(name), folder.path().join(name)).unwrap();
    }
    fs::create_dir(folder.path().join("golden")).unwrap();
    let mut command = std::process::Command::new(crate::support::VMAREA);
    command.arg("compare").arg(folder.path());
    command.args(["--policy", "linux-6.12", "--policy"]);
    command.arg("linux-6.12+different_anon_vmas+sharing=truth");
    let output = command.env("COLUMNS", "80").output().unwrap();
    let (text, said) = (crate::support::text(&output.stdout), said(&output));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("not traces: README.md, golden"), "{said}");
    assert_eq!(text.matches("never part").count(), 1, "{text}");
    assert_eq!(text.matches("first difference: call ").count(), 1, "{text}");
    let table = text.rsplit_once("A: linux-6.12\n").unwrap().1;
    let starts = |name: &str| table.lines().any(|line| line.trim().starts_with(name));
    for name in ["cow-children  ", "regions  ", "all  "] {
        assert!(starts(name), "{name}: {text}");
    }
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{text}");
}

#[test]
fn text_fits_eighty_columns() {
    let vmarea_by = ["--policy", "linux-5.10", "--policy", "vmarea"];
    let words = [&["compare", trace(), trace()], &vmarea_by[..]].concat();
    let mut command = std::process::Command::new(crate::support::VMAREA);
    let output = command.args(words).env("COLUMNS", "80").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("first difference: call "), "{text}");
    assert!(text.contains("VMAs over time"), "{text}");
    let widest = text
        .lines()
        .max_by_key(|line| line.chars().count())
        .unwrap();
    assert!(widest.chars().count() <= 80, "{widest}");
}

#[test]
fn the_page_shows_both_policies_and_runs_no_markup_of_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder
        .path()
        .join("<script>alert(1)<\u{2044}script>&.vmtrace");
    fs::copy(trace(), &odd).unwrap();
    let odd = odd.display().to_string();
    let output = vmarea(&[
        "compare",
        &odd,
        "--policy",
        "linux-5.10",
        "--policy",
        "vmarea",
        "--html",
        "-",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"),
        "{page}"
    );
    assert!(!page.contains("<script>alert"), "{page}");
    assert_eq!(page.matches("<script").count(), 1, "the page's own: {page}");
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    for part in [
        "linux-5.10",
        "vmarea",
        "First difference: call ",
        "<polyline class=\"B\" points=\"0.0,",
    ] {
        assert!(page.contains(part), "no {part}: {page}");
    }
    let full = vmarea(&[
        "compare",
        trace(),
        "--policy",
        "linux-5.10",
        "--policy",
        "vmarea",
        "--html",
        "/dev/full",
    ]);
    assert_eq!(full.status.code(), Some(1), "{full:?}");
    assert!(said(&full).contains("cannot write /dev/full"), "{full:?}");
}

#[test]
fn wrong_usage_is_refused() {
    for policies in [
        &["--policy", "linux"][..],
        &["--policy", "linux", "--policy", "linux"],
        &[
            "--policy", "linux", "--policy", "vmarea", "--policy", "thesis",
        ],
    ] {
        let output = vmarea(&[&["compare", "x"], policies].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    }
}
