//! The schemas in `docs/schemas`: they are current, and they describe what the commands write.
//!
//! Each command runs for real, and its output must match its committed schema. Then the output is
//! damaged in every place, and each damaged output must not match, because a schema that accepts
//! everything would also pass the first check.
#![forbid(unsafe_code)]

mod support;

use jsonschema::Validator;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::heap::{Heap, may_merge};
use support::leash::{self, Leashed};
use support::{Idle, VMAREA, text};
use vmarea_trace::event::Event;
use vmarea_trace::{Reader, Writer};

const RENEW: &str = "cargo run -p vmarea-cli --example generate -- schemas docs/schemas";
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const MUNMAP: u32 = 11;

/// Number of elements of each array that are damaged; the others have the same schema.
const DAMAGED: usize = 3;

/// Exit statuses after which there is a result: nothing special, a difference or an exceeded
/// threshold, nothing to do, and an incomplete result.
const WITH_RESULT: [i32; 4] = [0, 3, 4, 6];
const PERMISSION_IS_MISSING: i32 = 5;

fn file_name(command: &str) -> String {
    format!("{}.json", command.replace(' ', "-"))
}

fn committed(command: &str) -> Value {
    let path = Path::new(ROOT)
        .join("docs/schemas")
        .join(file_name(command));
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}: run {RENEW}", path.display()));
    serde_json::from_str(&text).expect("a schema is JSON")
}

/// A command with its committed schema.
struct Subject {
    command: &'static str,
    schema: Value,
    validator: Validator,
}

impl Subject {
    fn new(command: &'static str) -> Subject {
        let schema = committed(command);
        Subject {
            command,
            validator: jsonschema::validator_for(&schema).expect("a valid schema"),
            schema,
        }
    }

    /// Runs the command with `--json`, and checks its result; returns the result.
    ///
    /// Without the permission that the command needs, prints why and returns `None`.
    fn run(&self, arguments: &[&str]) -> Option<Value> {
        let mut documents = self.run_lines(arguments)?;
        assert_eq!(documents.len(), 1, "{} writes one document", self.command);
        documents.pop()
    }

    /// Like [`run`](Self::run), for a command that writes one document per line.
    fn run_lines(&self, arguments: &[&str]) -> Option<Vec<Value>> {
        let output = leash::output(self.program(arguments).stdin(Stdio::null())).unwrap();
        let said = text(&output.stderr);
        let status = output.status.code().expect("an exit status");
        if status == PERMISSION_IS_MISSING {
            eprintln!("skipped: {} {arguments:?}: {said}", self.command);
            return None;
        }
        let name = format!("{} {arguments:?}: {status}: {said}", self.command);
        assert!(WITH_RESULT.contains(&status), "{name}");
        let lines = output.stdout.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        let documents = lines.map(|line| serde_json::from_slice(line).expect("JSON alone"));
        let documents: Vec<Value> = documents.collect();
        assert!(!documents.is_empty(), "{name}: there is no result");
        self.check_all(&documents);
        Some(documents)
    }

    /// Returns a command to run; `--json` stands before the other arguments.
    fn program(&self, arguments: &[&str]) -> Command {
        let mut program = Command::new(VMAREA);
        program.args(self.command.split(' '));
        program.args(["--json", "-"]).args(arguments);
        program
    }

    /// Checks all documents, and damages the first of each form.
    fn check_all(&self, documents: &[Value]) {
        let mut damaged: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
        for document in documents {
            self.check(document);
            let fields = document.as_object().expect("an object");
            let times = damaged.entry(fields.keys().map(String::as_str).collect());
            let times = times.or_default();
            *times += 1;
            if *times <= DAMAGED {
                self.refuses_damage(document);
            }
        }
    }

    fn check(&self, document: &Value) {
        let errors = self.validator.iter_errors(document);
        let errors: Vec<_> = errors
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        let command = self.command;
        assert!(
            errors.is_empty(),
            "vmarea {command} --json does not match docs/schemas/{}; if this is intended, run \
             {RENEW}\n{}",
            file_name(command),
            errors.join("\n")
        );
    }

