//! Last stage before the sink: announces inodes, counts events, and handles errors of the sink.
//!
//! An inode must be announced before its first use, and the order of events is known only here.
//! After the sink fails once, the emitter no longer calls it. The recording continues without a
//! sink, because the command depends on its tracer.
//!
//! After calls were lost, the emitter passes on only notes, losses and the end: what the lost calls
//! did is unknown, so a later list of mappings would differ for no reason.

use super::files::Files;
use super::{CallStack, Counts, RecordError, Sink};
use std::io;
use vmarea_trace::event::{Event, Header, InodeId, Nanos};

/// Passes events to the sink; see the module documentation.
pub(crate) struct Emitter<'a> {
    sink: &'a mut dyn Sink,
    announced: Vec<bool>,
    /// Counters of the emitted events.
    pub counts: Counts,
    failure: Option<io::Error>,
    /// Time of the first loss of calls.
    lost_at: Nanos,
    /// True once the stream has reached the first loss of calls.
    is_over: bool,
}

impl<'a> Emitter<'a> {
    pub(crate) fn new(sink: &'a mut dyn Sink) -> Emitter<'a> {
        Emitter {
            sink,
            announced: Vec::new(),
            counts: Counts::default(),
            failure: None,
            lost_at: Nanos::MAX,
            is_over: false,
        }
    }

    /// Ends the stream at the loss of calls at time `t`, which is about to be emitted.
    ///
    /// Returns false if an earlier loss has already ended it.
    pub(crate) fn end_at_loss(&mut self, t: Nanos) -> bool {
        let is_first = self.lost_at == Nanos::MAX;
        self.lost_at = self.lost_at.min(t);
        is_first
    }

    /// Passes the header to the sink.
    ///
    /// # Errors
    /// [`RecordError::Sink`].
    pub(crate) fn header(&mut self, header: &Header) -> Result<(), RecordError> {
        self.sink.header(header).map_err(RecordError::Sink)
    }

    /// Emits an event, preceded by announcements of the inodes that it refers to.
    pub(crate) fn emit(&mut self, event: &Event, files: &Files) {
        self.is_over |= matches!(event, Event::Lost { t, .. } if *t >= self.lost_at);
        let is_kept = matches!(
            event,
            Event::Lost { .. } | Event::Note(_) | Event::End { .. }
        );
        if self.is_over && !is_kept {
            return;
        }
        match event {
            Event::Call(call) => {
                self.counts.calls += 1;
                if let Some(file) = call.file {
                    self.announce(file.inode, files);
                }
            }
            Event::Snapshot(snapshot) => {
                for inode in snapshot.vmas.iter().filter_map(|vma| vma.inode) {
                    self.announce(inode, files);
                }
            }
            Event::Fault(_) => self.counts.faults += 1,
            Event::Touch(_) => self.counts.touches += 1,
            Event::Lost { count, .. } => self.counts.lost += count,
            Event::MmStart(_) => self.counts.address_spaces += 1,
            _ => {}
        }
        self.send(event);
    }

    /// Lets the sink flush its buffers.
    pub(crate) fn tick(&mut self) {
        if self.failure.is_none()
            && let Err(error) = self.sink.tick()
        {
            self.failure = Some(error);
        }
    }

    /// Passes the stack of a call to the sink; the call's event follows later.
    pub(crate) fn stack(&mut self, stack: &CallStack) {
        if self.failure.is_none() && !self.is_over {
            self.sink.stack(stack);
        }
    }

    /// Returns and clears the error with which the sink failed.
    pub(crate) fn failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// True if the sink has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    fn announce(&mut self, id: InodeId, files: &Files) {
        let at = id.0 as usize;
        if self.announced.len() <= at {
            self.announced.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.announced[at], true)
            && let Some(inode) = files.inode(id)
        {
            self.send(&Event::Inode(inode.clone()));
        }
    }

    fn send(&mut self, event: &Event) {
        if self.failure.is_some() {
            return;
        }
        self.counts.events += 1;
        if let Err(error) = self.sink.event(event) {
            self.failure = Some(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_trace::event::MmId;

    #[test]
    fn a_stream_ends_where_calls_were_lost() {
        let end_of = |t| Event::MmEnd { mm: MmId(1), t };
        let lost = |t| Event::Lost { count: 2, t };
        let note = Event::Note("why".to_owned());
        let end = Event::End { status: 0, t: 9 };
        let mut events: Vec<Event> = Vec::new();
        let mut emitter = Emitter::new(&mut events);
        assert!(emitter.end_at_loss(5));
        assert!(!emitter.end_at_loss(6));
        // Lost samples do not end the stream, and neither does what precedes the lost calls.
        let before = [lost(3), end_of(4)];
        let kept = [lost(5), note, end];
        for event in before
            .iter()
            .chain([&kept[0], &end_of(6)])
            .chain(&kept[1..])
        {
            emitter.emit(event, &Files::new());
        }
        assert_eq!(emitter.counts.lost, 4);
        assert_eq!(events, [&before[..], &kept[..]].concat());
    }
}
