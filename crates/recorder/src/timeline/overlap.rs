//! What happened at the same time as something else, so that its order is not known.
//!
//! A call that is placed leaves a [`Window`] for the faults of other threads. A call that is in
//! flight for so long that the stream goes on without it may come before or after all that passes
//! it.

use super::super::call_range::Extent;
use super::{Flight, Timeline};
use vmarea_trace::event::{Event, Fault, MmId, Nanos, Order, Tid};

/// The time during which a call may have taken effect, for faults of other threads.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    pub(super) tid: i32,
    pub(super) sequence: u64,
    /// The call was seen to take the lock.
    pub(super) evidence: bool,
    pub(super) extent: Extent,
    pub(super) hit: bool,
}

impl Timeline {
    /// True where a call of another thread may have taken effect before or after this fault.
    pub(super) fn overlaps(&mut self, fault: &Fault, locked: bool) -> bool {
        let Some(windows) = self.windows.get_mut(&fault.mm) else {
            return false;
        };
        let mut overlaps = false;
        for w in windows.iter_mut() {
            let meanwhile = w.from <= fault.t && fault.t <= w.to && w.tid != fault.tid.0;
            // A fault that took the lock may have changed what a call elsewhere looks at.
            let matters = match w.extent {
                Extent::Ranges([(0, 0), (0, 0)]) => false,
                extent => locked || extent.holds(fault.addr),
            };
            if meanwhile && matters && !(w.evidence && locked) {
                w.hit = true;
                overlaps = true;
            }
        }
        overlaps
    }

    /// True where something that leaves at `t` goes past a call in flight that it `matters` to. That
    /// call is marked as well.
    pub(super) fn passes(
        &mut self,
        (mm, tid): (MmId, Tid),
        t: Nanos,
        matters: impl Fn(&Extent) -> bool,
    ) -> bool {
        let mut passes = false;
        for (_, call) in self.in_flight.iter_mut().filter(|(by, _)| **by != tid.0) {
            if let Flight::Shapes(of, extent) = call.flight
                && of == mm
                && call.since <= t
                && matters(&extent)
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
        // Two calls have more in common than their ranges: where the next mapping goes.
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

/// Says of all events of an item that their order is not known.
pub(super) fn mark_overlapping(events: &mut [Event]) {
    for event in events {
        match event {
            Event::Call(call) => call.order = Order::Overlapping,
            Event::Touch(touch) => touch.order = Order::Overlapping,
            _ => {}
        }
    }
}
