//! `vmarea record -p`: joins a running process, records it, and leaves it as it was.

use crate::support::leash::{self, Leashed};
use crate::support::programs::program;
use crate::support::{Idle, Nobody, VMAREA, complaint, text, vmarea};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Returns the methods of recording that this user is permitted.
fn methods() -> &'static [&'static str] {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if is_root {
        &["tracing", "observing"]
    } else {
        &["tracing"]
    }
}

/// The program `attached.c`, and a folder for recordings of it.
struct Target {
    child: Leashed,
    output: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
}

impl Target {
    fn start() -> Target {
        Target::of(&program("attached.c"))
    }

    fn of(program: &str) -> Target {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Leashed::start_for(Duration::from_secs(300), &mut command).unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let folder = tempfile::tempdir().unwrap();
        // Give all threads time to begin their calls.
        std::thread::sleep(Duration::from_millis(50));
        Target {
            child,
            output,
            folder,
        }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn file(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    /// Starts a recording by `ptrace`, and waits until it has begun.
    fn trace(&self, file: &str, time: &[&str]) -> Leashed {
        self.record("tracing", file, time)
    }

    /// Starts a recording, and waits until it has begun.
    fn record(&self, method: &str, file: &str, time: &[&str]) -> Leashed {
        let mut command = Command::new(VMAREA);
        command.args(["record", "-p", &self.pid(), "--by", method, "-o", file]);
        command
            .args(time)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let recorder = Leashed::start(&mut command).unwrap();
        match method {
            // The file appears when the first events are written.
            "observing" => wait_until("it is observed", || Path::new(file).exists()),
            _ => wait_until("it is traced", || self.tracers().iter().all(|t| t != "0")),
        }
        recorder
    }

    /// Returns the value of `TracerPid` of each thread.
    fn tracers(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let status = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default()
        };
        let of = |status: String| {
            let mut lines = status.lines();
            lines.find_map(|line| Some(line.strip_prefix("TracerPid:")?.trim().to_owned()))
        };
        tasks.filter_map(|task| of(status(task))).collect()
    }

    fn state(&self) -> char {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let state = status
            .lines()
            .find_map(|line| line.strip_prefix("State:\t"));
        state.unwrap().chars().next().unwrap()
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid()]).status();
        assert!(sent.unwrap().success());
    }

    fn is_not_traced(&self) {
        assert!(
            self.tracers().iter().all(|t| t == "0"),
            "{:?}",
            self.tracers()
        );
    }

    /// Lets the program end, and checks that no call of it has ended too early.
    fn finish(self) {
        self.finish_with("ok");
    }

    /// Lets the program end, and checks that no call of it has ended too early, except that
    /// `epoll_wait` may have ended with `also`.
    fn finish_with(mut self, also: &str) {
        self.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        let said: Vec<String> = self.output.by_ref().lines().map(Result::unwrap).collect();
        let names = [
            "input",
            "epoll_wait",
            "futex",
            "read",
            "maps",
            "maps",
            "forks",
        ];
        let expected = names.map(|name| format!("{name}: ok"));
        let other = format!("epoll_wait: {also}");
        let is_expected = |(said, expected): (&String, &String)| {
            said == expected || expected.starts_with("epoll_wait") && *said == other
        };
        assert_eq!(said.len(), expected.len(), "{said:?}");
        assert!(said.iter().zip(&expected).all(is_expected), "{said:?}");
        assert!(self.child.wait().unwrap().success());
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Replays a recording, checks that lists were compared and equal the kernel's, and returns the
/// counts.
fn is_equal(file: &str) -> Value {
    let verify = without_differences(file);
    assert!(verify["vmas_compared"].as_u64() > Some(0), "{verify}");
    verify
}

/// Replays a recording, checks that nothing differs from the kernel, and returns the counts.
fn without_differences(file: &str) -> Value {
    let json = format!("{file}.json");
    let replayed = vmarea(&["replay", file, &format!("--json={json}")]);
    assert!(replayed.status.success(), "{replayed:?}");
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let verify = report["verify"].clone();
    assert_eq!(verify["differences"], 0, "{}", text(&replayed.stdout));
    verify
}

#[test]
fn a_process_that_is_joined_and_left_many_times_notices_nothing() {
    for (method, rounds) in methods().iter().zip([20, 5]) {
        let target = Target::start();
        let (mut vmas, mut results, mut undecided) = (0, 0, 0);
        for round in 0..rounds {
            let file = target.file(&format!("{round}.vmtrace"));
            recorded_for(&target.pid(), "100ms", method, &file);
            target.is_not_traced();
            // Tracing stops the process for its list; observing may not find it at rest in so short a time.
            let verify = match *method {
                "tracing" => is_equal(&file),
                _ => without_differences(&file),
            };
            vmas += verify["vmas_compared"].as_u64().unwrap();
            results += verify["results_compared"].as_u64().unwrap();
            undecided += verify["undecided"].as_u64().unwrap();
        }
        println!("{method}: {results} results compared, {undecided} undecided");
        assert!(vmas > 0 && results > rounds, "{vmas} {results}");
        target.finish();
    }
}

/// Records a process, which must succeed.
fn recorded_for(pid: &str, time: &str, method: &str, file: &str) {
    let arguments = [
        "record", "-p", pid, "--for", time, "--by", method, "-o", file,
    ];
    let recorded = vmarea(&arguments);
    assert_eq!(recorded.status.code(), Some(0), "{recorded:?}");
}

#[test]
fn lists_are_read_every_second_and_equal() {
    for method in methods() {
        let target = Target::start();
        let file = target.file("a.vmtrace");
        recorded_for(&target.pid(), "2500ms", method, &file);
        is_equal(&file);
        let dump = text(&vmarea(&["trace", "dump", &file]).stdout);
        let lists = |reason: &str| dump.matches(&format!("snapshot {reason}")).count();
        assert_eq!(lists("attach"), 1);
        // Each list contains the process, and perhaps a child of it.
        assert!(lists("checkpoint") >= 3, "{}", lists("checkpoint"));
        target.finish();
    }
}

#[test]
fn memory_from_before_a_fork_is_taken_over_with_its_anon_vmas() {
    for method in methods() {
        let target = Target::of(&program("forked.c"));
        let pid = target.pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let file = target.file("a.vmtrace");
        recorded_for(children.trim(), "300ms", method, &file);
        let verify = is_equal(&file);
        assert!(verify["results_compared"].as_u64() > Some(0), "{verify}");
    }
}

#[test]
fn a_process_with_a_child_from_before_is_recorded_without_the_child() {
    for method in methods() {
        let target = Target::of(&program("forked.c"));
        let file = target.file("a.vmtrace");
        recorded_for(&target.pid(), "300ms", method, &file);
        is_equal(&file);
        let info = text(&vmarea(&["trace", "dump", &file]).stdout);
        assert_eq!(info.matches(" task_start pid").count(), 1, "{info}");
    }
}

#[test]
fn a_request_to_exit_ends_the_recording_and_not_the_process() {
    for method in methods() {
        let target = Target::start();
        let file = target.file("a.vmtrace");
        let recorder = target.record(method, &file, &[]);
        let sent = Command::new("kill")
            .args(["-TERM", &recorder.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        let recorded = leash::finish(recorder).unwrap();
        assert_eq!(recorded.status.code(), Some(0), "{recorded:?}");
        target.is_not_traced();
        is_equal(&file);
        target.finish();
    }
}

#[test]
fn the_process_runs_on_if_the_recorder_is_killed() {
    let target = Target::start();
    for round in 0..5 {
        let mut recorder = target.trace(&target.file("a.vmtrace"), &["--for", "60s"]);
        std::thread::sleep(Duration::from_millis(40 * round));
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        wait_until("it is traced no more", || {
            target.tracers().iter().all(|t| t == "0")
        });
    }
    // The kernel restarts every call but this one; a recorder that is alive restarts it, too.
    target.finish_with("Interrupted system call");
}

#[test]
fn a_stopped_process_stays_stopped() {
    let target = Target::start();
    target.signal("-STOP");
    wait_until("it is stopped", || target.state() == 'T');
    let file = target.file("a.vmtrace");
    let arguments = [
        "record",
        "-p",
        &target.pid(),
        "--for",
        "1200ms",
        "-o",
        &file,
    ];
    assert_eq!(vmarea(&arguments).status.code(), Some(0));
    assert_eq!(target.state(), 'T');
    target.is_not_traced();
    is_equal(&file);
    target.signal("-CONT");
    wait_until("it runs", || target.state() != 'T');
    target.signal("-STOP");
    wait_until("it is stopped", || target.state() == 'T');
    // It continues while it is recorded.
    let recorder = target.trace(&file, &["--for", "500ms"]);
    target.signal("-CONT");
    assert!(leash::finish(recorder).unwrap().status.success());
    let verify = is_equal(&file);
    assert!(verify["results_compared"].as_u64() > Some(0), "{verify}");
}

#[test]
fn the_recording_of_a_process_that_ends_is_kept() {
    for (method, signal) in methods().iter().flat_map(|m| [(m, "-TERM"), (m, "-KILL")]) {
        let target = Target::start();
        let file = target.file("a.vmtrace");
        let recorder = target.record(method, &file, &["--for", "60s"]);
        std::thread::sleep(Duration::from_millis(200));
        target.signal(signal);
        let recorded = leash::finish(recorder).unwrap();
        assert_eq!(recorded.status.code(), Some(0), "{recorded:?}");
        assert!(text(&recorded.stderr).contains("the process has ended"));
        // An observed process does not stop for a last list when it exits.
        let verify = without_differences(&file);
        assert!(verify["results_compared"].as_u64() > Some(0), "{verify}");
    }
}

#[test]
fn a_traced_process_that_ends_is_gone_for_its_parent_at_once() {
    for round in 0..10 {
        let mut target = Target::start();
        let file = target.file("ended");
        let recorder = target.trace(&file, &[]);
        wait_until("it is recorded", || Path::new(&file).exists());
        let process = Pid::from_child(&target.child);
        let process = rustix::process::pidfd_open(process, PidfdFlags::empty()).unwrap();
        target.signal("-KILL");
        let mut ends = [PollFd::new(&process, PollFlags::IN)];
        rustix::event::poll(&mut ends, None).unwrap();
        let status = target.child.try_wait().unwrap();
        assert!(status.is_some(), "still there in round {round}");
        leash::finish(recorder).unwrap();
    }
}

#[test]
fn a_process_whose_first_thread_has_exited_is_recorded_and_explained() {
    let program = program("first_exits.c");
    let mut command = Command::new(&program);
    command.stdin(Stdio::piped());
    let child = Leashed::start_for(Duration::from_secs(300), &mut command).unwrap();
    let pid = child.id().to_string();
    let stat = format!("/proc/{pid}/stat");
    let has_exited = || std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") Z "));
    wait_until("the first thread exits", has_exited);
    let folder = tempfile::tempdir().unwrap();
    for method in methods() {
        let file = folder.path().join(method).display().to_string();
        recorded_for(&pid, "300ms", method, &file);
        assert!(is_equal(&file)["results_compared"].as_u64() > Some(0));
        let info = text(&vmarea(&["trace", "info", &file]).stdout);
        assert!(info.contains(&program), "{info}");
    }
    for flags in [&[][..], &["--no-bpf"]] {
        let explained = vmarea(&[&["explain", "-p", &pid], flags].concat());
        assert!(explained.status.success(), "{explained:?}");
        let said = text(&explained.stdout);
        assert!(
            said.contains("(first_exits): ") && said.contains("special"),
            "{said}"
        );
    }
}

#[test]
fn a_process_that_executes_a_program_while_it_is_joined_runs_on() {
    let target = Target::of(&program("executes.c"));
    let pid = target.pid();
    for round in 0..20 {
        let file = target.file(&format!("{round}.vmtrace"));
        let arguments = ["record", "-p", &pid, "--for", "10ms", "--by", "tracing"];
        let recorded = vmarea(&[&arguments[..], &["-o", &file]].concat());
        // On a busy machine, it can do so at each attempt.
        if !recorded.status.success() {
            let said = complaint(&recorded, 1);
            assert!(said.contains("executed another program"), "{said}");
        }
        let runs = || target.tracers().iter().all(|tracer| tracer == "0");
        wait_until("it is let go", runs);
    }
}

#[test]
fn what_cannot_be_joined_is_refused_in_one_line() {
    let idle = Idle::cat();
    let pid = idle.pid();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.vmtrace");
    let file = file.to_str().unwrap();
    let refused = |pid: &str, status: i32| {
        let output = vmarea(&["record", "-p", pid, "--for", "1s", "-o", file]);
        assert!(!Path::new(file).exists());
        complaint(&output, status)
    };
    assert!(refused("4194304", 1).contains("no process 4194304"));
    assert!(refused("2", 4).contains("kernel thread"));
    let me = std::process::id().to_string();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let tids = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
    if let Some(tid) = tids.into_iter().find(|tid| *tid != me) {
        assert!(refused(&tid, 1).contains(&format!("thread of process {me}")));
    }
    let own = Command::new("sh")
        .args([
            "-c",
            "exec \"$0\" record -p $$ --for 1s -o \"$1\"",
            VMAREA,
            file,
        ])
        .output()
        .unwrap();
    assert!(complaint(&own, 1).contains("vmarea itself"));
    let missing = vmarea(&["record", "-p", &pid, "--for", "30", "-o", file]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("30s"), "{missing:?}");
}

#[test]
fn too_few_files_for_all_threads_are_named_with_the_limit() {
    let target = Target::start();
    let shell = format!(
        "ulimit -n 70; exec {VMAREA} record -p {} --for 1s --by tracing -o {}",
        target.pid(),
        target.file("a.vmtrace")
    );
    let output = leash::output(Command::new("sh").args(["-c", &shell])).unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{said}");
    let limit = "and 70 are permitted (ulimit -n ";
    assert!(
        said.contains("too many open files: ") && said.contains(limit),
        "{said}"
    );
    target.is_not_traced();
}

#[test]
fn a_traced_process_can_only_be_observed() {
    let idle = Idle::cat();
    let pid = idle.pid();
    let folder = tempfile::tempdir().unwrap();
    let record = |method: &str, name: &str, time: &str| {
        let file = folder.path().join(name).to_str().unwrap().to_owned();
        let command = format!("record -p {pid} --by {method} --for {time} -o");
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        [words, vec![file]].concat()
    };
    let run = |words: &[String]| vmarea(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let mut tracer = Command::new(VMAREA);
    tracer.args(record("tracing", "a.vmtrace", "60s"));
    let mut tracer = Leashed::start(tracer.stderr(Stdio::null())).unwrap();
    let traced = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    wait_until("it is traced", || !traced().contains("TracerPid:\t0\n"));
    let words = format!("process {pid} is traced by process {} already", tracer.id());
    let said = complaint(&run(&record("tracing", "b.vmtrace", "1s")), 5);
    assert!(said.contains(&words), "{said}");
    // The same words and the same status as those of a merge.
    let said = complaint(&vmarea(&["merge", "-p", &pid, "--apply"]), 5);
    assert!(said.contains(&words), "{said}");
    if methods().contains(&"observing") {
        let command = record("observing", "c.vmtrace", "1s");
        let observed = run(&command);
        assert_eq!(observed.status.code(), Some(0), "{observed:?}");
        let file = command.last().unwrap();
        assert!(vmarea(&["replay", file]).status.success());
    }
    tracer.kill().unwrap();
    tracer.wait().unwrap();
}

#[test]
fn another_users_process_is_refused_and_names_the_capability() {
    let Some(nobody) = Nobody::new() else { return };
    let idle = Idle::cat();
    let refused = nobody.vmarea(&["record", "-p", &idle.pid(), "-o", "/tmp/never.vmtrace"]);
    let said = complaint(&refused, 5);
    assert!(said.contains("CAP_SYS_PTRACE"), "{said}");
    assert!(!Path::new("/tmp/never.vmtrace").exists());
}

#[test]
fn without_permission_to_observe_ptrace_is_used_and_a_note_says_why() {
    let Some(nobody) = Nobody::new() else { return };
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let file = folder.path().join("a.vmtrace");
    let sleeper = Leashed::start(nobody.command("sleep").arg("60")).unwrap();
    let pid = sleeper.id().to_string();
    // Until then the process still belongs to root.
    wait_until("it sleeps", || {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "sleep\n")
    });
    let file = file.to_str().unwrap();
    let recorded = nobody.vmarea(&["record", "-p", &pid, "--for", "100ms", "-o", file]);
    let said = text(&recorded.stderr);
    assert!(recorded.status.success(), "{said}");
    let notes = said
        .lines()
        .filter(|line| line.contains("recorded by ptrace"));
    assert_eq!(notes.count(), 1, "{said}");
}

#[test]
fn explain_records_a_running_process_with_its_stacks() {
    let target = Target::start();
    for method in methods() {
        let arguments = ["explain", "-p", &target.pid(), "--record", "500ms"];
        let explained = vmarea(&[&arguments[..], &["--stacks", "--by", method]].concat());
        assert!(explained.status.success(), "{explained:?}");
        let said = text(&explained.stdout);
        assert!(said.contains("maps"), "{method}: {said}");
    }
    let without = vmarea(&["explain", "-p", &target.pid(), "--stacks"]);
    assert!(complaint(&without, 2).contains("--record"));
    target.finish();
}
