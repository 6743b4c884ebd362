//! Recordings of commands whose frequent calls are observed instead of stopping a thread.

use super::support::compile;
use std::ffi::OsString;
use std::io;
use std::time::Duration;
use vmarea_recorder::{Faults, Options, Outcome, RecordBy, RecordError, Sink, record};
use vmarea_trace::event::Event;

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

/// Sink that does not return from its hundredth event for some time.
#[derive(Default)]
struct Slow(Vec<Event>);

impl Sink for Slow {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.0.push(event.clone());
        if self.0.len() == 100 {
            std::thread::sleep(Duration::from_secs(4));
        }
        Ok(())
    }
}

#[test]
fn a_trace_ends_where_calls_were_lost() {
    let program = compile("storm", &[]);
    let options = Options {
        command: vec![program.into(), "4".into()],
        faults: Faults::Skip,
        by: RecordBy::Observing,
        ..Options::default()
    };
    let mut sink = Slow::default();
    let outcome = match record(&options, &mut sink, &mut |_| {}) {
        Err(RecordError::NotObservable(error)) => return println!("skipped: {error}"),
        outcome => outcome.expect("a recording"),
    };
    assert_eq!(outcome.status, 0);
    let told = outcome.notes.iter();
    assert_eq!(
        told.filter(|note| note.contains("calls were lost")).count(),
        1
    );
    let lost = |event: &Event| matches!(event, Event::Lost { .. });
    let first = sink.0.iter().position(lost).expect("a loss");
    let may_follow =
        |event: &Event| lost(event) || matches!(event, Event::Note(_) | Event::End { .. });
    assert!(sink.0[first..].iter().all(may_follow));
    assert!(matches!(sink.0.last(), Some(Event::End { .. })));
}
