//! The index of an address space's VMAs, in one tree or in one tree for each part.
//!
//! A VMA is in the tree of the part in which it starts. A thread that holds all parts sees one
//! ordered map. A thread that holds one part sees and changes only the tree of that part, as if the
//! address space were not divided, in which case every operation is that of the tree.
//!
//! # Picture
//! ```text
//!      part 0       part 1       part 2       part 3
//! ├────[a]──[b]──┼─────────[c────┼────]──[d]──┼────────────┤
//!  tree 0: a b    tree 1: c     tree 2: d      inactive
//!  crossings: 0   1             1              0
//! ```
//!
//! # Invariants
//! - D1  a VMA is in the tree of the part in which it starts
//! - D2  a part counts in `crossings` the VMAs that touch one of its ends and have a page in it or
//!   beside it; a part without crossings has no VMA that reaches to or across its ends

use super::parts::Part;
use crate::types::VmRange;
use crate::types::writers::Writers;
use core::marker::PhantomData;
use vmarea_range_tree::{Contended, Entry, OutOfMemory, RangeTree};

/// The index, or the part of it that the caller holds.
#[derive(Debug)]
pub(crate) struct Index<'a, K> {
    /// The only tree, unless there are `parts`.
    only: &'a RangeTree,
    parts: &'a [Part],
    /// Bitmap of the parts that the caller may access.
    mask: u64,
    kind: PhantomData<K>,
}

impl<K> Clone for Index<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Index<'_, K> {}

impl<'a, K: Writers> Index<'a, K> {
    #[inline]
    pub(crate) fn new(whole: &'a RangeTree, parts: &'a [Part], mask: u64) -> Self {
        Index {
            only: whole,
            parts,
            mask,
            kind: PhantomData,
        }
    }

    #[inline]
    fn is_divided(self) -> bool {
        K::PARTS > 0
    }

