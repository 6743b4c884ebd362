//! Last stage before the sink: announces inodes, counts events, and handles errors of the sink.
//!
//! An inode must be announced before its first use, and the order of events is known only here.
//! After the sink fails once, the emitter no longer calls it. The recording continues without a
//! sink, because the command depends on its tracer.
//!
//! Where calls were lost, the emitter ends the address spaces that exist: what the lost calls did is
//! unknown, so a later list of their mappings would differ for no reason. It passes on nothing more
//! of these, and of the address spaces that are forked from them.

use super::files::Files;
use super::tasks::UNRECORDED;
use super::{CallStack, Counts, RecordError, Sink};
use std::collections::BTreeSet;
use std::io;
use vmarea_trace::event::{Event, Header, InodeId, MmId, Nanos, Origin};

/// Passes events to the sink; see the module documentation.
pub(crate) struct Emitter<'a> {
    sink: &'a mut dyn Sink,
    announced: Vec<bool>,
    /// Counters of the emitted events.
    pub counts: Counts,
    failure: Option<io::Error>,
    losses: Losses,
}

/// Address spaces that have ended in the stream because calls were lost.
#[derive(Debug)]
struct Losses {
    /// Time of a loss that the stream has not reached, and the newest address space that ends there.
    next: Option<(Nanos, MmId)>,
    /// The newest address space that has ended.
    up_to: MmId,
    /// Newer address spaces that were forked from one that has ended.
    forked: BTreeSet<MmId>,
    /// Address spaces that exist in the stream.
    live: BTreeSet<MmId>,
}

impl Losses {
    fn includes(&self, mm: MmId) -> bool {
        mm <= self.up_to || self.forked.contains(&mm)
    }

    /// Takes note of an event; returns whether it is passed on.
    fn keeps(&mut self, event: &Event) -> bool {
        match event {
            Event::MmStart(start) => {
                if let Origin::Fork { parent } = start.origin
                    && self.includes(parent)
                {
                    self.forked.insert(start.mm);
                }
                let keeps = !self.includes(start.mm);
                if keeps {
                    self.live.insert(start.mm);
                }
                keeps
            }
            Event::MmEnd { mm, .. } => {
                let keeps = !self.includes(*mm);
                self.live.remove(mm);
                self.forked.remove(mm);
                keeps
            }
            Event::Call(call) => !self.includes(call.mm),
            Event::Fault(fault) => !self.includes(fault.mm),
            Event::Touch(touch) => !self.includes(touch.mm),
            Event::Snapshot(snapshot) => !self.includes(snapshot.mm),
            Event::TaskStart { mm, .. } => !self.includes(*mm),
            _ => true,
        }
    }

    /// Returns the address spaces that end at time `t`, at which samples or calls were lost.
    fn ending(&mut self, t: Nanos) -> Vec<MmId> {
        let Some((_, up_to)) = self.next.take_if(|(at, _)| t >= *at) else {
            return Vec::new();
        };
        self.up_to = self.up_to.max(up_to);
        let newer = up_to.0.checked_add(1).map(MmId);
        let later = newer.map(|mm| self.live.split_off(&mm));
        let ending = std::mem::replace(&mut self.live, later.unwrap_or_default());
        ending.into_iter().collect()
    }
}

impl<'a> Emitter<'a> {
    pub(crate) fn new(sink: &'a mut dyn Sink) -> Emitter<'a> {
        Emitter {
            sink,
            announced: Vec::new(),
            counts: Counts::default(),
            failure: None,
            losses: Losses {
                next: None,
                up_to: UNRECORDED,
                forked: BTreeSet::new(),
                live: BTreeSet::new(),
            },
        }
    }

    /// Ends the address spaces up to `up_to` at the loss of calls at time `t`, which is about to be
    /// emitted.
    ///
    /// Returns false if an earlier loss has already ended some.
    pub(crate) fn end_at_loss(&mut self, t: Nanos, up_to: MmId) -> bool {
        let is_first = self.losses.next.is_none() && self.losses.up_to == UNRECORDED;
        let earlier = self.losses.next.map_or(t, |(at, _)| at.min(t));
        self.losses.next = Some((earlier, up_to));
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
        if !self.losses.keeps(event) {
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
        if let Event::Lost { t, .. } = *event {
            for mm in self.losses.ending(t) {
                self.send(&Event::MmEnd { mm, t });
            }
        }
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
        let mm = MmId(stack.mm);
        let ends = |(_, up_to)| mm <= up_to;
        if self.failure.is_none()
            && !self.losses.includes(mm)
            && !self.losses.next.is_some_and(ends)
        {
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
    use vmarea_trace::event::MmStart;

    fn start(mm: u32, origin: Origin) -> Event {
        Event::MmStart(MmStart {
            mm: MmId(mm),
            origin,
            t: 1,
        })
    }

    #[test]
    fn address_spaces_end_where_calls_were_lost() {
        let end = |mm, t| Event::MmEnd { mm: MmId(mm), t };
        let lost = |t| Event::Lost { count: 2, t };
        let fork = |parent| Origin::Fork {
            parent: MmId(parent),
        };
        let before = [
            start(1, Origin::Exec),
            start(2, Origin::Exec),
            // Lost samples end nothing.
            lost(3),
            end(2, 4),
        ];
        let after = [
            start(4, Origin::Exec),
            Event::Note("why".to_owned()),
            start(6, fork(4)),
            end(6, 8),
            Event::End { status: 0, t: 9 },
        ];
        let of_lost = [start(3, fork(1)), end(1, 6), start(5, fork(3)), end(5, 7)];
        let last = lost(5);
        let mut events: Vec<Event> = Vec::new();
        let mut emitter = Emitter::new(&mut events);
        let emit = |emitter: &mut Emitter<'_>, event| emitter.emit(event, &Files::new());
        before.iter().for_each(|event| emit(&mut emitter, event));
        assert!(emitter.end_at_loss(5, MmId(3)));
        assert!(!emitter.end_at_loss(6, MmId(3)));
        emit(&mut emitter, &last);
        of_lost.iter().for_each(|event| emit(&mut emitter, event));
        after.iter().for_each(|event| emit(&mut emitter, event));
        assert_eq!(emitter.counts.lost, 4);
        let at_loss = [lost(5), end(1, 5)];
        assert_eq!(events, [&before[..], &at_loss, &after].concat());
    }
}
