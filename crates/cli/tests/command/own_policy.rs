//! The command with a policy written in Rust: the example `own_policy`, which docs/policies.md shows.

use crate::support::{VMAREA, leash, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Excludes a mapping from core dumps, and maps its neighbour.
const PROGRAM: &str = r#"
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p] + 5 * [ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_int]
at = libc.mmap(0x100000000000, 1 << 16, 3, 0x100022, -1, 0)
assert libc.madvise(at, 1 << 16, 16) == 0
assert libc.mmap(at + (1 << 16), 1 << 16, 3, 0x100022, -1, 0) == at + (1 << 16)
"#;

fn example() -> PathBuf {
    let program = Path::new(VMAREA)
        .parent()
        .unwrap()
        .join("examples/own_policy");
    assert!(
        program.exists(),
        "run cargo build -p vmarea-cli --example own_policy first"
    );
    program
}

fn own(arguments: &[&str]) -> Output {
    leash::output(Command::new(example()).args(arguments)).unwrap()
}

#[test]
fn a_rule_in_rust_is_a_policy_of_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let trace = path("trace");
    let output = own(&["record", "-o", &trace, "--", "python3", "-c", PROGRAM]);
    assert!(output.status.success(), "{}", text(&output.stderr));

    let compared = |linux: &str, mine: &str| -> Value {
        let policies = ["--policy", linux, "--policy", mine];
        let output = own(&[&["compare", &trace, "--json"], &policies[..]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let json = compared("linux-6.12", "mine");
    let first = &json["traces"][0]["first"];
    let call = first["call"].as_str().unwrap_or_default();
    assert!(call.starts_with("mmap(0x100000010000, "), "{first}");
    let names = json["traces"][0]["policies"].as_array().unwrap();
    assert_eq!(names[1]["name"], "mine", "{json}");

    let file = path("mine.toml");
    std::fs::write(&file, "base = \"mine\"\n[switches]\ncollector = true\n").unwrap();
    for name in ["mine+collector", &file] {
        let json = compared("linux-6.12+collector", name);
        assert_eq!(json["traces"][0]["first"]["call"], call, "{name}");
    }
}

#[test]
fn an_unknown_policy_is_answered_with_the_rules_that_are_known() {
    let output = own(&["replay", "a-trace", "--policy", "mime"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean mine?"));
    let output = leash::output(Command::new(VMAREA).args(["replay", "a", "--policy", "mine"]));
    assert!(!text(&output.unwrap().stderr).contains("relocate, vmarea, mine"));
}

#[test]
fn the_documentation_shows_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = std::fs::read_to_string(root.join("examples/own_policy.rs")).unwrap();
    let docs = std::fs::read_to_string(root.join("../../docs/policies.md")).unwrap();
    let (_, code) = example.split_once("#![forbid(unsafe_code)]\n\n").unwrap();
    assert!(
        docs.contains(code),
        "docs/policies.md differs from the example"
    );
}
