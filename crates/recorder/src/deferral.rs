//! When the actions of the tracer's stops take effect in the stream.
//!
//! Without observed calls, the tracer learns of everything in the order of time, and each action
//! takes effect at once. Observed calls arrive in rings some time after they were made. An action
//! then waits until the observed calls before it have been handled ([`super::observed_calls`]).

use super::actions::Action;
use super::filter::Stopping;
use super::timeline::{Alone, Ended, Flight};
use super::tracer::Tracer;
use vmarea_trace::event::{Event, MmId, Nanos};

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
            Action::LastList(list) => self.timeline.push(list.t, vec![Event::Snapshot(*list)]),
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
