//! Programs that run already and are observed without being stopped, as root.
//!
//! Each recording is replayed, and the replay must agree with the kernel's lists.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use vmarea_recorder::{
    AttachOptions, CallStack, Outcome, Progress, RecordBy, RecordError, Sink, Stacks, attach,
};
use vmarea_replay::{Options, Replayer, Report};
use vmarea_trace::event::{Event, Header, Origin, SnapReason};

/// A running program, which ends when its standard input is closed.
struct Program {
    child: Child,
}

impl Program {
    fn start(pause_us: u32) -> Program {
        Program::start_of("observe/programs/busy.c", pause_us)
    }

    /// Starts the program with a source below `tests`.
    fn start_of(source: &str, pause_us: u32) -> Program {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // ORDERING: Relaxed; only uniqueness matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let binary = folder.join(format!("observed-{}-{number}", std::process::id()));
        let source = format!("{}/tests/{source}", env!("CARGO_MANIFEST_DIR"));
        let built = Command::new("cc")
            .args(["-O1", "-pthread", "-o"])
            .arg(&binary)
            .arg(source)
            .status()
            .expect("a C compiler");
        assert!(built.success());
        let mut child = Command::new(&binary)
            .arg(pause_us.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Program { child }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Ends the program. Returns whether it ended well.
    fn end(mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().expect("its status").success()
    }
}

/// A sink that keeps everything.
#[derive(Default)]
struct Kept {
    header: Option<Header>,
    events: Vec<Event>,
    stacks: Vec<CallStack>,
}

impl Sink for Kept {
    fn header(&mut self, header: &Header) -> std::io::Result<()> {
        self.header = Some(header.clone());
        Ok(())
    }

    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        self.events.push(event.clone());
        Ok(())
    }

    fn stack(&mut self, stack: &CallStack) {
        self.stacks.push(stack.clone());
    }
}

impl Kept {
    fn replay(&self) -> Report {
        let header = self.header.as_ref().expect("a header");
        let mut replayer = Replayer::new(header, &Options::default()).expect("a replay");
        for event in &self.events {
            replayer.event(event).expect("an event that fits");
        }
        replayer.finish()
    }

    fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| wanted(event)).count()
    }

    /// Returns the number of snapshots that no call overlapped, after the first ones.
    fn exact_checkpoints(&self) -> usize {
        self.count(|event| {
            matches!(event, Event::Snapshot(s) if s.exact && s.reason == SnapReason::Checkpoint)
        })
    }
}

/// Observes a process; `None` without the permission to do so.
fn observe(pid: i32, duration: Duration) -> Option<(Kept, Outcome)> {
    observe_with(pid, duration, Stacks::Skip, &mut |_| {})
}