    /// Returns the trees of the parts `from..` in ascending order, with their numbers.
    fn upwards(self, from: usize) -> impl Iterator<Item = &'a RangeTree> {
        let mut left = self.mask & (u64::MAX << from);
        core::iter::from_fn(move || {
            let part = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(&self.parts[part].tree)
        })
    }

    /// Returns the trees of the parts `..=to` in descending order.
    fn downwards(self, to: usize) -> impl Iterator<Item = &'a RangeTree> {
        let mut left = self.mask & (u64::MAX >> (63 - to));
        core::iter::from_fn(move || {
            let part = left.checked_ilog2()? as usize;
            left -= 1 << part;
            Some(&self.parts[part].tree)
        })
    }

    /// Returns the first range that ends after `addr`.
    #[inline]
    pub(crate) fn find(self, addr: u64) -> Option<Entry> {
        if !self.is_divided() {
            return self.only.find(addr);
        }
        let part = K::part_of(addr);
        if part > 0 && self.parts[part].crossings() > 0 {
            let below = self.downwards(part - 1).find_map(|tree| tree.prev(addr));
            if let Some(entry) = below.filter(|entry| entry.end > addr) {
                return Some(entry);
            }
        }
        self.upwards(part).find_map(|tree| tree.find(addr))
    }

    /// Like [`find`](Self::find) for a caller that holds nothing, and for which only a range that
    /// contains `addr` is of use.
    #[inline]
    pub(crate) fn try_find(self, addr: u64) -> Result<Option<Entry>, Contended> {
        if !self.is_divided() {
            return self.only.try_find(addr);
        }
        let part = &self.parts[K::part_of(addr)];
        if part.crossings() > 0 {
            return Err(Contended);
        }
        part.tree.try_find(addr)
    }

    /// Returns the last range that starts below `addr`.
    #[inline]
    pub(crate) fn prev(self, addr: u64) -> Option<Entry> {
        if !self.is_divided() {
            return self.only.prev(addr);
        }
        self.downwards(K::part_of(addr))
            .find_map(|tree| tree.prev(addr))
    }

    /// Returns the range that contains `addr`.
    pub(crate) fn get(self, addr: u64) -> Option<Entry> {
        self.find(addr).filter(|entry| entry.start <= addr)
    }

    /// Iterates over all ranges in ascending order.
    pub(crate) fn ranges(self) -> impl Iterator<Item = Entry> + use<'a, K> {
        let mut at = 0;
        let mut whole = (!self.is_divided()).then(|| self.only.ranges(0, u64::MAX));
        core::iter::from_fn(move || {
            if let Some(whole) = &mut whole {
                return whole.next();
            }
            let entry = self.find(at)?;
            at = entry.end;
            Some(entry)
        })
    }

    /// Returns the start of the first range at or above the end of `range`, or a lower address that
    /// is not below that end; the search is restricted to the part in which `range` starts.
    pub(crate) fn next_start(self, range: VmRange) -> Option<u64> {
        if !self.is_divided() {
            return self.only.find(range.end).map(|entry| entry.start);
        }
        let part = K::part_of(range.start);
        let next = self.parts[part].tree.find(range.end);
        Some(next.map_or(K::bounds(part).end, |entry| entry.start))
    }

    /// Returns the lowest gap of at least `len` in `[low, high)`, clipped to it.
    pub(crate) fn gap_lowest(self, low: u64, high: u64, len: u64) -> Option<(u64, u64)> {
        if !self.is_divided() {
            return self.only.gap_lowest(low, high, len);
        }
        let mut at = low;
        for tree in self.upwards(0) {
            let Some((first, last)) = ends(tree).filter(|(_, last)| *last > at) else {
                continue;
            };
            if let Some(gap) = gap(at, first.min(high), len) {
                return Some(gap);
            }
            let inner = tree.gap_lowest(at.max(first), high.min(last), len);
            if inner.is_some() || last >= high {
                return inner;
            }
            at = last;
        }
        gap(at, high, len)
    }

    /// Returns the highest gap of at least `len` in `[low, high)`, clipped to it.
    pub(crate) fn gap_highest(self, low: u64, high: u64, len: u64) -> Option<(u64, u64)> {
        if !self.is_divided() {
            return self.only.gap_highest(low, high, len);
        }
        let mut at = high;
        for tree in self.downwards(K::PARTS - 1) {
            let Some((first, last)) = ends(tree).filter(|(first, _)| *first < at) else {
                continue;
            };
            if let Some(gap) = gap(last.max(low), at, len) {
                return Some(gap);
            }
            let inner = tree.gap_highest(low.max(first), at.min(last), len);
            if inner.is_some() || first <= low {
                return inner;
            }
            at = first;
        }
        gap(low, at, len)
    }

    /// Reserves memory for `changes` insertions in each tree.
    #[inline]
    pub(crate) fn reserve(self, changes: usize) -> Result<(), OutOfMemory> {
        if !self.is_divided() {
            return self.only.write().reserve(changes);
        }
        let mut trees = self.upwards(0);
        trees.try_for_each(|tree| tree.write().reserve(changes))
    }

    /// Reserves memory for [`build`](Self::build); only if the address space is not divided.
    pub(crate) fn reserve_build(self, ranges: usize) -> Result<(), OutOfMemory> {
        self.only.write().reserve_build(ranges)
    }

    /// Fills the empty index with ranges in ascending order.
    pub(crate) fn build(self, ranges: &[Entry]) {
        self.only.write().build(ranges);
    }

    /// Inserts a range.
    #[inline]
    pub(crate) fn insert(self, entry: Entry) {
        if !self.is_divided() {
            return self.only.write().insert(entry);
        }
        let tree = &self.parts[K::part_of(entry.start)].tree;
        tree.write().insert(entry);
        self.count_crossings((entry.start, entry.end), 1);
    }

    /// Removes the range that starts at `start`.
    #[inline]
    pub(crate) fn remove(self, start: u64) -> Option<Entry> {
        if !self.is_divided() {
            return self.only.write().remove(start);
        }
        let entry = self.parts[K::part_of(start)].tree.write().remove(start)?;
        self.count_crossings((entry.start, entry.end), -1);
        Some(entry)
    }

    /// Changes the bounds of the range that starts at `old`.
    #[inline]
    pub(crate) fn resize(self, old: u64, start: u64, end: u64) {
        if !self.is_divided() {
            return self.only.write().resize(old, start, end);
        }
        let (from, to) = (K::part_of(old), K::part_of(start));
        let tree = &self.parts[from].tree;
        if from == to {
            if let Some(was) = tree.get(old) {
                self.count_crossings((was.start, was.end), -1);
            }
            tree.write().resize(old, start, end);
            self.count_crossings((start, end), 1);
        } else if let Some(entry) = self.remove(old) {
            self.insert(Entry {
                start,
                end,
                ..entry
            });
        }
    }

    /// Returns the range that ends at `start` and the range that starts at `end`.
    #[inline]
    pub(crate) fn touching(self, start: u64, end: u64) -> [Option<Entry>; 2] {
        if !self.is_divided() {
            return self.only.touching(start, end);
        }
        let below = self.prev(start).filter(|e| e.end == start);
        [below, self.find(end).filter(|e| e.start == end)]
    }

    /// Changes the bounds of the range that starts at `old`, and removes the other ranges within
    /// the new bounds.
    pub(crate) fn absorb(self, old: u64, start: u64, end: u64) {
        if !self.is_divided() {
            return self.only.write().absorb(old, start, end);
        }
        let mut at = start;
        while let Some(entry) = self.find(at).filter(|entry| entry.end <= end) {
            at = entry.end;
            if entry.start != old {
                self.remove(entry.start);
            }
        }
        self.resize(old, start, end);
    }

    /// Replaces the range of `parts[1]` by the three parts, which it contained.
    pub(crate) fn cut(self, parts: [Entry; 3]) {
        let [low, middle, high] = parts;
        if !self.is_divided() {
            return self.only.write().cut(low.start, &parts);
        }
        self.resize(low.start, middle.start, middle.end);
        self.insert(low);
        self.insert(high);
    }

    /// Counts a range in each part of which it touches or crosses an end.
    #[inline]
    fn count_crossings(self, (start, end): (u64, u64), more: i32) {
        let parts = K::part_of(start.saturating_sub(1))..=K::part_of(end);
        if parts.start() != parts.end() {
            parts.for_each(|part| self.parts[part].count_crossings(more));
        }
    }

    /// Returns the number of bytes in all trees.
    pub(crate) fn bytes(self) -> usize {
        match self.is_divided() {
            false => self.only.bytes(),
            true => self.upwards(0).map(RangeTree::bytes).sum(),
        }
    }

    /// Checks all trees, D1 and D2.
    pub(crate) fn validate(self) -> Result<(), &'static str> {
        if !self.is_divided() {
            return self.only.validate().map_err(Into::into);
        }
        let mut crossings = [0; 64];
        for (part, own) in self.parts.iter().enumerate() {
            own.tree.validate()?;
            for entry in own.tree.ranges(0, u64::MAX) {
                if K::part_of(entry.start) != part {
                    return Err("D1: a VMA is in the tree of another part");
                }
                let touched = K::part_of(entry.start.saturating_sub(1))..=K::part_of(entry.end);
                if touched.start() != touched.end() {
                    touched.for_each(|part| crossings[part] += 1);
                }
            }
        }
        let counted = self.parts.iter().map(Part::crossings);
        match counted.zip(crossings).all(|(own, counted)| own == counted) {
            true => Ok(()),
            false => Err("D2: a part counts too few or too many crossings"),
        }
    }
}

