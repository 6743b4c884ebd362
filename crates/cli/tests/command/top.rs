//! `top` as used by scripts and on a terminal.

use crate::support::heap::Heap;
use crate::support::vmarea;

#[test]
fn one_look_has_this_process_with_its_mappings() {
    let output = vmarea(&["top", "--once", "-n", "0", "--json"]);
    let look: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!(look["schema"], 2);
    let rows = look["rows"].as_array().unwrap();
    let own = rows.iter().find(|row| row["pid"] == std::process::id());
    assert!(own.unwrap()["mappings"].as_u64() > Some(10));
    let mappings: Vec<_> = rows.iter().map(|row| row["mappings"].as_u64()).collect();
    assert!(mappings.is_sorted_by(|a, b| a >= b), "most mappings first");
    let text = vmarea(&["top", "--once", "-n", "3"]);
    let text = String::from_utf8_lossy(&text.stdout);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 5);
    let end = lines[0].find("MERGEABLE").unwrap() + "MERGEABLE".len();
    let mut numbers = lines[1..4].iter().map(|line| &line[..=end]);
    assert!(
        numbers.all(|line| line.ends_with(' ') && !line.ends_with("  ")),
        "numbers end where their heading ends: {text}"
    );
}

#[test]
fn a_look_counts_what_explain_counts_or_nothing() {
    let program =
        "make(40, 4, lambda address, number: ctypes.memset(address, 1, page))\ntime.sleep(60)\n";
    let heap = Heap::start(program);
    let explained = vmarea(&["explain", "-p", &heap.pid(), "--json"]);
    let explained: serde_json::Value = serde_json::from_slice(&explained.stdout).unwrap();
    let look = vmarea(&["top", "--once", "-n", "0", "--json"]);
    let look: serde_json::Value = serde_json::from_slice(&look.stdout).unwrap();
    let rows = look["rows"].as_array().unwrap();
    let pid = heap.child.id();
    let row = rows.iter().find(|row| row["pid"] == pid).unwrap();
    assert!(explained["joinable"].as_u64() >= Some(39), "{explained}");
    match explained["source"] == "kernel" {
        true => assert_eq!(row["joinable"], explained["joinable"], "{row}"),
        false => assert!(row["joinable"].is_null(), "{row}"),
    }
}

#[test]
fn openmetrics_replace_the_file_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vmarea.prom");
    std::fs::write(&path, "# EOF\n").unwrap();
    let output = vmarea(&["top", "--once", "--openmetrics", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("\n# TYPE vmarea_process_mappings gauge\n"),
        "{text}"
    );
    assert!(text.contains("vmarea_max_map_count "), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        1,
        "nothing left beside"
    );
}

#[test]
fn without_a_terminal_one_look_is_printed() {
    let output = vmarea(&["top", "-n", "3"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 5);
    assert_eq!(vmarea(&["top", "--interval", "0s"]).status.code(), Some(2));
}
