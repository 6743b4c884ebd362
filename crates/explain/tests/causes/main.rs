//! The table of known causes, on lists of mappings of programs that have the cause and of ordinary
//! programs. `lists/README.md` says how each list was obtained.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use vmarea_explain::causes::document;
use vmarea_explain::{List, Report, explain};
use vmarea_process::Process;
use vmarea_process::view::ViewVma;

fn lists() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/causes/lists");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    files
        .filter(|path| {
            path.extension()
                .is_some_and(|e| e == "maps" || e == "smaps")
        })
        .collect()
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

/// Reads a list, and the memory policies of its mappings if they are in a file beside it.
fn report(path: &Path) -> Report {
    let mut process = Process::from_text(name(path), &fs::read(path).unwrap()).unwrap();
    if let Ok(text) = fs::read_to_string(path.with_extension("numa_maps")) {
        let lines = text.lines().map(|line| line.split_once(' ').unwrap());
        let policies: HashMap<_, _> = lines
            .map(|(at, policy)| (u64::from_str_radix(at, 16).unwrap(), policy))
            .collect();
        for mapping in &mut process.mappings {
            if let Some(policy) = policies.get(&mapping.entry.start) {
                mapping.flags = Some(mapping.flags());
                let number = 1 + u64::from(policy.starts_with("bind"));
                mapping.kernel = Some(ViewVma {
                    pgoff: mapping.entry.start >> 12,
                    policy: Some(number),
                    policy_terms: [number, 0, 0, 0],
                    ..ViewVma::default()
                });
            }
        }
    }
    explain(&process, List::Summary)
}

#[test]
fn each_list_has_its_cause() {
    for path in lists() {
        let report = report(&path);
        let found: Vec<_> = report.causes.iter().map(|c| c.name.as_str()).collect();
        let expected = name(&path);
        if expected.starts_with("ordinary-") {
            assert!(found.is_empty(), "{expected}: {found:?}");
            continue;
        }
        assert_eq!(found, [expected.as_str()], "{:?}", report.reasons);
        let cause = &report.causes[0];
        assert!(
            cause.mappings * 3 > report.mappings,
            "{expected}: {} of {}",
            cause.mappings,
            report.mappings
        );
    }
}

#[test]
fn threads_are_counted_and_the_need_of_zgc_is_computed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/causes/lists");
    let threads = report(&folder.join("thread-stacks.maps"));
    assert_eq!(threads.causes[0].count, 300);
    let zgc = report(&folder.join("zgc-heap.maps"));
    let text = format!("{} {}", zgc.causes[0].text, zgc.causes[0].advice);
    assert!(text.contains("3 mappings per 2 MiB"), "{text}");
}

#[test]
fn the_document_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/causes.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, document()).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, document(), "set UPDATE_DOCS to write it anew");
}
