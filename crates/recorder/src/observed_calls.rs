//! Calls that are observed while a program runs, instead of stopping its threads.
//!
//! Root need not stop a thread at the calls that programs make often: BPF programs write them into
//! rings ([`super::call_rings`]). The seccomp filter then stops threads only at the other calls
//! of the table. This module puts both in the order of time: the tracer's actions wait until the
//! calls before them have arrived.
//!
//! The rings are emptied often, into memory, and their records are handled in short slices, so that
//! a program that makes calls faster than the recorder can handle them overflows no ring.
//!
//! # Picture
//! ```text
//!   rings -> records --\
//!                       by time -> calls, actions -> timeline
//!   stops -> actions --/
//! ```
//!
//! # Invariants
//! The effects on the stream are in the order of time, except that an action that is older than the
//! position of the stream takes effect at once. That is possible only for a thread that has been
//! stopped since then.

use super::actions::Action;
use super::call_queue::{Entered, Next, ObservedCalls};
use super::call_range::CallRange;
use super::call_rings::loss::Loss;
use super::call_rings::record::{Observed, Record, UserStack};
use super::call_table;
use super::mapping_calls::is_restarted;
use super::residence::Place;
use super::timeline::{Alone, Ended, Flight};
use super::tracer::Tracer;
use super::{CallStack, Progress, Stacks};
use crate::clock::clock;
use rustix::fs::OFlags;
use vmarea_trace::event::{Call, Event, FileId, MmId, Nanos, Order, Tid};

/// Time after which the handling of records is interrupted, to empty the rings again.
const SLICE: Nanos = 5_000_000;
/// Number of records between two looks at the clock.
const PER_LOOK: usize = 64;