/// Returns the start of the first and the end of the last range; `None` if there is no range.
fn ends(tree: &RangeTree) -> Option<(u64, u64)> {
    Some((tree.find(0)?.start, tree.prev(u64::MAX)?.end))
}

fn gap(start: u64, end: u64, len: u64) -> Option<(u64, u64)> {
    (start < end && end - start >= len).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::{Index, Part};
    use crate::types::PMD_SIZE;
    use crate::types::writers::{Parted, Writers};
    use alloc::vec::Vec;
    use vmarea_range_tree::{Entry, RangeTree};
    use vmarea_sync::{Rank, Spin};

    const SHIFT: u32 = PMD_SIZE.trailing_zeros();
    const UNIT: u64 = PMD_SIZE / 4;
    type Kind = Parted<5, SHIFT>;

    /// A random number generator that needs no state but its last number.
    fn next(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    fn same(index: Index<'_, Kind>, one: &RangeTree) {
        for at in 0..26 {
            let addr = at * UNIT;
            assert_eq!(index.find(addr), one.find(addr), "find {at}");
            assert_eq!(index.prev(addr), one.prev(addr), "prev {at}");
            for (high, len) in [(at + 3, 1), (at + 9, 2), (30, 3), (30, 5)] {
                let (high, len) = (high * UNIT, len * UNIT);
                let found = (
                    index.gap_lowest(addr, high, len),
                    index.gap_highest(addr, high, len),
                );
                let wanted = (
                    one.gap_lowest(addr, high, len),
                    one.gap_highest(addr, high, len),
                );
                assert_eq!(found, wanted, "gaps of {len:x} in {addr:x}..{high:x}");
            }
        }
        assert_eq!(index.validate(), Ok(()));
    }

    /// Compares the index in five parts with one tree after each of many changes.
    #[test]
    fn the_parts_together_are_one_ordered_map() {
        let lock = Kind::lock::<Spin>(Rank::NONE);
        let parts = Kind::each(&lock, Part::owned_by);
        let (whole, one) = (RangeTree::default(), RangeTree::default());
        let index = Index::<Kind>::new(&whole, &parts, 0b11111);
        let mut seed = 0x5eed;
        for _ in 0..3000 {
            let (start, len) = (next(&mut seed) % 24, next(&mut seed) % 4 + 1);
            let (start, end) = (start * UNIT, (start + len) * UNIT);
            let there: Vec<Entry> = one.ranges(start, end).collect();
            match (there.as_slice(), next(&mut seed) % 3) {
                ([], _) => {
                    let entry = Entry {
                        start,
                        end,
                        value: next(&mut seed),
                    };
                    one.write().insert(entry);
                    index.insert(entry);
                }
                ([only], 0) => {
                    one.write().resize(only.start, start, end);
                    index.resize(only.start, start, end);
                }
                (all, _) => all.iter().for_each(|entry| {
                    assert_eq!(index.remove(entry.start), one.write().remove(entry.start));
                }),
            }
            same(index, &one);
        }
    }
}
