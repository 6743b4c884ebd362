//! The places to which watched memory was moved while a piece was replaced.
//!
//! The kernel reports from where to where the program moves memory, but not by how much the memory
//! grows at the new place. The program may later split it, and unmap or move parts of it, which
//! raises further events. So all memory that is still watched lies in the ranges of the events, or
//! in a sequence of mappings without holes directly above one of them. The table is in shared
//! memory, like all data that is used while pages are moved out.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use vmarea_linux_sys::calls::Plain;
use vmarea_merge::types::VmRange;

use super::phase::Meaning;

/// Number of entries in the table. If there are more places, each further place is added to the
/// nearest entry, together with all that lies between them.
const MOST: usize = 256;

// ORDERING: words are read and written under the watcher's lock, which orders them: Relaxed.
const UNDER_LOCK: Ordering = Ordering::Relaxed;

/// The ranges of all events of a piece. Zeroed memory means that there are none.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Places {
    count: AtomicU32,
    ranges: [[AtomicU64; 2]; MOST],
}

impl Plain for Places {}

impl Places {
    /// Forgets all places, for the next piece.
    pub(super) fn clear(&self) {
        self.count.store(0, UNDER_LOCK);
    }

    /// Adds the places that an event names.
    pub(super) fn note(&self, meaning: Meaning) {
        match meaning {
            // The old range is known: it was watched before. If it is no longer mapped, the kernel
            // reports that, too.
            Meaning::Moved { to, len, .. } => self.add(to, to + len),
            Meaning::Unmapped { start, end } => self.add(start, end),
            Meaning::Nothing | Meaning::Child(_) | Meaning::Dropped { .. } => {}
        }
    }

    /// Adds a place. Ranges that overlap or touch share an entry.
    fn add(&self, start: u64, end: u64) {
        let count = self.count.load(UNDER_LOCK) as usize;
        let touches = |n: &usize| {
            let known = self.get(*n);
            start <= known.end && known.start <= end
        };
        match (0..count).find(touches) {
            Some(n) => self.extend(n, start, end),
            None if count < MOST => {
                self.set(count, start, end);
                self.count.store(count as u32 + 1, UNDER_LOCK);
            }
            None => {
                let distance = |n: &usize| {
                    let known = self.get(*n);
                    known.start.saturating_sub(end) + start.saturating_sub(known.end)
                };
                let nearest = (0..MOST).min_by_key(distance);
                self.extend(nearest.unwrap_or_default(), start, end);
            }
        }
    }

    /// Calls `each` with every place.
    pub(super) fn each(&self, each: impl FnMut(VmRange)) {
        let count = self.count.load(UNDER_LOCK) as usize;
        (0..count).map(|n| self.get(n)).for_each(each);
    }

    fn get(&self, n: usize) -> VmRange {
        let [start, end] = &self.ranges[n];
        VmRange::new(start.load(UNDER_LOCK), end.load(UNDER_LOCK))
    }

    fn set(&self, n: usize, start: u64, end: u64) {
        self.ranges[n][0].store(start, UNDER_LOCK);
        self.ranges[n][1].store(end, UNDER_LOCK);
    }

    fn extend(&self, n: usize, start: u64, end: u64) {
        let known = self.get(n);
        self.set(n, known.start.min(start), known.end.max(end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_linux_sys::calls::Arena;

    fn all(places: &Places) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        places.each(|place| all.push((place.start, place.end)));
        all
    }

    #[test]
    fn places_that_touch_are_one_and_none_is_lost() {
        let arena: Arena<Places> = Arena::new(1).unwrap();
        let places = &arena.get()[0];
        places.add(20, 30);
        places.add(50, 60);
        places.add(30, 40);
        places.add(22, 23);
        assert_eq!(all(places), [(20, 40), (50, 60)]);
        for n in 2..MOST as u64 + 3 {
            places.add(100 * n, 100 * n + 1);
        }
        places.add(5, 6);
        let last = (100 * (MOST as u64 - 1), 100 * (MOST as u64 + 2) + 1);
        assert_eq!((all(places).len(), all(places).pop()), (MOST, Some(last)));
        assert_eq!(all(places)[0], (5, 40));
        places.clear();
        assert!(all(places).is_empty());
    }
}
