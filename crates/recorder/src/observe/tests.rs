//! Tests that need rings of a chosen size.

use super::{ObserveOptions, Observer, SamplesError, StopRequest};
use crate::{Faults, InKernel, Stacks};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vmarea_trace::event::{Event, Origin};

/// A shell that creates processes without end, killed when the test ends.
struct Busy(Child);

impl Busy {
    fn start() -> Busy {
        let child = Command::new("sh")
            .args(["-c", "while :; do (true); done"])
            .stdout(Stdio::null())
            .spawn();
        Busy(child.expect("a shell"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_ring_that_overflows_is_reported_and_the_recording_begins_anew() {
    let busy = Busy::start();
    let options = ObserveOptions {
        pid: busy.0.id() as i32,
        duration: Some(Duration::from_millis(1500)),
        faults: Faults::Record,
        kernel_view: InKernel::Read,
        stacks: Stacks::Skip,
    };
    let mut events: Vec<Event> = Vec::new();
    let mut progress = |_| {};
    let observer = match Observer::open(&options, Some(8192), &mut events, &mut progress) {
        Ok(observer) => observer,
        Err(error @ (SamplesError::Permission { .. } | SamplesError::Io(_))) => {
            return println!("skipped: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    // Nobody reads the rings in the meantime.
    std::thread::sleep(Duration::from_millis(300));
    let stop = StopRequest::catch().expect("handlers");
    let outcome = observer.follow(&stop).expect("a recording");
    assert!(outcome.counts.lost > 0, "{outcome:?}");
    assert!(
        outcome.notes.iter().any(|note| note.contains("overflowed")),
        "{outcome:?}"
    );
    let lost = events
        .iter()
        .position(|event| matches!(event, Event::Lost { .. }));
    let after = &events[lost.expect("an event")..];
    let anew =
        |event: &Event| matches!(event, Event::MmStart(start) if start.origin == Origin::Attach);
    assert!(after.iter().any(anew), "{outcome:?}");
}
