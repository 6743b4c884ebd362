//! Finds operations that ran at the same time, so that their order is unknown.
//!
//! For each placed call, the timeline keeps a [`Window`] to compare with faults of other threads.
//! If a call is in flight for longer than the stream waits, its position may be before or after any
//! event that is emitted in the meantime.

use super::super::call_range::CallRange;
use super::{Flight, Key, Timeline};
use std::collections::BTreeMap;
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

/// Windows of one address space.
///
/// The stream visits each time once, in order, so few windows are open at a time.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Windows that begin later, by begin and sequence.
    later: BTreeMap<(Nanos, u64), Window>,
    open: Vec<Window>,
}

impl Windows {
    pub(super) fn insert(&mut self, window: Window) {
        self.later.insert((window.from, window.sequence), window);
    }

    /// Returns the windows that contain `t`, and forgets those that end before it.
    fn at(&mut self, t: Nanos) -> &mut [Window] {
        self.open.retain(|window| window.to >= t);
        while let Some(first) = self.later.first_entry()
            && first.key().0 <= t
        {
            let window = first.remove();
            if window.to >= t {
                self.open.push(window);
            }
        }
        &mut self.open
    }

    /// Forgets the windows that end before `t`. Returns true if none is left.
    pub(super) fn forget_before(&mut self, t: Nanos) -> bool {
        self.at(t).is_empty() && self.later.is_empty()
    }
}

impl Timeline {
    /// True if a call of another thread may have taken effect before or after this fault.
    pub(super) fn overlaps(&mut self, fault: &Fault, locked: bool) -> bool {
        let Some(windows) = self.windows.get_mut(&fault.mm) else {
            return false;
        };
        let mut overlaps = false;
        for w in windows.at(fault.t) {
            // A fault that took `mmap_lock` may have changed data that a call in another range
            // reads.
            let matters = match w.range {
                CallRange::Ranges([(0, 0), (0, 0)]) => false,
                range => locked || range.contains(fault.addr),
            };
            if w.tid != fault.tid.0 && matters && !(w.evidence && locked) {
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

    /// True if a fault hit the window of the call that is emitted at `t`.
    pub(super) fn was_hit(&mut self, events: &[Event], (t, sequence): Key) -> bool {
        let Some(Event::Call(call)) = events.first() else {
            return false;
        };
        let windows = self.windows.get_mut(&call.mm);
        let mut open = windows.into_iter().flat_map(|windows| windows.at(t).iter());
        open.any(|w| w.sequence == sequence && w.hit)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_windows_of_the_present_time_are_open() {
        let mut windows = Windows::default();
        for sequence in 0..1000 {
            let from = 10 * sequence;
            windows.insert(Window {
                from,
                to: from + 15,
                tid: 1,
                sequence,
                evidence: false,
                range: CallRange::Anywhere,
                hit: false,
            });
        }
        let mut open = |t| -> Vec<u64> { windows.at(t).iter().map(|w| w.sequence).collect() };
        assert_eq!(open(4), [0]);
        assert_eq!(open(12), [0, 1]);
        assert_eq!(open(5005), [499, 500]);
        assert_eq!(windows.later.len(), 499);
        assert!(!windows.forget_before(10_004));
        assert!(windows.forget_before(10_006));
    }
}
