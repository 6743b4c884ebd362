//! Tests that need rings of a chosen size.

use super::{ObserveOptions, Observer, SamplesError, StopRequest};
use crate::samples::sees_all_ids;
use crate::{Faults, InKernel, Progress, Stacks};
use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vmarea_trace::event::{Event, Origin};

/// A program that is killed when the test ends.
struct Program(Child);

impl Program {
    /// Starts a shell that creates processes without end.
    fn busy() -> Program {
        Program::start("sh", &["-c", "while :; do (true); done"])
    }

    fn start(name: &str, arguments: &[&str]) -> Program {
        let mut command = Command::new(name);
        let command = command.args(arguments).stdout(Stdio::null());
        Program(command.spawn().expect("a program of the system"))
    }

    fn observed(&self, duration: Duration) -> ObserveOptions {
        ObserveOptions {
            pid: self.0.id() as i32,
            duration: Some(duration),
            faults: Faults::Record,
            kernel_view: InKernel::Read,
            stacks: Stacks::Skip,
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens rings of a size in bytes; `None` if that is not permitted.
fn opened<'a>(
    ring_bytes: usize,
    options: &ObserveOptions,
    events: &'a mut Vec<Event>,
    progress: &'a mut dyn FnMut(Progress),
) -> Option<Observer<'a>> {
    match Observer::open(options, Some(ring_bytes), events, progress) {
        Ok(observer) => Some(observer),
        Err(error @ (SamplesError::Permission { .. } | SamplesError::Io(_))) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn calls_of_other_processes_take_no_room_in_the_rings() {
    if !sees_all_ids() {
        return println!("skipped: not in the initial PID namespace");
    }
    let idle = Program::start("sleep", &["60"]);
    let options = idle.observed(Duration::from_millis(300));
    let mut events: Vec<Event> = Vec::new();
    let mut progress = |_| {};
    let Some(observer) = opened(1 << 20, &options, &mut events, &mut progress) else {
        return;
    };
    // Nobody reads the rings in the meantime. The allocator calls mremap for so large a buffer.
    let mut buffer = Vec::<u8>::with_capacity(64 << 20);
    for _ in 0..20_000 {
        black_box(&mut buffer).reserve_exact(128 << 20);
        black_box(&mut buffer).shrink_to(64 << 20);
    }
    let stop = StopRequest::catch().expect("handlers");
    let outcome = observer.follow(&stop).expect("a recording");
    assert_eq!(outcome.counts.lost, 0, "{outcome:?}");
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Snapshot(_)))
    );
}

#[test]
fn a_ring_that_overflows_is_reported_and_the_recording_begins_anew() {
    let busy = Program::busy();
    let options = busy.observed(Duration::from_millis(1500));
    let mut events: Vec<Event> = Vec::new();
    let mut progress = |_| {};
    let Some(observer) = opened(8192, &options, &mut events, &mut progress) else {
        return;
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
