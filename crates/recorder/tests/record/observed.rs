//! Recordings of commands whose frequent calls are observed instead of stopping a thread.

use std::ffi::OsString;
use vmarea_recorder::{Options, Outcome, RecordBy, RecordError, record};
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
