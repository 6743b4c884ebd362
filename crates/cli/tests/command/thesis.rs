//! The tests in sections 3.1 and 3.3 of the thesis "VMA merging in Linux", as programs.
//!
//! Each program runs on this kernel, and a recording of it is replayed in the core under each
//! policy, also under those that came after the thesis (docs/successors.md).

use crate::support::programs::compile;
use crate::support::{leash, text, vmarea};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const POLICIES: [&str; 5] = ["linux-5.18", "thesis", "vmarea", "linux-7.3", "relocate"];

/// Each program with its final number of mappings under each policy: first alone, then with a child
/// that shares the pages.
const PROGRAMS: [(&str, [u64; 5], [u64; 5]); 9] = [
    ("expand", [2, 1, 1, 1, 1], [2, 1, 1, 1, 1]),
    ("page_offset", [2, 1, 1, 2, 1], [2, 2, 2, 2, 2]),
    ("different_av", [2, 1, 1, 2, 2], [2, 2, 2, 2, 2]),
    (
        "different_av_and_page_offset",
        [2, 1, 1, 2, 1],
        [2, 2, 2, 2, 2],
    ),
    ("spacing", [8, 1, 1, 8, 2], [8, 8, 8, 8, 8]),
    ("regroup", [2, 1, 1, 2, 1], [2, 2, 2, 2, 2]),
    ("without_merge", [2, 1, 1, 2, 1], [2, 2, 2, 2, 2]),
    ("partially_shared", [2, 1, 1, 2, 1], [2, 1, 1, 2, 1]),
    ("gap", [3, 1, 1, 3, 2], [3, 2, 2, 3, 2]),
];

fn built(name: &str, folder: &Path) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/thesis");
    let source = sources.join(format!("{name}.c"));
    let program = folder.join(name);
    compile(&[source], &["-Wno-unused-function"], &program);
    program
}

/// Returns the number of mappings in the arena, as `/proc/self/maps` lists them.
fn on_kernel(program: &Path, more: &[&str]) -> u64 {
    let ended = leash::output(Command::new(program).args(more)).unwrap();
    assert!(ended.status.success(), "{ended:?}");
    text(&ended.stdout).trim().parse().unwrap()
}

/// Returns the number of VMAs at exit under each policy, and under the rules of this kernel.
fn in_core(program: &Path, more: &[&str], folder: &Path) -> ([u64; 5], u64) {
    let json = folder.join("report");
    let json_option = format!("--json={}", json.display());
    let mut words = vec!["run", &json_option];
    words.extend(POLICIES.iter().flat_map(|policy| ["--policy", policy]));
    words.extend(["--", program.to_str().unwrap()]);
    words.extend(more);
    let ran = vmarea(&words);
    assert!(ran.status.success(), "{ran:?}");
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(report["verify"]["differences"], 0);
    let vmas = |policy: &str| report["policies"][policy]["vmas_exit"].as_u64().unwrap();
    (POLICIES.map(vmas), vmas("linux"))
}

#[test]
fn the_programs_end_as_the_thesis_says() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = built("nothing", folder.path());
    for (at, more) in [&[][..], &["shared"][..]].into_iter().enumerate() {
        // Mappings of the dynamic loader also merge more under a policy that merges more, so they
        // are subtracted.
        let (loader, loader_linux) = in_core(&nothing, more, folder.path());
        for (name, alone, shared) in PROGRAMS {
            let expected = [alone, shared][at];
            let program = built(name, folder.path());
            let (vmas, linux) = in_core(&program, more, folder.path());
            // A child has the same VMAs under every policy, because it is forked before any merge.
            let arenas: [u64; 5] = std::array::from_fn(|n| vmas[n] - loader[n]);
            let merged = arenas.map(|vmas| arenas[0] - vmas);
            let should = expected.map(|vmas| expected[0] - vmas);
            assert_eq!(merged, should, "{name} {more:?}");
            let fewer_on_kernel = arenas[0] - (linux - loader_linux);
            let kernel = on_kernel(&program, more);
            assert_eq!(kernel, expected[0] - fewer_on_kernel, "{name} {more:?}");
        }
    }
}
