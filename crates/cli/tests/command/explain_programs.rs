//! `explain` on real programs.
//!
//! The programs are an interpreter, a database after a save, a runtime with threads, and a Java
//! virtual machine if one is installed (`ci/run explain` installs it).
//!
//! Each program is stopped while it is read, so that the report can be compared with its list of
//! mappings line by line: no mapping is missed or counted twice, and every boundary has one reason.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vmarea_process::view::KernelView;
use vmarea_test_support::leash::{self, Leashed};

/// Time limit within which a program must create its mappings.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A program that runs until it is dropped.
struct Running {
    child: Leashed,
    folder: tempfile::TempDir,
}

impl Running {
    fn start(program: &str, arguments: &[&str]) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let output = std::fs::File::create(folder.path().join("output")).unwrap();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        let child = Leashed::start_for(2 * START_TIMEOUT, &mut command)
            .unwrap_or_else(|error| panic!("{program}: {error} (ci/lib/install.sh installs it)"));
        Running { child, folder }
    }

    fn path(&self, file: &str) -> std::path::PathBuf {
        self.folder.path().join(file)
    }

    /// Waits until `ready` returns true.
    fn wait(mut self, ready: impl Fn(&Running) -> bool) -> Running {
        let begun = Instant::now();
        while !ready(&self) {
            let ended = self.child.try_wait().unwrap();
            let said = std::fs::read_to_string(self.path("output")).unwrap_or_default();
            assert!(ended.is_none(), "ended with {ended:?}: {said}");
            assert!(begun.elapsed() < START_TIMEOUT, "not ready: {said}");
            std::thread::sleep(Duration::from_millis(20));
        }
        self
    }

    fn says(&self, word: &str) -> bool {
        std::fs::read_to_string(self.path("output")).is_ok_and(|text| text.contains(word))
    }

    fn maps(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).unwrap()
    }

    /// Stops the program, so that its threads no longer change its mappings.
    fn stop(&self) {
        let pid = self.child.id().to_string();
        let output = leash::output(Command::new("kill").args(["-STOP", &pid]));
        assert!(output.unwrap().status.success());
        let is_stopped = |task: &Path| {
            let text = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
            text.rsplit_once(") ")
                .is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        let tasks = format!("/proc/{pid}/task");
        while !std::fs::read_dir(&tasks)
            .unwrap()
            .all(|task| is_stopped(&task.unwrap().path()))
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn explained(&self, arguments: &[&str]) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmarea"));
        command
            .args(["explain", "--all", "--json", "-p"])
            .arg(self.child.id().to_string())
            .args(arguments);
        let output = leash::output(&mut command).unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON alone")
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Checks that the report is consistent with the list of mappings.
fn adds_up(name: &str, said: &Value, maps: &str) {
    let lines: Vec<_> = maps
        .lines()
        .filter(|l| !l.ends_with("[vsyscall]"))
        .collect();
    let rows = said["rows"].as_array().unwrap();
    assert_eq!(rows.len(), lines.len(), "{name}");
    assert_eq!(number(&said["mappings"]), lines.len() as u64, "{name}");
    assert_eq!(number(&said["changed"]), 0, "{name}");
    for (row, line) in rows.iter().zip(&lines) {
        let mut fields = line.split_ascii_whitespace();
        let (low, high) = fields.next().unwrap().split_once('-').unwrap();
        let address = |digits| u64::from_str_radix(digits, 16).unwrap();
        let start = address(row["address"].as_str().unwrap());
        assert_eq!(start, address(low), "{name}: {line}: {row}");
        assert_eq!(
            number(&row["size"]),
            address(high) - start,
            "{name}: {line}"
        );
        assert_eq!(row["perm"].as_str(), fields.next(), "{name}: {line}");
    }
    // The counts are those of the rows, and every row except the first has one reason.
    let reasons = said["reasons"].as_array().unwrap();
    for reason in reasons {
        let of_it = |row: &&Value| row["reason"] == reason["reason"];
        let counted = rows.iter().filter(of_it).count() as u64;
        assert_eq!(number(&reason["mappings"]), counted, "{name}: {reason}");
    }
    let sum: u64 = reasons
        .iter()
        .map(|reason| number(&reason["mappings"]))
        .sum();
    assert_eq!(sum + 1, lines.len() as u64, "{name}");
    let fixes = rows.iter().filter(|row| !row["fix"].is_null()).count() as u64;
    assert_eq!(number(&said["joinable"]), fixes, "{name}");
}

/// Explains the program with and without the kernel's own data.
fn judge(name: &str, program: &Running) {
    program.stop();
    let maps = program.maps();
    let from_proc = program.explained(&["--no-bpf"]);
    adds_up(name, &from_proc, &maps);
    let said = if KernelView::open().is_ok() {
        let said = program.explained(&[]);
        adds_up(name, &said, &maps);
        agree(name, &said, &from_proc);
        said
    } else {
        from_proc
    };
    let reasons = said["reasons"].as_array().unwrap();
    let counts: Vec<_> = reasons
        .iter()
        .map(|r| format!("{} {}", r["reason"].as_str().unwrap(), r["mappings"]))
        .collect();
    println!(
        "{name}: {} mappings, {} could be merged: {}",
        said["mappings"],
        said["joinable"],
        counts.join(", ")
    );
}

/// Compares the reports with and without the kernel's own data.
///
/// With this data, every reason is certain. Without it, the candidates for a likely reason include
/// the true reason, if there is one. A reason that is reported as certain without this data is
/// either the true reason, or sufficient by itself; in the latter case, a hidden attribute that the
/// kernel compares first also differs.
fn agree(name: &str, kernel: &Value, proc: &Value) {
    const HIDDEN_FIRST: [(&str, &str); 2] = [("flags", "file"), ("flags", "file_offset")];
    let rows = |said: &Value| said["rows"].as_array().unwrap().clone();
    for (truth, likely) in rows(kernel).iter().zip(&rows(proc)).skip(1) {
        assert_eq!(truth["certainty"], "certain", "{name}: {truth}");
        let reasons = (
            truth["reason"].as_str().unwrap(),
            likely["reason"].as_str().unwrap(),
        );
        let candidates = likely["candidates"].as_array();
        let possible = match likely["certainty"].as_str() {
            Some("certain") => reasons.0 == reasons.1 || HIDDEN_FIRST.contains(&reasons),
            _ => reasons.0 == "nothing" || candidates.unwrap().contains(&truth["reason"]),
        };
        assert!(possible, "{name}: {likely}, but {truth}");
    }
}

#[test]
fn a_recording_of_a_process_has_the_evidence_that_the_process_has() {
    const THREADS: &str = "import threading\n\
        threading.stack_size(1 << 18)\n\
        hold = threading.Event()\n\
        for _ in range(250): threading.Thread(target=hold.wait, daemon=True).start()\n\
        print('ready', flush=True)\n\
        hold.wait()\n";
    let python = Running::start("python3", &["-c", THREADS]).wait(|python| python.says("ready"));
    let said = python.explained(&["--record", "200ms"]);
    let cause = &said["causes"][0];
    assert_eq!(cause["name"], "thread-stacks", "{said}");
    let evidence = cause["evidence"].as_str().unwrap();
    assert!(evidence.contains("hold the stack pointer"), "{evidence}");
}

#[test]
fn an_interpreter_with_large_lists() {
    let source = "import time\n\
        lists = [[(i, str(j)) for j in range(20000)] for i in range(20)]\n\
        del lists[::2]\n\
        print('ready', flush=True)\n\
        time.sleep(600)";
    let python = Running::start("python3", &["-c", source]);
    judge("python", &python.wait(|program| program.says("ready")));
}

#[test]
fn a_runtime_with_workers() {
    let source = "const { Worker, isMainThread, parentPort } = require('node:worker_threads');\n\
        const heap = Array.from({ length: 50000 }, (_, i) => ({ i, text: 'x'.repeat(i % 50) }));\n\
        setInterval(() => heap.length, 1000);\n\
        if (isMainThread) {\n\
          let started = 0;\n\
          for (let n = 0; n < 4; n++) new Worker(process.argv[1]).on('message',\n\
            () => { if (++started === 4) console.log('ready'); });\n\
        } else parentPort.postMessage(0);";
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("workers.js");
    std::fs::write(&script, source).unwrap();
    let node = Running::start("node", &[script.to_str().unwrap()]);
    judge("node", &node.wait(|program| program.says("ready")));
}

#[test]
fn a_database_after_a_save() {
    let options = ["--port", "0", "--unixsocket", "socket", "--save", ""];
    let redis =
        Running::start("redis-server", &options).wait(|program| program.path("socket").exists());
    let socket = redis.path("socket");
    let on_socket = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.arg("-s").arg(&socket).args(arguments);
        let output = leash::output(&mut command).unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let load = [
        "-t",
        "set,lpush",
        "-n",
        "30000",
        "-r",
        "30000",
        "-d",
        "200",
        "-q",
    ];
    on_socket("redis-benchmark", &load);
    on_socket("redis-cli", &["bgsave"]);
    let saved = |_: &Running| {
        let state = on_socket("redis-cli", &["info", "persistence"]);
        state.contains("rdb_bgsave_in_progress:0")
    };
    judge("redis", &redis.wait(saved));
}

#[test]
fn a_java_machine_with_a_heap_of_many_mappings() {
    let found = leash::output(Command::new("java").arg("-version"));
    if !found.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: no java (ci/run explain installs it)");
    }
    // A program that every Java installation contains and that does not end.
    let options = ["-J-XX:+UseZGC", "-J-Xmx256m", "-J-XX:+AlwaysPreTouch", "0"];
    let java = Running::start("rmiregistry", &options);
    judge(
        "java",
        &java.wait(|program| program.maps().contains("java_heap")),
    );
}
