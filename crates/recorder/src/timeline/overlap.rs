//! Finds operations that ran at the same time, so that their order is unknown.
//!
//! For each placed call, the timeline keeps a [`Window`] to compare with faults of other threads.
//! If a call is in flight for longer than the stream waits, its position may be before or after any
//! event that is emitted in the meantime.

use super::super::call_range::CallRange;
use super::{Flight, Timeline};
use vmarea_trace::event::{Event, Fault, MmId, Nanos, Order, Tid};

/// Time span in which a call may have taken effect, for comparison with other threads' faults.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    pub(super) tid: i32,
    pub(super) sequence: u64,
    /// True if a sample shows that the call took `mmap_lock`.
    pub(super) evidence: bool,
    pub(super) range: CallRange,
    pub(super) hit: bool,
}

impl Timeline {
    /// True if a call of another thread may have taken effect before or after this fault.
    pub(super) fn overlaps(&mut self, fault: &Fault, locked: bool) -> bool {
        let Some(windows) = self.windows.get_mut(&fault.mm) else {
            return false;
        };
        let mut overlaps = false;
        for w in windows.iter_mut() {
            let meanwhile = w.from <= fault.t && fault.t <= w.to && w.tid != fault.tid.0;
            // A fault that took `mmap_lock` may have changed data that a call in another range
            // reads.
            let matters = match w.range {
                CallRange::Ranges([(0, 0), (0, 0)]) => false,
                range => locked || range.contains(fault.addr),
            };
            if meanwhile && matters && !(w.evidence && locked) {
                w.hit = true;
                overlaps = true;
            }
        }
        overlaps
    }

    /// True if an event emitted at `t` overtakes an in-flight call whose range satisfies `matters`.
    ///
    /// Considers only other threads' calls that had begun by time `t`. Marks the overtaken calls.
    pub(super) fn passes(
        &mut self,
        (mm, tid): (MmId, Tid),
        t: Nanos,
        matters: impl Fn(&CallRange) -> bool,
    ) -> bool {
        let mut passes = false;
        for (_, call) in self.in_flight.iter_mut().filter(|(by, _)| **by != tid.0) {
            if let Flight::ChangesMappings(of, range) = call.flight
                && of == mm
                && call.since <= t
                && matters(&range)
            {
                call.passed = true;
                passes = true;
            }
        }
        passes
    }

    pub(super) fn call_passes(&mut self, events: &[Event], t: Nanos) -> bool {
        let Some(Event::Call(call)) = events.first() else {
            return false;
        };
        // Calls affect each other even in different ranges: one determines where the next one maps.
        let (mm, tid) = (call.mm, call.tid);
        self.passes((mm, tid), t, |_| true)
    }

    pub(super) fn was_hit(&self, events: &[Event], sequence: u64) -> bool {
        let Some(Event::Call(call)) = events.first() else {
            return false;
        };
        self.windows
            .get(&call.mm)
            .is_some_and(|ws| ws.iter().any(|w| w.sequence == sequence && w.hit))
    }
}

/// Marks all events of an item as overlapping.
pub(super) fn mark_overlapping(events: &mut [Event]) {
    for event in events {
        match event {
            Event::Call(call) => call.order = Order::Overlapping,
            Event::Touch(touch) => touch.order = Order::Overlapping,
            _ => {}
        }
    }
}