impl Tracer<'_> {
    /// Handles observed calls and actions for a short time.
    ///
    /// All page faults before `seen` are known. Returns the time up to which everything is.
    pub(super) fn handle_observed(&mut self, seen: Nanos) -> Nanos {
        let Some(mut observed) = self.observed.take() else {
            return seen;
        };
        let until = observed.read().min(seen);
        let reached = self.handle_until(&mut observed, until, clock() + SLICE);
        observed.is_behind = reached < until;
        observed.reached = observed.reached.max(reached);
        let reached = observed.reached;
        self.observed = Some(observed);
        reached
    }

    /// True if records wait that could be handled at once.
    pub(super) fn is_behind(&self) -> bool {
        self.observed.as_ref().is_some_and(|o| o.is_behind)
    }

    /// Handles all remaining calls and actions; from now on, actions take effect at once.
    pub(super) fn finish_observed(&mut self) {
        let Some(mut observed) = self.observed.take() else {
            return;
        };
        if let Err(error) = observed.finish() {
            self.note(format!("cannot tell whether calls were lost: {error}"));
        }
        self.handle_until(&mut observed, Nanos::MAX, Nanos::MAX);
        self.note_throttle();
        if self.inexact_ends != 0 {
            self.note(format!(
                "{} address spaces ended while their threads were killed inside of memory calls: \
                 their last lists of mappings are not exact, and differences from them do not count",
                self.inexact_ends
            ));
        }
    }

    /// Handles what is older than `until`, but stops at `deadline`. Returns the time that the
    /// stream has reached.
    fn handle_until(
        &mut self,
        observed: &mut ObservedCalls,
        until: Nanos,
        deadline: Nanos,
    ) -> Nanos {
        let mut handled = 0;
        while let Some(next) = observed.next(until) {
            match next {
                Next::Record(record) => self.handle_record(observed, record),
                Next::Action(_, Action::ForeignCall { tid }) => {
                    observed.foreign.insert(tid);
                }
                Next::Action(t, action) => {
                    if let Action::Gone { tid } = action {
                        observed.mapped.remove(&tid);
                        observed.entered.remove(&tid);
                        observed.foreign.remove(&tid);
                    }
                    self.act_after(observed, t, action);
                }
            }
            handled += 1;
            if handled % PER_LOOK == 0 && clock() >= deadline {
                return observed.next_time().min(until);
            }
        }
        until
    }

    /// Lets an action take effect after all observed calls before it.
    fn act_after(&mut self, observed: &mut ObservedCalls, t: Nanos, action: Action) {
        match action {
            Action::LastList(mut snapshot) => {
                let changed = observed.changed.get(&snapshot.mm);
                if changed.is_some_and(|changed| *changed >= snapshot.t) {
                    snapshot.exact = false;
                    self.inexact_ends += 1;
                }
                self.act(t, Action::LastList(snapshot));
            }
            Action::CallEnds { tid, mut ended } => {
                if let Some(pointer) = observed.mapped.remove(&tid) {
                    self.identify(&mut ended, pointer);
                }
                self.act(t, Action::CallEnds { tid, ended });
            }
            Action::MmEnded(mm) => {
                observed.changed.remove(&mm);
                self.act(t, action);
            }
            action => self.act(t, action),
        }
    }

    /// Adds the kernel's address of the open file description that a call has mapped.
    ///
    /// The description of a stacked file says nothing about the one that is mapped in its place. If it
    /// may be written, its mappings stay undecided; others rarely have equal neighbours.
    fn identify(&mut self, ended: &mut Ended, pointer: u64) {
        if let Some(Event::Call(call)) = ended.events.first_mut()
            && let Some(file) = &mut call.file
            && file.file == FileId::UNKNOWN
            && (file.open_flags & OFlags::RWMODE.bits() == 0 || !self.files.is_stacked(file.inode))
        {
            file.file = self.snapshotter.file(pointer);
        }
    }

    fn handle_record(&mut self, observed: &mut ObservedCalls, Record { t, what }: Record) {
        match what {
            Observed::Entered {
                tid,
                nr,
                args,
                file,
                stack,
            } => {
                let Some(Place::In(mm)) = self.timeline.residence.at(tid, t) else {
                    return;
                };
                if observed.foreign.remove(&tid) {
                    return;
                }
                let rule = call_table::rule_for(u64::from(nr), &args);
                if let Some(rule) = rule.filter(|rule| rule.is_observable(&args)) {
                    if self.timeline.is_shared(mm) {
                        observed.changed.insert(mm, t);
                        self.begin_observed(t, tid, mm, nr, &args);
                    }
                    let call = Entered {
                        rule,
                        args,
                        mm,
                        stack,
                    };
                    observed.entered.insert(tid, call);
                } else if file != 0 {
                    observed.mapped.insert(tid, file);
                }
            }
            Observed::Returned { tid, nr, ret } => {
                let call = observed.entered.remove(&tid);
                if let Some(call) = call.filter(|call| call.rule.nr == nr) {
                    observed.changed.entry(call.mm).and_modify(|at| *at = t);
                    self.end_observed(t, tid, call, ret);
                }
            }
            Observed::Lost(loss) => self.lost_calls(observed, &loss),
            _ => {}
        }
    }

    fn begin_observed(&mut self, t: Nanos, tid: i32, mm: MmId, nr: u32, args: &[u64; 6]) {
        let action = Action::CallBegins {
            tid,
            flight: Flight::ChangesMappings(mm, CallRange::of_entered(nr, args)),
            changes: Some(mm),
        };
        self.act(t, action);
    }

    fn end_observed(&mut self, t: Nanos, tid: i32, call: Entered, ret: i64) {
        let Entered { rule, args, mm, .. } = call;
        if is_restarted(ret) {
            return self.act(t, Action::CallDiscarded { tid });
        }
        if self.stacks == Stacks::Copy {
            let pid = self.tasks.get(&tid).map_or(tid, |task| task.pid);
            self.emitter.stack(&call_stack(tid, pid, mm, call.stack));
        }
        let alone = match self.timeline.is_shared(mm) {
            true => self.concurrent.leaves(mm, tid),
            false => Alone::Yes,
        };
        let event = Event::Call(Call {
            tid: Tid(tid),
            mm,
            nr: rule.nr,
            args,
            ret,
            t,
            order: Order::Exact,
            file: None,
            data: Vec::new(),
        });
        let ended = Ended {
            mm,
            exit: t,
            alone,
            child: None,
            events: vec![event],
        };
        self.timeline.call_ends(tid, ended);
    }

    fn lost_calls(&mut self, observed: &mut ObservedCalls, loss: &Loss) {
        let t = loss.from;
        observed.entered.clear();
        observed.mapped.clear();
        self.tasks.values().for_each(|task| observed.mark(task.pid));
        let (up_to, what) = match self.stacks {
            Stacks::Skip => (
                self.record_anew(loss.until),
                "the address spaces end there in the trace, and are recorded anew from a list of \
                 their mappings on",
            ),
            // The stacks and the calls after the loss could not be matched.
            Stacks::Copy => (
                MmId(u32::MAX),
                "the trace ends there, and nothing after it is compared",
            ),
        };
        let count = loss.count;
        self.timeline.push(t, vec![Event::Lost { count, t }]);
        if self.emitter.end_at_loss(t, up_to) {
            let why = loss.told(self.begun);
            let text = format!("{why}; {what} (tracing loses none)");
            self.timeline.push(t, vec![Event::Note(text.clone())]);
            (self.progress)(Progress::Note(text.clone()));
            self.notes.push(text);
        }
    }
}

fn call_stack(tid: i32, pid: i32, mm: MmId, user: Option<Box<UserStack>>) -> CallStack {
    let user = user.map(|user| *user).unwrap_or_default();
    CallStack {
        tid,
        pid,
        mm: mm.0,
        ip: user.ip,
        sp: user.sp,
        bp: user.bp,
        bytes: user.bytes,
    }
}
