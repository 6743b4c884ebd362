//! The last station before the sink: announces inodes, counts, and survives a sink that fails.
//!
//! The order of the stream is not known before it leaves, so that an inode stands before its
//! first use can only be seen to here. A sink that fails once is not asked again: the command
//! must run on, for it cannot do without its tracer.

use super::files::Files;
use super::{CallStack, Counts, Sink};
use std::io;
use vmarea_trace::event::{Event, InodeId};

/// See the module.
pub(crate) struct Emitter<'a> {
    sink: &'a mut dyn Sink,
    announced: Vec<bool>,
    /// What has left.
    pub counts: Counts,
    failure: Option<io::Error>,
}

impl<'a> Emitter<'a> {
    pub(crate) fn new(sink: &'a mut dyn Sink) -> Emitter<'a> {
        Emitter {
            sink,
            announced: Vec::new(),
            counts: Counts::default(),
            failure: None,
        }
    }

    /// Sends an event, and before it what it names.
    pub(crate) fn emit(&mut self, event: &Event, files: &Files) {
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

    /// Gives the sink an occasion to pass on what it keeps back.
    pub(crate) fn tick(&mut self) {
        if self.failure.is_none()
            && let Err(error) = self.sink.tick()
        {
            self.failure = Some(error);
        }
    }

    /// Hands over the stack of a call whose event comes later.
    pub(crate) fn stack(&mut self, stack: &CallStack) {
        if self.failure.is_none() {
            self.sink.stack(stack);
        }
    }

    /// What the sink failed with.
    pub(crate) fn failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// True where the sink has failed.
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