    fn refuses(&self, document: &Value, damage: &str) {
        let accepted = self.validator.is_valid(document);
        assert!(!accepted, "{}: accepted: {damage}", self.command);
    }

    /// Damages a valid document in each place; none of the results may match the schema.
    fn refuses_damage(&self, document: &Value) {
        let wrong = json!({"no such field": []});
        let mut damaged = document.clone();
        for field in self.required(document) {
            let fields = damaged.as_object_mut().expect("an object");
            let removed = fields.remove(&field).expect("a field of the document");
            self.refuses(&damaged, &format!("without {field}"));
            damaged[&field] = removed;
        }
        let mut places = Vec::new();
        collect_places(document, String::new(), &mut places);
        for place in places {
            let value = damaged.pointer_mut(&place).expect("a place");
            let original = std::mem::replace(value, wrong.clone());
            self.refuses(&damaged, &format!("{place} is of a wrong type"));
            let value = damaged.pointer_mut(&place).expect("a place");
            *value = original.clone();
            if let Some(fields) = value.as_object_mut() {
                fields.insert("no such field".to_owned(), json!([]));
                self.refuses(&damaged, &format!("{place} has an unknown field"));
                *damaged.pointer_mut(&place).expect("a place") = original;
            }
        }
        assert_eq!(&damaged, document, "every damage was undone");
    }

    /// Returns the document's fields without those that the schema does not require.
    fn required(&self, document: &Value) -> Vec<String> {
        let fields = document.as_object().expect("an object").keys();
        let required = self.schema["required"].as_array();
        let is_required = |field: &&String| {
            required.is_none_or(|names| names.iter().any(|name| name == field.as_str()))
        };
        let required: Vec<String> = fields.filter(is_required).cloned().collect();
        assert!(!required.is_empty(), "{} requires no field", self.command);
        required
    }
}

/// Appends the JSON pointers of a value and of all values in it, but of few elements per array.
fn collect_places(value: &Value, place: String, places: &mut Vec<String>) {
    match value {
        Value::Array(elements) => {
            for (n, element) in elements.iter().enumerate().take(DAMAGED) {
                collect_places(element, format!("{place}/{n}"), places);
            }
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                let field = field.replace('~', "~0").replace('/', "~1");
                collect_places(value, format!("{place}/{field}"), places);
            }
        }
        _ => {}
    }
    places.push(place);
}

/// Defines one test per command, and the list of the tested commands.
macro_rules! commands {
    ($($test:ident: $command:literal, $run:expr;)*) => {
        $(
            #[test]
            fn $test() {
                let run: fn(&Subject) = $run;
                run(&Subject::new($command));
            }
        )*
        const TESTED: &[&str] = &[$($command),*];
    };
}

