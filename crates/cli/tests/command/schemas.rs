//! The schemas in `docs/schemas`: they are current, and they describe what the commands write.
//!
//! `vmarea_test_support::schemas` says what is checked.

use crate::support::heap::{Heap, may_merge};
use crate::support::leash::Leashed;
use crate::support::programs::program;
use crate::support::{Idle, VMAREA, text};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use vmarea_test_support::schemas::{Program, Subject};
use vmarea_trace::event::Event;
use vmarea_trace::{Reader, Writer};

const PROGRAM: Program = Program {
    name: "vmarea",
    path: VMAREA,
    folder: concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schemas"),
    renew: "cargo run -p vmarea-cli --example generate -- schemas docs/schemas",
};
const MUNMAP: u32 = 11;

/// Defines one test per command, and the list of the tested commands.
macro_rules! commands {
    ($($test:ident: $command:literal, $run:expr;)*) => {
        $(
            #[test]
            fn $test() {
                let run: fn(&Subject) = $run;
                run(&Subject::new(PROGRAM, $command));
            }
        )*
        const TESTED: &[&str] = &[$($command),*];
    };
}

commands! {
    compare: "compare", comparisons;
    explain: "explain", explanations;
    merge: "merge", merges;
    replay: "replay", replays;
    run: "run", |it| {
        it.run(&["--", "true"]);
    };
    show_anatomy: "show anatomy", |it| {
        it.run(&["--all", "-p", &Idle::cat().pid()]);
        it.run(&["--trace", &Recording::new().path()]);
    };
    show_diff: "show diff", differences;
    show_graph: "show graph", |it| {
        it.run(&["--", "sh", "-c", "true; true"]);
    };
    show_maps: "show maps", |it| {
        it.run(&["--rss", "-p", &Idle::cat().pid()]);
        it.run(&["--no-bpf", "-p", &Idle::cat().pid()]);
        it.run(&["--trace", &Recording::new().path()]);
    };
    top: "top", samples;
    trace_dump: "trace dump", |it| {
        let lines = it.run_lines(&[&Recording::new().path()]).expect("no permission is needed");
        assert!(lines.len() > 10, "a line per event");
    };
    trace_info: "trace info", |it| {
        it.run(&[&Recording::new().path()]);
    };
}

/// A recording of a small program.
struct Recording {
    folder: tempfile::TempDir,
}

impl Recording {
    fn new() -> Recording {
        let folder = tempfile::tempdir().unwrap();
        let recording = Recording { folder };
        let output = crate::support::vmarea(&["record", "-o", &recording.path(), "--", "true"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        recording
    }

    fn path(&self) -> String {
        self.file("trace").display().to_string()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a copy in which every munmap that succeeded has failed; returns its path.
    fn with_failures(&self) -> String {
        let reader = Reader::open(self.file("trace")).unwrap();
        let path = self.file("changed");
        let mut writer = Writer::create(&path, reader.header()).unwrap();
        for event in reader {
            let mut event = event.unwrap();
            if let Event::Call(call) = &mut event
                && call.nr == MUNMAP
            {
                call.ret = -22;
            }
            writer.write(&event).unwrap();
        }
        writer.finish().unwrap();
        path.display().to_string()
    }
}

fn comparisons(it: &Subject) {
    let recording = Recording::new();
    let policies = ["--policy", "linux", "--policy", "vmarea"];
    it.run(&[&policies[..], &[&recording.path()]].concat());

    let whole = fs::read(recording.file("trace")).unwrap();
    let torn = recording.file("torn");
    fs::write(&torn, &whole[..whole.len() / 2]).unwrap();
    let traces = [recording.path(), torn.display().to_string()];
    it.run(&[&policies[..], &[&traces[0], &traces[1]]].concat());
}

fn explanations(it: &Subject) {
    let folder = tempfile::tempdir().unwrap();
    let cat = Idle::cat();
    let whole = it.run(&["--all", "--rss", "-p", &cat.pid()]);
    let earlier = folder.path().join("earlier");
    fs::write(&earlier, whole.expect("a result").to_string()).unwrap();
    let earlier = earlier.display().to_string();
    it.run(&["--no-bpf", "--since", &earlier, "-p", &cat.pid()]);

    let list = format!("/proc/{}/maps", cat.pid());
    it.run(&["--from", &list]);

    let report = it
        .run(&["--stacks", "--", &program("arena.cc")])
        .expect("a result");
    assert!(report["made_from"].is_array(), "{report}");
    let report = it.run(&["--", &program("prevention.c"), "commits", "1500"]);
    assert!(report.expect("a result")["prevention"].is_array());
}

fn merges(it: &Subject) {
    if !may_merge() {
        return;
    }
    let heap = Heap::start(
        "area = make(50, 1, lambda p, i: ctypes.memset(p, i, page))\nsys.stdin.readline()\n",
    );
    let pid = heap.pid();
    let fixed = ["-p", &pid, "--range", &heap.range];
    it.run(&[&fixed[..], &["--fix", "guards,flags"]].concat());
    let done = it.run(&[&fixed[..], &["--apply", "--fix", "flags"]].concat());
    assert_eq!(done.expect("a result")["applied"], true);
}

fn replays(it: &Subject) {
    let recording = Recording::new();
    it.run(&[&recording.path()]);
    let report = it.run(&["--differences", "all", &recording.with_failures()]);
    let report = report.expect("a result");
    assert!(report["first_difference"].is_object(), "{report}");
}

fn differences(it: &Subject) {
    let folder = tempfile::tempdir().unwrap();
    let list = |name: &str, mappings: u64| {
        let line = |n: u64| {
            let (start, end) = (0x1000_0000 + n * 0x2000, 0x1000_1000 + n * 0x2000);
            format!("{start:08x}-{end:08x} rw-p 00000000 00:00 0 \n")
        };
        let path = folder.path().join(name);
        fs::write(&path, (0..mappings).map(line).collect::<String>()).unwrap();
        path.display().to_string()
    };
    it.run(&[&list("before", 10), &list("after", 30)]);
}

fn samples(it: &Subject) {
    it.run(&["--once", "-n", "5"]);
    let mut program = it.program(&["--interval", "100ms", "-n", "3"]);
    let mut stream = Leashed::start(program.stdout(Stdio::piped())).unwrap();
    let lines = BufReader::new(stream.stdout.take().unwrap()).lines();
    let documents = lines.take(3).map(|line| {
        let line = line.expect("a line");
        serde_json::from_str(&line).expect("one document per line")
    });
    it.check_all(&documents.collect::<Vec<Value>>());
}

/// Returns the schemas that the types of the results have.
fn schemas() -> Vec<(&'static str, Value)> {
    let schemas = vmarea_cli::schemas().into_iter();
    schemas
        .map(|(name, schema)| (name, schema.to_value()))
        .collect()
}

#[test]
fn every_command_with_json_has_a_schema_and_a_test() {
    PROGRAM.check_names(&vmarea_cli::definition(), &schemas(), TESTED);
}

#[test]
fn the_committed_schemas_are_current() {
    PROGRAM.check_committed(&schemas());
}

#[test]
fn each_schema_is_valid_and_describes_its_fields() {
    PROGRAM.check_descriptions(&schemas());
}
