//! `show` as used by people and scripts: formats, exit statuses, processes that cannot be shown.

use crate::support::leash::Leashed;
use crate::support::{Idle, vmarea};
use serde_json::Value;
use std::process::Command;

/// A command that shows the graph of a recorded family.
const FAMILY: [&str; 4] = [
    "show",
    "graph",
    "--trace",
    concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/example/family.vmtrace"
    ),
];

/// Returns the output of a command that must succeed.
fn data(arguments: &[&str]) -> String {
    let output = vmarea(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&data(arguments)).expect("one line of JSON")
}

/// Returns the command's one-line error message.
fn complaint(arguments: &[&str], status: i32) -> String {
    crate::support::complaint(&vmarea(arguments), status)
}

/// True if this process is permitted to read the kernel's own data.
fn is_permitted() -> bool {
    let permitted = vmarea_process::view::KernelView::open();
    if let Err(error) = &permitted {
        eprintln!("skipped: {error}");
    }
    permitted.is_ok()
}

#[test]
fn a_list_has_the_lines_of_proc() {
    let cat = Idle::cat();
    let pid = cat.pid();
    let list = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let maps = json(&["show", "maps", "-p", &pid, "--json"]);
    let counted = list.lines().filter(|line| !line.ends_with("[vsyscall]"));
    let rows = maps["mappings"].as_array().unwrap();
    assert_eq!(rows.len(), counted.clone().count());
    for (row, line) in rows.iter().zip(counted) {
        let start = u64::from_str_radix(row["start"].as_str().unwrap(), 16).unwrap();
        assert!(line.starts_with(&format!("{start:08x}-")), "{row} {line}");
        assert!(line.contains(row["perm"].as_str().unwrap()));
    }
    if is_permitted() {
        let stack = rows.iter().find(|row| row["mapping"] == "[stack]").unwrap();
        assert!(stack["kernel"]["anon_vma"].is_u64(), "{stack}");
        let flags = stack["flags"].as_array().unwrap();
        assert!(flags.contains(&Value::from("growsdown")), "{stack}");
    }
    let without = json(&["show", "maps", "-p", &pid, "--no-bpf", "--json"]);
    assert!(without["mappings"][0]["kernel"].is_null());
}

#[test]
fn a_recorded_command_has_its_list_and_its_anatomy() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("anatomy.svg");
    let svg = svg.to_str().unwrap();
    let maps = json(&["show", "maps", "--json", "--", "cat", "/dev/null"]);
    let is_cat = |row: &Value| row["mapping"].as_str().unwrap().ends_with("/cat");
    assert!(maps["mappings"].as_array().unwrap().iter().any(is_cat));
    let anatomy = ["show", "anatomy", "--svg", svg, "--", "cat", "/dev/null"];
    let text = data(&anatomy);
    let order = [
        "kernel space",
        "stack",
        "heap",
        "static variables",
        "binary image: code",
    ];
    let places: Vec<_> = order.iter().map(|part| text.find(part)).collect();
    assert!(
        places.is_sorted() && places[0].is_some(),
        "{places:?}\n{text}"
    );
    let drawing = std::fs::read_to_string(svg).unwrap();
    assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"));
}

#[test]
fn a_recorded_family_of_three_is_drawn() {
    // Each shell in brackets is a fork without an execve.
    let script = "( ( :; : ); : ); :";
    let report = json(&["show", "graph", "--json", "--", "sh", "-c", script]);
    let processes = report["graph"]["processes"].as_array().unwrap();
    let parents: Vec<_> = processes.iter().map(|p| p["parent"].as_u64()).collect();
    assert_eq!(parents, [None, Some(0), Some(1)]);
    let longest = |process: &Value| {
        let vmas = process["vmas"].as_array().unwrap().iter();
        vmas.map(|vma| vma["chain"].as_array().unwrap().len()).max()
    };
    let lengths: Vec<_> = processes.iter().map(longest).collect();
    assert_eq!(lengths, [Some(1), Some(2), Some(3)]);
}