fn observe_with(
    pid: i32,
    duration: Duration,
    stacks: Stacks,
    progress: &mut dyn FnMut(Progress),
) -> Option<(Kept, Outcome)> {
    let options = AttachOptions {
        duration: Some(duration),
        by: RecordBy::Observing,
        stacks,
        ..AttachOptions::new(pid)
    };
    let mut kept = Kept::default();
    match attach(&options, &mut kept, progress) {
        Ok(outcome) => {
            println!("{:?}", outcome.notes);
            Some((kept, outcome))
        }
        Err(RecordError::NotObservable(error)) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_program_with_threads_and_children_is_observed_without_differences() {
    let program = Program::start(2000);
    let Some((kept, outcome)) = observe(program.pid(), Duration::from_secs(4)) else {
        return;
    };
    assert!(program.end());
    let report = kept.replay();
    assert_eq!(report.verify.differences, 0, "{report:#?}");
    assert!(outcome.counts.calls > 1000, "{outcome:?}");
    assert!(outcome.counts.faults > 1000, "{outcome:?}");
    assert_eq!(outcome.counts.lost, 0, "{outcome:?}");
    assert!(kept.exact_checkpoints() >= 2);
    let forks = kept.count(
        |event| matches!(event, Event::MmStart(start) if matches!(start.origin, Origin::Fork { .. })),
    );
    assert!(forks > 10, "{forks} children");
}

#[test]
fn mappings_of_one_open_file_merge() {
    let program = Program::start_of("record/programs/files.c", 2000);
    let Some((kept, outcome)) = observe(program.pid(), Duration::from_secs(3)) else {
        return;
    };
    assert!(program.end());
    let report = kept.replay();
    assert_eq!(report.verify.differences, 0, "{report:#?}");
    assert_eq!(outcome.counts.lost, 0, "{outcome:?}");
    let merged = |report: &Report| -> u64 {
        let linux = report.policies.values().next().expect("a policy");
        linux.merges.values().sum()
    };
    let rounds = kept.count(|event| {
        matches!(event, Event::Call(call) if i64::from(call.nr) == libc::SYS_munmap && call.args[1] == 7 << 12)
    }) as u64;
    // Seven pieces join the first, and the fourth joins both of its neighbours once more.
    assert!(
        rounds > 5 && merged(&report) >= 8 * (rounds - 1),
        "{report:#?}"
    );
}

#[test]
fn a_program_that_ends_while_it_is_observed_ends_the_recording() {
    let program = Program::start(1000);
    let pid = program.pid();
    let (recording, begun) = std::sync::mpsc::channel();
    let ender = std::thread::spawn(move || {
        let _ = begun.recv();
        program.end()
    });
    let recorded = observe_with(
        pid,
        Duration::from_secs(60),
        Stacks::Skip,
        &mut |progress| {
            if matches!(progress, Progress::Counts(counts) if counts.calls > 0) {
                let _ = recording.send(());
            }
        },
    );
    drop(recording);
    assert!(ender.join().expect("no panic"));
    let Some((kept, outcome)) = recorded else {
        return;
    };
    assert!(outcome.counts.calls > 0, "{outcome:?}");
    let report = kept.replay();
    assert_eq!(report.verify.differences, 0, "{report:#?}");
    let ends = kept.count(|event| matches!(event, Event::MmEnd { .. }));
    let starts = kept.count(|event| matches!(event, Event::MmStart(_)));
    assert_eq!(starts, ends);
}

#[test]
fn a_program_that_is_hardly_ever_at_rest_is_observed_without_differences() {
    let program = Program::start(200);
    let Some((kept, outcome)) = observe(program.pid(), Duration::from_secs(2)) else {
        return;
    };
    assert!(program.end());
    let report = kept.replay();
    assert_eq!(report.verify.differences, 0, "{report:#?}");
    println!("{outcome:?}");
}

#[test]
fn a_program_that_is_never_at_rest_is_stopped_once_and_observed_without_differences() {
    let program = Program::start(0);
    let Some((kept, outcome)) = observe(program.pid(), Duration::from_secs(2)) else {
        return;
    };
    assert!(program.end());
    let report = kept.replay();
    assert_eq!(report.verify.differences, 0, "{report:#?}");
    assert!(outcome.counts.calls > 1000, "{outcome:?}");
    let stopped = |note: &&String| note.contains("was stopped for");
    println!("{:?}", outcome.notes.iter().find(stopped));
}

#[test]
fn every_call_comes_with_the_stack_of_its_thread() {
    let program = Program::start(2000);
    let observed = observe_with(
        program.pid(),
        Duration::from_secs(1),
        Stacks::Copy,
        &mut |_| {},
    );
    let Some((kept, outcome)) = observed else {
        return;
    };
    assert!(program.end());
    assert_eq!(kept.replay().verify.differences, 0);
    assert!(outcome.counts.calls > 100, "{outcome:?}");
    assert!(
        kept.stacks.len() as u64 >= outcome.counts.calls,
        "{outcome:?}"
    );
    for stack in &kept.stacks {
        assert!(stack.ip != 0 && stack.sp != 0, "{stack:?}");
        // The frames of `changes_mappings` and of the thread's start.
        assert!(stack.bytes.len() > 100, "{stack:?}");
    }
}
