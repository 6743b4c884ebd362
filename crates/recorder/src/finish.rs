//! The end of a recording: the last samples, notes and events.

use super::clock::clock;
use super::tasks::UNRECORDED;
use super::tracer::Tracer;
use super::{Outcome, Progress, RecordError};
use vmarea_trace::event::{Event, Nanos};

impl Tracer<'_> {
    /// Ends the stream and returns the outcome.
    ///
    /// # Errors
    /// [`RecordError`] if nothing could be recorded or the sink failed.
    pub(super) fn finish(mut self) -> Result<Outcome, RecordError> {
        match self.untraced {
            0 => {}
            1 => self.note(
                "1 task was created with CLONE_UNTRACED: it was recorded nevertheless".to_owned(),
            ),
            n => self.note(format!(
                "{n} tasks were created with CLONE_UNTRACED: they were recorded nevertheless"
            )),
        }
        for written in self.settings.written(clock()) {
            self.note(written.to_string());
        }
        self.finish_observed();
        self.finish_samples();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.last_mm == UNRECORDED {
            return Err(match self.command {
                Some((command, started)) => command.explain(started.failure()),
                None => RecordError::Ended(self.root),
            });
        }
        let (emitter, files) = (&mut self.emitter, &self.files);
        self.timeline
            .finish(&mut |event| emitter.emit(&event, files));
        let status = self.root_status.unwrap_or(0);
        let t = clock();
        emitter.emit(&Event::End { status, t }, files);
        emitter.counts.tasks = 0;
        let counts = emitter.counts;
        (self.progress)(Progress::Counts(counts));
        match self.emitter.failure() {
            Some(error) => Err(RecordError::Sink(error)),
            None => Ok(Outcome {
                status,
                counts,
                notes: self.notes,
            }),
        }
    }

    /// Reads the last samples and adds notes about lost or uncertain samples.
    fn finish_samples(&mut self) {
        let Some(mut samples) = self.samples.take() else {
            return;
        };
        let mut taken = Vec::new();
        if let Err(error) = samples.finish(&mut taken) {
            self.note(format!("cannot tell whether samples were lost: {error}"));
        }
        self.timeline.samples(&mut taken, Nanos::MAX);
        let (emitter, files) = (&mut self.emitter, &self.files);
        self.timeline
            .finish(&mut |event| emitter.emit(&event, files));
        if samples.late() != 0 {
            self.note(format!(
                "{} samples of page faults arrived too late to be ordered",
                samples.late()
            ));
        }
        let unknown_threads = self.timeline.unknown_threads();
        if unknown_threads != 0 {
            self.note(format!(
                "{unknown_threads} samples of page faults came from unknown threads and are left out"
            ));
        }
    }
}
