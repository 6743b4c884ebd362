//! Calls that are observed while a program runs, instead of stopping its threads.
//!
//! Root need not stop a thread at the calls that programs make often: BPF programs write them into
//! rings ([`super::observe::rings`]). The seccomp filter then stops threads only at the other calls
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

use super::call_range::CallRange;
use super::call_table::{self, CallRule};
use super::deferral::Action;
use super::mapping_calls::FinishedCall;
use super::observe::RING_BYTES;
use super::observe::points::stack_bytes;
use super::observe::record::{Observed, Record, UserStack};
use super::observe::rings::{CallRings, Contents};
use super::residence::Place;
use super::timeline::{Alone, Ended, Flight};
use super::tracer::Tracer;
use super::{CallStack, Stacks};
use crate::clock::clock;
use crate::samples::{SamplesError, default_ring_bytes};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::fd::BorrowedFd;
use vmarea_linux_sys::call_trace::CallFilter;
use vmarea_linux_sys::perf::What;
use vmarea_trace::event::{Call, Event, MmId, Nanos, Order, Tid};

/// Results from `ERESTARTSYS` to `ERESTART_RESTARTBLOCK`: the call had no effect and is restarted.
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;
/// Time after which the handling of records is interrupted, to empty the rings again.
const SLICE: Nanos = 5_000_000;
/// Number of records between two looks at the clock.
const PER_LOOK: usize = 64;

/// A call between its entry and its exit.
#[derive(Debug)]
struct Entered {
    rule: &'static CallRule,
    args: [u64; 6],
    mm: MmId,
    stack: Option<Box<UserStack>>,
}

/// The observed calls and the tracer's actions that wait for them.
#[derive(Debug)]
pub(crate) struct ObservedCalls {
    rings: CallRings,
    /// Records that have not been handled, in order of time.
    records: VecDeque<Record>,
    actions: BTreeMap<(Nanos, u64), Action>,
    sequence: u64,
    /// Time up to which everything has been handled.
    reached: Nanos,
    entered: HashMap<i32, Entered>,
    /// Threads whose next call is of another architecture.
    foreign: HashSet<i32>,
}

/// The next thing in the stream.
enum Next {
    Record(Record),
    Action(Nanos, Action),
}

impl ObservedCalls {
    /// Opens the rings.
    ///
    /// # Errors
    /// The reason why the kernel does not permit it.
    pub(crate) fn open(stacks: Stacks) -> Result<ObservedCalls, SamplesError> {
        let contents = Contents {
            owner: What::BpfOutput { stack_bytes: 0 },
            stack_bytes: stack_bytes(stacks),
        };
        let filter = CallFilter {
            entry: 1,
            exit: 1,
            stack: u64::from(stacks == Stacks::Copy),
            ..CallFilter::default()
        };
        let filters = call_table::observable().map(|nr| (nr, filter));
        let rings = CallRings::open(contents, filters, default_ring_bytes(RING_BYTES)?)?;
        Ok(ObservedCalls {
            rings,
            records: VecDeque::new(),
            actions: BTreeMap::new(),
            sequence: 0,
            reached: 0,
            entered: HashMap::new(),
            foreign: HashSet::new(),
        })
    }

    /// Returns descriptors for `poll(2)` that become readable when a ring is a quarter full.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.poll_fds()
    }

    /// Lets an action wait for the observed calls before `t`.
    pub(crate) fn postpone(&mut self, t: Nanos, action: Action) {
        self.sequence += 1;
        self.actions.insert((t, self.sequence), action);
    }

    /// Empties the rings. Returns the time before which all calls are known.
    fn read(&mut self) -> Nanos {
        let mut records = Vec::new();
        let watermark = self.rings.drain(&mut records);
        self.records.extend(records);
        watermark
    }

    /// Returns the time of the next thing in the stream.
    fn next_time(&self) -> Nanos {
        let action = self.actions.first_key_value();
        let action = action.map_or(Nanos::MAX, |((t, _), _)| *t);
        let record = self.records.front().map_or(Nanos::MAX, |record| record.t);
        action.min(record)
    }

    /// Removes and returns the next thing in the stream if it is older than `until`.
    fn next(&mut self, until: Nanos) -> Option<Next> {
        let action = self.actions.first_entry();
        let record = self.records.front();
        match (record.map(|record| record.t), action) {
            (Some(t), action) if action.as_ref().is_none_or(|a| t <= a.key().0) => {
                (t < until).then(|| self.records.pop_front().map(Next::Record))?
            }
            (_, Some(action)) if action.key().0 < until => {
                let ((t, _), action) = action.remove_entry();
                Some(Next::Action(t, action))
            }
            _ => None,
        }
    }
}

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
        observed.reached = observed.reached.max(reached);
        let reached = observed.reached;
        self.observed = Some(observed);
        reached
    }

    /// Handles all remaining calls and actions; from now on, actions take effect at once.
    pub(super) fn finish_observed(&mut self) {
        let Some(mut observed) = self.observed.take() else {
            return;
        };
        let mut records = Vec::new();
        if let Err(error) = observed.rings.finish(&mut records) {
            self.note(format!("cannot tell whether calls were lost: {error}"));
        }
        observed.records.extend(records);
        self.handle_until(&mut observed, Nanos::MAX, Nanos::MAX);
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
                        observed.entered.remove(&tid);
                        observed.foreign.remove(&tid);
                    }
                    self.act(t, action);
                }
            }
            handled += 1;
            if handled % PER_LOOK == 0 && clock() >= deadline {
                return observed.next_time().min(until);
            }
        }
        until
    }

    fn handle_record(&mut self, observed: &mut ObservedCalls, Record { t, what }: Record) {
        match what {
            Observed::Entered {
                tid,
                nr,
                args,
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
                    self.begin_observed(t, tid, mm, nr, &args);
                    let call = Entered {
                        rule,
                        args,
                        mm,
                        stack,
                    };
                    observed.entered.insert(tid, call);
                }
            }
            Observed::Returned { tid, nr, ret } => {
                let call = observed.entered.remove(&tid);
                if let Some(call) = call.filter(|call| call.rule.nr == nr) {
                    self.end_observed(t, tid, call, ret);
                }
            }
            Observed::Lost { count } => self.lost_calls(t, count),
            _ => {}
        }
    }

    fn begin_observed(&mut self, t: Nanos, tid: i32, mm: MmId, nr: u32, args: &[u64; 6]) {
        if self.timeline.is_shared(mm) {
            let action = Action::CallBegins {
                tid,
                flight: Flight::ChangesMappings(mm, CallRange::of_entered(nr, args)),
                changes: Some(mm),
            };
            self.act(t, action);
        }
    }

    fn end_observed(&mut self, t: Nanos, tid: i32, call: Entered, ret: i64) {
        let Entered { rule, args, mm, .. } = call;
        if RESTARTS.contains(&ret) {
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
        if self.files.mapped.has_ranges(mm) {
            let finished = FinishedCall {
                nr: rule.nr,
                args,
                ret,
                alone,
            };
            self.follow_mappings(tid, mm, &finished);
        }
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

    fn lost_calls(&mut self, t: Nanos, count: u64) {
        self.timeline.push(t, vec![Event::Lost { count, t }]);
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
