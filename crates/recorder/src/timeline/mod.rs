//! Orders the stream: merges calls and samples by the times at which they took effect.
//!
//! The recorder sees only the entry and exit of a call, but the call takes effect at some time in
//! between. If a sample shows that the calling thread took `mmap_lock` in between, the timeline
//! places the call at that time. Page faults are placed in the same way. Without a lock sample, the
//! timeline places a call at its exit and, if another thread used the address space in between,
//! marks both operations as overlapping. The timeline holds each event back as long as an earlier
//! one can still arrive.
//!
//! # Picture
//! ```text
//!   thread 1  ---[entry ......... L ........ exit]---      L: lock taken, the call is at L
//!   thread 2  ------- f1 ---- f2 -------- f3 L -----      f3 is at its own L
//!                                ^ emitted up to here: before any call in flight and the watermark
//! ```
//!
//! # Invariants
//! T1  The keys of emitted items never decrease.
//! T2  The events of one item stay together, for example a fork and its child's start.
//! T3  A call in flight holds back only events after its entry, and for at most [`LONGEST_HOLD`].
//!     The timeline waits without limit for calls that create a task or change its program.
//! T4  An item counts as evident only if it is placed at the time of its evidence. An item that
//!     arrives too late is placed at the stream's current position and marked as overlapping. The
//!     items that overtook it are marked as well.

mod overlap;

use super::call_range::CallRange;
use super::residence::{Place, Residence};
use crate::samples::Sample;
use foldhash::HashMap;
use overlap::{Window, Windows, mark_overlapping};
use std::collections::{BTreeMap, VecDeque};
use vmarea_trace::event::{Access, Event, Fault, MmId, Nanos, Order, Tid};

/// Maximum time for which an in-flight call may hold back the stream.
///
/// A call that blocks for longer than this (for example because it fills gigabytes, or waits for a
/// user-space fault handler) is placed at its exit.
const LONGEST_HOLD: Nanos = 5_000_000_000;
/// Maximum time that a fault waits for a lock sample of its thread.
///
/// A fault's lock sample is late if the thread waits for `mmap_lock` while the lock's holder waits
/// for a processor.
const GRACE: Nanos = 100_000_000;

/// Why the timeline waits for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flight {
    /// The call changes an address space that other tasks may use at the same time.
    ///
    /// The [`CallRange`] contains all affected addresses, as far as they are known.
    ChangesMappings(MmId, CallRange),
    /// The call creates a task, or replaces the calling task's program.
    ///
    /// Until the call is placed, samples of the new task or program cannot be interpreted.
    MovesTask,
}

/// Whether other calls on the address space ran during the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Alone {
    /// No other call on the address space was in flight.
    Yes,
    /// Another call was in flight.
    No,
}

/// A finished call whose position in the stream is not yet known.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Address space that the call changed.
    pub mm: MmId,
    /// Time at which the tracer saw the call's exit.
    pub exit: Nanos,
    /// Whether other calls on the address space ran during the call.
    pub alone: Alone,
    /// Task that the call created; the task's samples are placed after the call.
    pub child: Option<i32>,
    /// The call's event and the events that belong to it.
    pub events: Vec<Event>,
}

type Key = (Nanos, u64);

#[derive(Debug)]
struct InFlight {
    since: Nanos,
    flight: Flight,
    lock: Option<Lock>,
    /// True if the stream has emitted an event that may belong after this call.
    passed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    t: Nanos,
    write: bool,
    /// True if the sample arrived too late: `mmap_lock` was taken some time before `t`.
    late: bool,
}

#[derive(Debug)]
struct Unplaced {
    /// The position among the events of the time of the call's exit.
    sequence: u64,
    entry: Nanos,
    lock: Option<Lock>,
    not_after: Nanos,
    passed: bool,
    call: Ended,
}

#[derive(Debug)]
enum Item {
    Fault { fault: Fault, locked: bool },
    Events(Vec<Event>),
}

/// Orders the events of the stream; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    sequence: u64,
    items: BTreeMap<Key, Item>,
    in_flight: HashMap<i32, InFlight>,
    unplaced: HashMap<i32, VecDeque<Unplaced>>,
    parents: HashMap<i32, i32>,
    samples: VecDeque<Sample>,
    watermark: Nanos,
    /// Address space of each thread over time; the recorder reports changes as it sees them.
    pub residence: Residence,
    /// Address spaces that several tasks use or have used, with the times at which they ended.
    shared: HashMap<MmId, Nanos>,
    windows: HashMap<MmId, Windows>,
    last_fault: HashMap<i32, Key>,
    emitted_until: Nanos,
    locks_are_seen: bool,
    unknown_threads: u64,
}

