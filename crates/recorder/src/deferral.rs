//! What the tracer's stops tell about the stream, and when it takes effect there.
//!
//! Without observed calls, the tracer learns of everything in the order of time, and each action
//! takes effect at once. Observed calls arrive in rings some time after they were made. An action
//! then waits until the observed calls before it have been handled ([`super::observed_calls`]).

use super::CallStack;
use super::filter::Stopping;
use super::mapped_files::RangeChange;
use super::mapping_calls::FinishedCall;
use super::timeline::{Alone, Ended, Flight};
use super::tracer::Tracer;
use std::collections::HashMap;
use vmarea_trace::event::{Event, MmId, Nanos};

/// An action with an effect on the stream.
#[derive(Debug)]
pub(crate) enum Action {
    /// A thread enters a call. The call changes the mappings of an address space, if one is given.
    CallBegins {
        tid: i32,
        flight: Flight,
        changes: Option<MmId>,
    },
    /// The call in which a thread is has no effect, or its effect is recorded separately.
    CallDiscarded { tid: i32 },
    /// A thread has finished a call.
    CallEnds { tid: i32, ended: Ended },
    /// Events that belong together.
    Events(Vec<Event>),
    /// An address space has ended.
    MmEnded(MmId),
    /// A change of mapped ranges that is known from a stop.
    Ranges(MmId, RangeChange),
    /// A finished call, which may have changed mapped ranges.
    Mappings {
        tid: i32,
        mm: MmId,
        call: FinishedCall,
    },
    /// The stack of a call.
    Stack(CallStack),
    /// A thread makes a call of another architecture, whose number would be misunderstood.
    ForeignCall { tid: i32 },
    /// A thread has exited.
    Gone { tid: i32 },
}

/// Threads inside calls that change an address space, in the order of the stream.
#[derive(Debug, Default)]
pub(crate) struct Concurrent(HashMap<MmId, HashMap<i32, Alone>>);

impl Concurrent {
    /// Records that a thread enters a call.
    pub(super) fn enters(&mut self, mm: MmId, tid: i32) {
        let inside = self.0.entry(mm).or_default();
        inside.remove(&tid);
        let alone = match inside.is_empty() {
            true => Alone::Yes,
            false => Alone::No,
        };
        inside.values_mut().for_each(|other| *other = Alone::No);
        inside.insert(tid, alone);
    }

    /// Records that a thread is no longer inside a call. Returns whether another call overlapped.
    pub(super) fn leaves(&mut self, mm: MmId, tid: i32) -> Alone {
        let Some(inside) = self.0.get_mut(&mm) else {
            return Alone::Yes;
        };
        let alone = inside.remove(&tid);
        if inside.is_empty() {
            self.0.remove(&mm);
        }
        alone.unwrap_or(Alone::Yes)
    }

    /// Forgets a thread whose call has no effect.
    pub(super) fn forget(&mut self, tid: i32) {
        self.0.retain(|_, inside| {
            inside.remove(&tid);
            !inside.is_empty()
        });
    }
}

impl Tracer<'_> {
    /// Lets an action take effect at time `t` of the stream.
    pub(super) fn at(&mut self, t: Nanos, action: Action) {
        match &mut self.observed {
            Some(observed) => observed.postpone(t, action),
            None => self.act(t, action),
        }
    }

    /// Lets an action take effect now, as the stream has reached its time.
    pub(super) fn act(&mut self, t: Nanos, action: Action) {
        match action {
            Action::CallBegins {
                tid,
                flight,
                changes,
            } => {
                if let Some(mm) = changes.filter(|_| self.stopping == Stopping::Others) {
                    self.concurrent.enters(mm, tid);
                }
                self.timeline.call_begins(tid, t, flight);
            }
            Action::CallDiscarded { tid } => {
                self.concurrent.forget(tid);
                self.timeline.call_discarded(tid);
            }
            Action::CallEnds { tid, mut ended } => {
                if self.concurrent.leaves(ended.mm, tid) == Alone::No {
                    ended.alone = Alone::No;
                }
                self.timeline.call_ends(tid, ended);
            }
            Action::Events(events) => self.timeline.push(t, events),
            Action::MmEnded(mm) => self.timeline.mm_ended(mm, t),
            Action::Ranges(mm, change) => self.files.mapped.change(mm, change),
            Action::Mappings { tid, mm, call } => self.follow_mappings(tid, mm, &call),
            Action::Stack(stack) => self.emitter.stack(&stack),
            Action::ForeignCall { .. } => {}
            Action::Gone { tid } => self.concurrent.forget(tid),
        }
    }

    /// Records that a thread enters a call.
    pub(super) fn call_begins(
        &mut self,
        tid: i32,
        t: Nanos,
        flight: Flight,
        changes: Option<MmId>,
    ) {
        let action = Action::CallBegins {
            tid,
            flight,
            changes,
        };
        self.at(t, action);
    }

    /// Records that a thread's call has no effect of its own.
    pub(super) fn call_discarded(&mut self, tid: i32, t: Nanos) {
        self.at(t, Action::CallDiscarded { tid });
    }

    /// Records that a thread has finished a call.
    pub(super) fn call_ends(&mut self, tid: i32, ended: Ended) {
        self.at(ended.exit, Action::CallEnds { tid, ended });
    }

    /// Adds events to the stream at time `t`.
    pub(super) fn push(&mut self, t: Nanos, events: Vec<Event>) {
        if !events.is_empty() {
            self.at(t, Action::Events(events));
        }
    }
}
