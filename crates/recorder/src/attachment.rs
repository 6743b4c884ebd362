//! State of a tracer that has attached to a running process; see [`super::attach`].

use vmarea_trace::event::Nanos;

/// State of a recording of a process that was running before.
#[derive(Debug, Default)]
pub(crate) struct Attachment {
    /// True until all threads have been stopped for the first time.
    pub(crate) joins: bool,
    /// True while threads are kept at their stops.
    pub(crate) keeps: bool,
    /// Time at which the recording ends, if it has a limit.
    pub(crate) until: Option<Nanos>,
    /// Time of the next snapshot.
    pub(crate) next_snapshot: Nanos,
    /// Number of snapshots that were left out because a thread did not stop in time.
    pub(crate) left_out: u64,
}

impl Attachment {
    /// Returns the time at which the tracer must act without a stop.
    pub(crate) fn deadline(&self) -> Nanos {
        self.until
            .map_or(self.next_snapshot, |until| until.min(self.next_snapshot))
    }

    /// True if no event may be emitted yet: the header is not written.
    pub(crate) fn holds_stream(&self) -> bool {
        self.joins
    }
}
