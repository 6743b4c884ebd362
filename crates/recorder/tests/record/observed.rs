//! Recordings of commands whose frequent calls are observed instead of stopping a thread.

use super::support::compile;
use std::ffi::OsString;
use std::io;
use vmarea_recorder::{Options, Outcome, RecordBy, RecordError, Sink, Stacks, record};
use vmarea_replay::{Replayer, Report};
use vmarea_trace::event::{Event, Header};

/// Records a shell command by a method; `None` if the method is not permitted.
fn recorded(script: &str, by: RecordBy) -> Option<(Outcome, Vec<Event>)> {
    let options = Options {
        command: ["sh", "-c", script].map(OsString::from).to_vec(),
        by,
        ..Options::default()
    };
    let mut events = Vec::new();
    match record(&options, &mut events, &mut |_| {}) {
        Ok(outcome) => Some((outcome, events)),
        Err(RecordError::NotObservable(error)) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns the number of each call in the order of the trace.
fn calls(events: &[Event]) -> Vec<(u32, bool)> {
    let call = |event: &Event| match event {
        Event::Call(call) => Some((call.nr, call.ret >= 0)),
        _ => None,
    };
    events.iter().filter_map(call).collect()
}

#[test]
fn an_observed_command_makes_the_calls_that_a_stopped_one_makes() {
    let script = "ls / >/dev/null; (true); exit 3";
    let Some((outcome, observed)) = recorded(script, RecordBy::Observing) else {
        return;
    };
    assert_eq!(outcome.status, 3 << 8);
    assert_eq!(outcome.counts.lost, 0, "{outcome:?}");
    let (_, stopped) = recorded(script, RecordBy::Tracing).expect("permission to trace");
    assert_eq!(calls(&observed), calls(&stopped));
}

/// Sink that keeps everything.
#[derive(Default)]
struct Kept {
    header: Header,
    events: Vec<Event>,
}

impl Kept {
    fn replay(&self) -> Report {
        let options = vmarea_replay::Options::default();
        let mut replayer = Replayer::new(&self.header, &options).expect("a replay");
        for event in &self.events {
            replayer.event(event).expect("an event that fits");
        }
        replayer.finish()
    }
}

impl Sink for Kept {
    fn header(&mut self, header: &Header) -> io::Result<()> {
        self.header = header.clone();
        Ok(())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.events.push(event.clone());
        Ok(())
    }
}

/// Records a program with a habit by default, and replays the recording. `None` if the program
/// cannot be observed.
fn replayed(habit: &str) -> Option<(Outcome, Report)> {
    let options = |by| Options {
        command: vec![compile("habits", &[]).into(), habit.into()],
        by,
        ..Options::default()
    };
    let mut kept = Kept::default();
    match record(&options(RecordBy::Observing), &mut kept, &mut |_| {}) {
        Ok(_) => {}
        Err(RecordError::NotObservable(error)) => {
            println!("skipped: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    }
    let mut kept = Kept::default();
    let outcome = record(&options(RecordBy::Auto), &mut kept, &mut |_| {}).expect("a recording");
    println!("{habit}: {outcome:?}");
    Some((outcome, kept.replay()))
}

/// Requires that a program with a habit ends as it does alone, and that its recording is exact.
fn is_exact(habit: &str, status: i32) {
    let Some((outcome, report)) = replayed(habit) else {
        return;
    };
    assert_eq!(outcome.status, status, "{outcome:?}");
    assert_eq!(outcome.counts.lost, 0, "{outcome:?}");
    assert!(outcome.counts.calls > 1000, "{outcome:?}");
    assert_eq!(report.verify.differences, 0, "{report:#?}");
    assert!(report.verify.vmas_compared > 20, "{report:#?}");
}

#[test]
fn a_program_that_is_killed_inside_of_calls_is_recorded_exactly() {
    is_exact("killed", libc::SIGKILL);
}

#[test]
fn forks_while_threads_map_are_recorded_exactly() {
    is_exact("forks", 0);
}

#[test]
fn a_program_that_gives_up_its_privileges_is_recorded_exactly() {
    is_exact("drops", 0);
}

#[test]
fn threads_that_an_exec_ends_inside_of_calls_are_recorded_exactly() {
    is_exact("execs", 0);
}

#[test]
fn a_command_is_traced_where_lists_or_stacks_need_stops() {
    let command: Vec<OsString> = vec!["true".into()];
    let options = Options {
        command,
        checkpoint: std::num::NonZeroU64::new(1),
        ..Options::default()
    };
    let mut events: Vec<Event> = Vec::new();
    record(&options, &mut events, &mut |_| {}).expect("a recording");
    let snapshots = |event: &&Event| matches!(event, Event::Snapshot(_));
    let calls = |event: &&Event| matches!(event, Event::Call(_));
    let calls = events.iter().filter(calls).count();
    // A list follows each call, and each exec and exit has one of its own.
    assert!(events.iter().filter(snapshots).count() > calls);
    let options = Options {
        checkpoint: None,
        stacks: Stacks::Copy,
        ..options
    };
    let mut events: Vec<Event> = Vec::new();
    let outcome = record(&options, &mut events, &mut |_| {}).expect("a recording");
    assert_eq!(outcome.counts.lost, 0);
}

#[test]
fn mappings_of_one_open_file_merge_in_both_recordings() {
    let replayed = |by| -> Option<Report> {
        let options = Options {
            command: vec![compile("files", &[]).into()],
            by,
            ..Options::default()
        };
        let mut kept = Kept::default();
        match record(&options, &mut kept, &mut |_| {}) {
            Ok(outcome) => assert_eq!(outcome.status, 0, "{outcome:?}"),
            Err(RecordError::NotObservable(error)) => {
                println!("skipped: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        Some(kept.replay())
    };
    let Some(observed) = replayed(RecordBy::Observing) else {
        return;
    };
    let traced = replayed(RecordBy::Tracing).expect("permission to trace");
    for report in [&observed, &traced] {
        assert_eq!(report.verify.differences, 0, "{report:#?}");
        assert_eq!(report.verify.undecided, 0, "{report:#?}");
    }
    let of = |report: &Report| {
        let linux = report.policies.values().next().expect("a policy").clone();
        (
            linux.merges,
            linux.refusals.get("file").copied(),
            linux.vmas_exit,
        )
    };
    assert_eq!(of(&observed), of(&traced));
}