#[test]
fn a_recorded_family_is_shown_as_text_and_in_drawings() {
    let text = data(&FAMILY);
    assert!(text.contains("anon_vma"), "{text}");
    let dot = data(&[&FAMILY[..], &["--dot", "-"]].concat());
    assert!(dot.starts_with("digraph ") && dot.ends_with("}\n"));
    let svg = data(&[&FAMILY[..], &["--svg", "-"]].concat());
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

#[test]
fn a_running_process_shows_what_the_kernel_tells() {
    if !is_permitted() {
        return;
    }
    let cat = Idle::cat();
    let graph = json(&["show", "graph", "-p", &cat.pid(), "--json"]);
    assert_eq!(graph["graph"]["source"], "kernel");
    let notes = graph["graph"]["notes"].to_string();
    assert!(notes.contains("not visible"), "{notes}");
}

#[test]
fn who_cannot_be_shown_is_named() {
    for what in ["maps", "anatomy", "graph"] {
        if what == "graph" && !is_permitted() {
            continue;
        }
        let nobody = complaint(&["show", what, "-p", "2147483646"], 1);
        assert!(nobody.contains("2147483646"), "{nobody}");
        let absent = complaint(&["show", what, "--trace", "/no/such.vmtrace"], 1);
        assert!(absent.contains("/no/such.vmtrace"), "{absent}");
        let no_trace = complaint(&["show", what, "--trace", "/proc/self/status"], 1);
        assert!(no_trace.contains("not a vmarea trace"), "{no_trace}");
    }
    let mut ended = Leashed::start(&mut Command::new("true")).unwrap();
    // The process ends, but is not waited for.
    let pid = ended.id().to_string();
    let stat = format!("/proc/{pid}/stat");
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    let said = complaint(&["show", "maps", "-p", &pid], 1);
    assert!(said.contains("has ended"), "{said}");
    ended.wait().unwrap();
}

#[test]
fn wrong_usage_is_refused() {
    let two = complaint(&[&FAMILY[..], &["--svg", "-", "--dot", "-"]].concat(), 2);
    assert!(two.contains("standard output"), "{two}");
    for arguments in [
        &["show", "maps"][..],
        &["show", "maps", "-p", "1", "--", "true"],
        &["show", "maps", "-p", "1", "--at", "end"],
        &["show", "graph", "--trace", "x", "-p", "1"],
        &["show", "graph", "-p", "1", "--at", "end"],
        &["show", "graph", "-p", "1", "--limit", "0"],
        &["show", "anatomy", "-p", "0"],
    ] {
        assert_eq!(vmarea(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let full = complaint(&[&FAMILY[..], &["--svg", "/dev/full"]].concat(), 1);
    assert!(full.contains("/dev/full"), "{full}");
}

#[test]
fn the_whole_anatomy_has_each_mapping_and_flags_by_their_names() {
    const PROGRAM: &str = "import mmap, sys\n\
         m = mmap.mmap(-1, 1 << 20)\n\
         m.madvise(mmap.MADV_DONTFORK)\n\
         print(flush=True)\n\
         sys.stdin.read()";
    let mut python = Command::new("python3");
    let idle = Idle::start(python.args(["-c", PROGRAM]));
    let said = data(&["show", "anatomy", "--all", "-p", &idle.pid()]);
    assert!(said.contains("flags: MADV_DONTFORK"), "{said}");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", idle.pid())).expect("its maps");
    let mappings = maps.lines().filter(|line| !line.contains("[vsyscall]"));
    let starts = mappings.filter_map(|line| line.split('-').next());
    for start in starts {
        let start = start.trim_start_matches('0');
        // An end of one part is the start of the next one.
        assert!(said.contains(start), "{start} is not in {said}");
    }
}

#[test]
fn a_drawing_of_a_graph_takes_the_place_of_its_text() {
    let room = tempfile::tempdir().expect("a folder");
    let svg = room.path().join("graph.svg");
    let svg_path = svg.display().to_string();
    let said = data(&[&FAMILY[..], &["--svg", &svg_path]].concat());
    assert_eq!(said, "");
    let drawn = std::fs::read_to_string(svg).expect("a drawing");
    assert!(drawn.contains("<svg"), "{drawn}");
}