impl InFlight {
    /// True if later events must still wait for this call.
    fn holds(&self, now: Nanos) -> bool {
        self.flight == Flight::MovesTask || now.saturating_sub(self.since) < LONGEST_HOLD
    }
}

impl Timeline {
    /// Places events at `t`.
    pub(crate) fn push(&mut self, t: Nanos, events: Vec<Event>) {
        if !events.is_empty() {
            self.place(t, Item::Events(events));
        }
    }

    /// Records that the lock tracepoints are active.
    pub(crate) fn expect_locks(&mut self) {
        self.locks_are_seen = true;
    }

    /// True if the lock tracepoints are active.
    pub(crate) fn sees_locks(&self) -> bool {
        self.locks_are_seen
    }

    /// Records that several tasks use `mm` from now on.
    pub(crate) fn share(&mut self, mm: MmId) {
        self.shared.insert(mm, Nanos::MAX);
    }

    /// True if several tasks use `mm`, or have used it.
    pub(crate) fn is_shared(&self, mm: MmId) -> bool {
        self.shared.contains_key(&mm)
    }

    /// Records that `mm` ended at `t`.
    pub(crate) fn mm_ended(&mut self, mm: MmId, t: Nanos) {
        self.shared.entry(mm).and_modify(|ended| *ended = t);
    }

    /// Records the entry of a call.
    pub(crate) fn call_begins(&mut self, tid: i32, since: Nanos, flight: Flight) {
        let call = InFlight {
            since: since.max(self.emitted_until),
            flight,
            lock: None,
            passed: false,
        };
        self.in_flight.insert(tid, call);
    }

    /// Removes a call in flight that had no effect, or whose effect is recorded separately.
    pub(crate) fn call_discarded(&mut self, tid: i32) {
        self.in_flight.remove(&tid);
    }

    /// Places a finished call as soon as all evidence about it is available.
    pub(crate) fn call_ends(&mut self, tid: i32, call: Ended) {
        let Some(begun) = self.in_flight.remove(&tid) else {
            return self.push(call.exit, call.events);
        };
        if let Some(child) = call.child {
            self.parents.insert(child, tid);
        }
        self.sequence += 1;
        let unplaced = Unplaced {
            sequence: self.sequence,
            entry: begun.since.max(self.emitted_until),
            lock: begun.lock,
            not_after: call.exit,
            passed: begun.passed,
            call,
        };
        self.unplaced.entry(tid).or_default().push_back(unplaced);
    }

    /// Accepts samples in order of time. Later samples must not be older than `watermark`.
    pub(crate) fn samples(&mut self, samples: &mut Vec<Sample>, watermark: Nanos) {
        self.samples.extend(samples.drain(..));
        self.watermark = self.watermark.max(watermark);
    }

    /// Returns the number of samples from threads that were never announced.
    pub(crate) fn unknown_threads(&self) -> u64 {
        self.unknown_threads
    }

    /// Emits all events whose position is final at time `now`.
    pub(crate) fn advance(&mut self, now: Nanos, out: &mut dyn FnMut(Event)) {
        let flights = self.in_flight.values();
        let held = flights.filter(|f| f.holds(now)).map(|f| f.since).min();
        let ready = self.watermark.min(held.map_or(Nanos::MAX, |t| t - 1));
        self.take_samples(ready);
        self.place_calls(ready);
        let unplaced = self.unplaced.values().flatten().map(|u| u.entry).min();
        let mut until = ready.min(unplaced.map_or(Nanos::MAX, |t| t - 1));
        if !self.shared.is_empty() {
            until = until.saturating_sub(GRACE);
        }
        self.emit_until(until, out);
    }

    /// Emits all remaining events. Nothing may be added afterwards.
    pub(crate) fn finish(&mut self, out: &mut dyn FnMut(Event)) {
        self.in_flight.clear();
        self.take_samples(Nanos::MAX);
        self.place_calls(Nanos::MAX);
        self.emit_until(Nanos::MAX, out);
    }

