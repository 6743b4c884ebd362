//! Stops the threads that make observed calls faster than the recorder can handle them.
//!
//! The rings are emptied into memory as fast as they fill, so without a limit the waiting records
//! would need more and more of it. Above the limit, the recorder stops the threads that made the
//! most recent calls, at the ends of their calls, and lets them continue when most of the records
//! have been handled. The program only becomes slower, and no call is lost.
//!
//! A thread that sleeps is not stopped, because a stop would interrupt its call; it makes no calls
//! either.

use super::attach::interrupt;
use super::calls::is_running;
use super::clock::clock;
use super::tracer::Tracer;

impl Tracer<'_> {
    /// Stops threads if too many records wait, or lets the threads continue.
    pub(super) fn throttle(&mut self) {
        let Some(observed) = &self.observed else {
            return;
        };
        let records = observed.waiting_bytes();
        if records + self.timeline.waiting_bytes() > self.throttle.most_bytes {
            let callers = observed.recent_callers();
            self.throttle.since.get_or_insert_with(clock);
            for tid in callers {
                self.stop_caller(tid);
            }
        } else if records < self.throttle.most_bytes / 4 {
            self.end_throttle();
        }
    }

    fn stop_caller(&mut self, tid: i32) {
        if let Some(task) = self.tasks.get_mut(&tid)
            && !(task.interrupted || task.leaving || task.listens)
            && is_running(tid)
        {
            interrupt(tid, task);
        }
    }

    /// Lets the threads continue that were stopped because too many records waited.
    pub(super) fn end_throttle(&mut self) {
        if let Some(since) = self.throttle.since.take() {
            self.throttle.total += clock().saturating_sub(since);
            self.release_threads();
        }
    }

    /// Adds a note about the time for which threads were stopped.
    pub(super) fn note_throttle(&mut self) {
        let ms = self.throttle.total / 1_000_000;
        if self.throttle.total != 0 {
            self.note(format!(
                "the program was stopped for {ms} ms in total, because it made calls faster than \
                 they could be recorded; none was lost by that"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, RecordBy, RecordError};
    use vmarea_trace::event::Event;

    /// A program that maps and unmaps 30,000 times.
    const STORM: &str = "import mmap\nfor _ in range(30000): mmap.mmap(-1, 12288).close()";

    #[test]
    fn a_program_that_is_too_fast_is_stopped_and_loses_no_call() {
        let options = Options {
            command: ["python3", "-c", STORM].map(Into::into).to_vec(),
            by: RecordBy::Observing,
            ..Options::default()
        };
        let mut events: Vec<Event> = Vec::new();
        let mut ignored = |_| {};
        let mut tracer = match Tracer::start(&options, &mut events, &mut ignored) {
            Err(RecordError::NotObservable(error)) => return println!("skipped: {error}"),
            tracer => tracer.expect("a command"),
        };
        tracer.throttle.most_bytes = 64 << 10;
        let outcome = tracer.follow().expect("a recording");
        assert_eq!((outcome.status, outcome.counts.lost), (0, 0));
        assert!(
            outcome
                .notes
                .iter()
                .any(|note| note.contains("was stopped for")),
            "{:?}",
            outcome.notes
        );
        let is_unmapping = |event: &&Event| {
            matches!(event, Event::Call(call)
                if i64::from(call.nr) == libc::SYS_munmap && call.args[1] == 12288 && call.ret == 0)
        };
        assert!(events.iter().filter(is_unmapping).count() >= 30_000);
    }
}
