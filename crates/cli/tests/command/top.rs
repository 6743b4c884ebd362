//! `top` as used by scripts and on a terminal.

use crate::support::vmarea;

#[test]
fn one_look_has_this_process_with_its_mappings() {
    let output = vmarea(&["top", "--once", "-n", "0", "--json"]);
    let look: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!(look["schema"], 1);
    let rows = look["rows"].as_array().unwrap();
    let own = rows.iter().find(|row| row["pid"] == std::process::id());
    assert!(own.unwrap()["mappings"].as_u64() > Some(10));
    let mappings: Vec<_> = rows.iter().map(|row| row["mappings"].as_u64()).collect();
    assert!(mappings.is_sorted_by(|a, b| a >= b), "most mappings first");
    let text = vmarea(&["top", "--once", "-n", "3"]);
    assert_eq!(String::from_utf8_lossy(&text.stdout).lines().count(), 5);
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