    /// Returns the memory of what waits for its position, in bytes, without what it refers to.
    pub(crate) fn waiting_bytes(&self) -> usize {
        const ITEM: usize = size_of::<Key>() + size_of::<Item>() + size_of::<Event>();
        self.items.len() * ITEM + self.samples.len() * size_of::<Sample>()
    }

    /// Places an item at `t`, after those of the same time that have come before it.
    fn place(&mut self, t: Nanos, item: Item) -> Key {
        self.sequence += 1;
        self.place_as(self.sequence, t, item)
    }

    fn place_as(&mut self, sequence: u64, t: Nanos, mut item: Item) -> Key {
        let key = (t.max(self.emitted_until), sequence);
        if key.0 > t {
            // The item arrives too late and is placed at the stream's current position.
            match &mut item {
                Item::Fault { fault, .. } => fault.t = key.0,
                Item::Events(events) => events.iter_mut().for_each(|e| set_time(e, key.0)),
            }
        }
        self.items.insert(key, item);
        key
    }

    fn take_samples(&mut self, ready: Nanos) {
        while let Some(sample) = self.samples.front() {
            if sample.t() > ready {
                break;
            }
            match *sample {
                Sample::Fault {
                    t,
                    tid,
                    addr,
                    write,
                    exec,
                    kernel,
                    ..
                } => {
                    let access = match (write, exec) {
                        (_, true) => Access::Exec,
                        (Some(true), _) => Access::Write,
                        (Some(false), _) => Access::Read,
                        (None, _) => Access::Unknown,
                    };
                    self.fault(t, tid, addr, access, kernel);
                }
                Sample::LockTaken {
                    t,
                    tid,
                    write,
                    late,
                    ..
                } => self.lock_taken(tid, Lock { t, write, late }),
                Sample::Lost { t, count } => self.push(t, vec![Event::Lost { count, t }]),
            }
            self.samples.pop_front();
        }
    }

    fn fault(&mut self, t: Nanos, tid: i32, addr: u64, access: Access, kernel: bool) {
        self.place_calls_of(tid, t);
        if let Some(parent) = self.parents.get(&tid)
            && let Some(call) = self
                .unplaced
                .get_mut(parent)
                .and_then(|calls| calls.iter_mut().find(|u| u.call.child == Some(tid)))
        {
            call.not_after = call.not_after.min(t - 1);
        }
        let mm = match self.residence.at(tid, t) {
            Some(Place::In(mm)) => mm,
            Some(Place::Leaving(mm)) if access == Access::Read => mm,
            Some(Place::Leaving(_) | Place::Nowhere) => return,
            None => {
                self.unknown_threads += 1;
                return;
            }
        };
        let fault = Fault {
            tid: Tid(tid),
            mm,
            addr,
            access,
            kernel,
            t,
            order: Order::Exact,
        };
        let locked = false;
        let key = self.place(t, Item::Fault { fault, locked });
        if self.shared.contains_key(&mm) {
            self.last_fault.insert(tid, key);
        }
    }

    /// Uses a lock sample as evidence for the thread's current call, or else for the thread's last
    /// fault.
    fn lock_taken(&mut self, tid: i32, lock: Lock) {
        self.place_calls_of(tid, lock.t);
        let ended = self.unplaced.get_mut(&tid).and_then(VecDeque::front_mut);
        let slot = match ended {
            Some(call) if call.entry <= lock.t => Some(&mut call.lock),
            _ => match self.in_flight.get_mut(&tid) {
                Some(call) if call.since <= lock.t => Some(&mut call.lock),
                _ => None,
            },
        };
        if let Some(slot) = slot {
            // Prefer the first lock for writing; otherwise use the first lock for reading.
            if slot.is_none_or(|known| lock.write && !known.write) {
                *slot = Some(lock);
            }
            return;
        }
        let Some(key) = self.last_fault.remove(&tid) else {
            return;
        };
        // A lock that a thread takes while it exits does not belong to the thread's last fault.
        let place = self.residence.at(tid, lock.t);
        if lock.late {
            return;
        }
        if let Some(&Item::Fault { mut fault, .. }) = self.items.get(&key)
            && place == Some(Place::In(fault.mm))
        {
            self.items.remove(&key);
            fault.t = lock.t;
            let locked = true;
            self.place(lock.t, Item::Fault { fault, locked });
        }
    }