commands! {
    bench_brk: "bench brk", |it| {
        it.run(&["--calls", "64", "--rounds", "2"]);
    };
    bench_cache: "bench cache", |it| {
        it.run(&["--rounds", "2", &Recording::new().path()]);
    };
    bench_calls: "bench calls", |it| {
        it.run(&["--rounds", "2"]);
    };
    bench_fault: "bench fault", |it| {
        it.run(&["--pages", "512", "--rounds", "2"]);
    };
    bench_layout: "bench layout", |it| {
        it.run(&["--vmas", "500"]);
    };
    bench_lookup: "bench lookup", |it| {
        it.run(&["--vmas", "10", "--vmas", "100", "--rounds", "2"]);
    };
    bench_spacing: "bench spacing", |it| {
        it.run(&["--mappings", "50", "--rounds", "2"]);
        it.run(&["--mappings", "50", "--rounds", "2", "--av", "same", "--curve"]);
    };
    compare: "compare", comparisons;
    conform: "conform", conformance;
    experiment: "experiment", |it| {
        it.run(&["vma-lock", "--quick"]);
    };
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
        it.run(&["--demo"]);
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
        let output = support::vmarea(&["record", "-o", &recording.path(), "--", "true"]);
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

fn conformance(it: &Subject) {
    it.run(&["--ops", "500", "--seed", "1"]);
    it.run(&["--ops", "500", "--seed", "1", "--profile", "vmarea"]);
    // Differences are reported with their steps; a newer kernel does not follow these rules.
    it.run(&["--ops", "2000", "--seed", "1", "--profile", "linux-5.10"]);
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

/// Compiles a program of this folder.
fn compiled(compiler: &str, source: &str, folder: &Path) -> String {
    let binary = folder.join("program").display().to_string();
    let source = format!("{}/tests/programs/{source}", env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new(compiler);
    let output = leash::output(compiler.args(["-O2", "-g", &source, "-o", &binary])).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    binary
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

    let program = compiled("g++", "arena.cc", folder.path());
    let report = it.run(&["--stacks", "--", &program]).expect("a result");
    assert!(report["made_from"].is_array(), "{report}");
    let program = compiled("cc", "prevention.c", folder.path());
    let report = it.run(&["--", &program, "commits", "1500"]);
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
    let mut program = it.program(&["--interval", "0.1", "-n", "3"]);
    let mut stream = Leashed::start(program.stdout(Stdio::piped())).unwrap();
    let lines = BufReader::new(stream.stdout.take().unwrap()).lines();
    let documents = lines.take(3).map(|line| {
        let line = line.expect("a line");
        serde_json::from_str(&line).expect("one document per line")
    });
    it.check_all(&documents.collect::<Vec<Value>>());
}

/// Returns the names of all commands whose arguments include `--json`.
fn with_json(command: &clap::Command, name: &str, found: &mut BTreeSet<String>) {
    let mut arguments = command.get_arguments();
    if arguments.any(|argument| argument.get_long() == Some("json")) {
        found.insert(name.to_owned());
    }
    for subcommand in command.get_subcommands() {
        let name = format!("{name} {}", subcommand.get_name());
        with_json(subcommand, name.trim_start(), found);
    }
}

#[test]
fn every_command_with_json_has_a_schema_and_a_test() {
    let mut commands = BTreeSet::new();
    with_json(&vmarea_cli::definition(), "", &mut commands);
    let owned = |names: &[&str]| -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    };
    let schemas: Vec<_> = vmarea_cli::schemas()
        .iter()
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(
        owned(&schemas),
        commands,
        "schemas of all commands with --json"
    );
    assert_eq!(owned(TESTED), commands, "tests of all commands with --json");
}

#[test]
fn the_committed_schemas_are_current() {
    let folder = Path::new(ROOT).join("docs/schemas");
    let files = fs::read_dir(folder).unwrap();
    let files: BTreeSet<_> = files
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let schemas = vmarea_cli::schemas();
    let expected: BTreeSet<_> = schemas.iter().map(|(name, _)| file_name(name)).collect();
    assert_eq!(files, expected, "docs/schemas has other files: run {RENEW}");
    for (command, schema) in schemas {
        let is_current = committed(command) == schema.to_value();
        assert!(
            is_current,
            "{} is not current: run {RENEW}",
            file_name(command)
        );
    }
}

#[test]
fn each_schema_is_valid_and_describes_its_fields() {
    for (command, _) in vmarea_cli::schemas() {
        let schema = committed(command);
        assert!(jsonschema::meta::is_valid(&schema), "{command}");
        assert!(schema.get("$id").is_none(), "{command}");
        assert_eq!(schema["title"], format!("vmarea {command} --json"));
        let definitions = schema["$defs"].as_object().into_iter().flatten();
        let definitions = definitions.map(|(name, definition)| (name.as_str(), definition));
        for (name, object) in [(command, &schema)].into_iter().chain(definitions) {
            assert!(object["description"].is_string(), "{command}: {name}");
            for (field, value) in object["properties"].as_object().into_iter().flatten() {
                assert!(
                    value["description"].is_string(),
                    "{command}: {name}.{field}"
                );
            }
        }
    }
}
