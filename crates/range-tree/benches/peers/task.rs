//! The tasks that are measured.

use super::fill::Fill;
use super::map::Map;
use super::ranges::{LOW, PAGE};
use std::hint::black_box;
use vmarea_range_tree::Entry;

/// Number of positions of the only sufficient gap.
const HOLES: usize = 21;
/// Number of changes in a batch of insertions or removals.
const BATCH: usize = 512;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Looks up a random address within a range.
    Find,
    /// Inserts ranges into maps that already contain the others.
    Insert,
    /// Removes ranges.
    Remove,
    /// Removes a range and inserts it again.
    Replace,
    /// Moves the end of a range down by a byte and up again, in turn.
    Resize,
    /// Searches the whole map, from the top, for the only sufficient gap.
    GapHighest,
    /// Searches the whole map, from the bottom, for the only sufficient gap.
    GapLowest,
}

impl Task {
    pub const ALL: [Task; 7] = [
        Task::Find,
        Task::Insert,
        Task::Remove,
        Task::Replace,
        Task::Resize,
        Task::GapHighest,
        Task::GapLowest,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Task::Find => "find",
            Task::Insert => "insert",
            Task::Remove => "remove",
            Task::Replace => "replace",
            Task::Resize => "resize",
            Task::GapHighest => "gap-highest",
            Task::GapLowest => "gap-lowest",
        }
    }

    /// Prepares the task, and passes the part to be measured to `measure`. Returns the number of
    /// operations that were measured.
    pub fn run<M: Map>(
        self,
        fill: &mut Fill<'_, M>,
        calls: usize,
        mut measure: impl FnMut(&mut dyn FnMut()),
    ) -> usize {
        match self {
            Task::Insert | Task::Remove => self.change(fill, measure),
            Task::GapHighest | Task::GapLowest => self.search(fill, calls, measure),
            Task::Find | Task::Replace | Task::Resize => {
                let picked = fill.pick(calls);
                let map = &fill.maps(1)[0];
                let one = |(i, e): (usize, &Entry)| match self {
                    Task::Find => {
                        black_box(map.find(black_box(e.start + (i as u64 & (PAGE - 1)))));
                    }
                    Task::Replace => map.replace(*e),
                    _ => {
                        map.resize(*e, e.end - 1);
                        map.resize(*e, e.end);
                    }
                };
                measure(&mut || picked.iter().enumerate().for_each(one));
                calls * if self == Task::Resize { 2 } else { 1 }
            }
        }
    }

    /// Measures insertions or removals. Small maps are repeated, so that a batch takes long enough.
    ///
    /// Each map and each round has other ranges; else the processor would learn the branches of the
    /// searches by heart.
    fn change<M: Map>(
        self,
        fill: &mut Fill<'_, M>,
        mut measure: impl FnMut(&mut dyn FnMut()),
    ) -> usize {
        let each = (fill.ranges.len() / 4).clamp(1, BATCH);
        let count = BATCH.div_ceil(each);
        let picked: Vec<_> = (0..count).map(|_| fill.choose(each)).collect();
        let maps = fill.maps(count);
        let all = |f: fn(&M, Entry)| {
            for (map, picked) in maps.iter().zip(&picked) {
                picked.iter().for_each(|e| f(map, *e));
            }
        };
        if self == Task::Insert {
            all(M::remove);
            measure(&mut || all(M::insert));
        } else {
            measure(&mut || all(M::remove));
            all(M::insert);
        }
        each * maps.len()
    }

    fn search<M: Map>(
        self,
        fill: &mut Fill<'_, M>,
        calls: usize,
        mut measure: impl FnMut(&mut dyn FnMut()),
    ) -> usize {
        let mut sorted = fill.ranges.clone();
        sorted.sort_by_key(|e| e.start);
        let high = fill.highest();
        let map = &fill.maps(1)[0];
        let mut measured = 0;
        for hole in 0..HOLES {
            let middle = 1 + (hole * 7919 + 5) % (sorted.len() - 2);
            let gone = &sorted[middle - 1..=middle + 1];
            gone.iter().for_each(|e| map.remove(*e));
            let len = gone[2].end - gone[0].start;
            let one = || match self {
                Task::GapHighest => map.gap_highest(LOW, high, black_box(len)),
                _ => map.gap_lowest(LOW, high, black_box(len)),
            };
            // The first search may pay for the changes before it.
            black_box(one());
            let each = calls / HOLES;
            measure(&mut || {
                (0..each).for_each(|_| {
                    black_box(one());
                });
            });
            measured += each;
            gone.iter().for_each(|e| map.insert(*e));
        }
        measured
    }
}