    /// Places the calls of one thread that ended before `t`.
    fn place_calls_of(&mut self, tid: i32, t: Nanos) {
        let Some(calls) = self.unplaced.get_mut(&tid) else {
            return;
        };
        if calls.front().is_none_or(|first| first.call.exit >= t) {
            return;
        }
        // The queue is empty meanwhile and is put back, because most threads make calls again.
        let mut calls = std::mem::take(calls);
        while calls.front().is_some_and(|first| first.call.exit < t)
            && let Some(call) = calls.pop_front()
        {
            self.place_call(tid, call);
        }
        self.unplaced.insert(tid, calls);
    }

    fn place_calls(&mut self, ready: Nanos) {
        self.unplaced.retain(|_, calls| !calls.is_empty());
        let tids: Vec<i32> = self.unplaced.keys().copied().collect();
        for tid in tids {
            self.place_calls_of(tid, ready);
        }
    }

    fn place_call(&mut self, tid: i32, unplaced: Unplaced) {
        let Unplaced {
            sequence,
            entry,
            lock,
            not_after,
            passed,
            mut call,
        } = unplaced;
        if let Some(child) = call.child {
            self.parents.remove(&child);
        }
        // A lock time before the current position of the stream does not show where the call
        // belongs among the emitted events.
        let lock = lock.filter(|lock| !lock.late && lock.t >= entry.max(self.emitted_until));
        let t = lock.map_or(not_after, |lock| lock.t).max(entry);
        let evidence = lock.is_some();
        for event in &mut call.events {
            set_time(event, t);
        }
        if passed || call.alone == Alone::No && !evidence {
            mark_overlapping(&mut call.events);
        }
        let (mm, to) = (call.mm, call.exit);
        // A fault changes more than pages only if it takes `mmap_lock`. A fault without that lock
        // matters only at its own address. Without lock tracepoints, some faults are not recorded
        // at all, and the replay reports results that depend on them as undecided.
        let range = match call.events.first() {
            Some(Event::Call(call)) => CallRange::of(call),
            _ => CallRange::Anywhere,
        };
        let item = Item::Events(call.events);
        // Before a time up to which the stream was emitted, its own position has passed (T1).
        let (_, sequence) = match t > self.emitted_until {
            true => self.place_as(sequence, t, item),
            false => self.place(t, item),
        };
        if self.shared.contains_key(&mm) {
            let from = if evidence { t } else { entry };
            let hit = false;
            self.windows.entry(mm).or_default().insert(Window {
                from,
                to,
                tid,
                sequence,
                evidence,
                range,
                hit,
            });
        }
    }

    fn emit_until(&mut self, until: Nanos, out: &mut dyn FnMut(Event)) {
        while let Some(first) = self.items.first_entry() {
            let (t, sequence) = *first.key();
            if t > until {
                break;
            }
            match first.remove() {
                Item::Fault { mut fault, locked } => {
                    let matters = |range: &CallRange| locked || range.contains(fault.addr);
                    let passes = self.passes((fault.mm, fault.tid), t, matters);
                    if self.overlaps(&fault, locked) || passes {
                        fault.order = Order::Overlapping;
                    }
                    out(Event::Fault(fault));
                }
                Item::Events(mut events) => {
                    if self.was_hit(&events, (t, sequence)) | self.call_passes(&events, t) {
                        mark_overlapping(&mut events);
                    }
                    events.into_iter().for_each(&mut *out);
                }
            }
            self.emitted_until = t;
        }
        if until != Nanos::MAX {
            self.emitted_until = self.emitted_until.max(until);
        }
        self.windows
            .retain(|_, windows| !windows.forget_before(until));
        self.shared.retain(|_, ended| *ended >= until);
        self.residence.forget_before(until);
    }
}

fn set_time(event: &mut Event, at: Nanos) {
    match event {
        Event::MmStart(start) => start.t = at,
        Event::Call(call) => call.t = at,
        Event::Touch(touch) => touch.t = at,
        Event::Snapshot(snapshot) => snapshot.t = at,
        Event::Fault(fault) => fault.t = at,
        Event::MmEnd { t, .. }
        | Event::TaskStart { t, .. }
        | Event::TaskEnd { t, .. }
        | Event::Lost { t, .. }
        | Event::End { t, .. } => *t = at,
        Event::Inode(_) | Event::Note(_) => {}
    }
}

#[cfg(test)]
mod tests;
