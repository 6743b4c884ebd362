//! Changes to several ranges in one step: one range takes in its neighbours, or is cut into several.
//!
//! If all ranges are in one leaf with enough room, only this leaf and the ancestors whose ends
//! change are written, once. Otherwise the ranges change one after the other, and a reader may see
//! a state in between, in which some addresses are in no range.

use crate::Entry;
use crate::leaf::{LEAF, MERGEABLE, gap_between};
use crate::path::Steps;
use crate::write::{Writer, change_leaf_and_end};

impl<'a> Writer<'a> {
    /// Changes the bounds of the range that starts at `old`, and removes all other ranges within
    /// the new bounds.
    ///
    /// # Panics
    /// If no range starts at `old`, or if the new range is empty or overlaps part of another range.
    pub fn absorb(&mut self, old: u64, start: u64, end: u64) {
        assert!(start < end, "empty range");
        let steps = Steps::new();
        let (path, leaf, order, at) = self
            .locate(old, &steps)
            .expect("no range starts at the given address");
        let len = order.len();
        let (mut first, mut last) = (at, at);
        while first > 0 && leaf.ranked(first - 1).start >= start {
            first -= 1;
        }
        while last + 1 < len && leaf.ranked(last + 1).end <= end {
            last += 1;
        }
        let below = path.end_below(leaf, first);
        let above = path.above(self.tree, leaf, order, last);
        let fits_above = above.start().is_none_or(|above| end <= above);
        let fits = (below <= start, fits_above);
        let apart = (first > 0 || fits.0) && (last + 1 < len || fits.1);
        if !apart {
            return self.absorb_one_by_one(old, start, end);
        }
        assert!(fits.0 && fits.1, "range overlaps part of another range");
        let gone = last - first;
        let value = leaf.ranked(at).value;
        self.with_change(|w| {
            path.raise(gap_between(below, start));
            path.raise_above(w.tree, above, end);
            let new_end = (last + 1 == len).then_some(end);
            change_leaf_and_end(path, leaf, new_end, |leaf| {
                for rank in (first..=last).rev().filter(|rank| *rank != at) {
                    leaf.remove(leaf.order(), rank);
                }
                leaf.set(leaf.order(), first, Entry { start, end, value });
            });
            if gone > 0 && (len - gone) * 2 <= MERGEABLE && !path.is_empty() {
                w.rebalance(path);
            }
        });
        self.count(-(gone as isize));
    }

    fn absorb_one_by_one(&mut self, old: u64, start: u64, end: u64) {
        let mut at = start;
        while let Some(e) = self.tree.find(at).filter(|e| e.end <= end) {
            at = e.end;
            if e.start != old {
                self.remove(e.start);
            }
        }
        self.resize(old, start, end);
    }

    /// Replaces the range that starts at `old` by the ranges `parts`, which lie within it in
    /// ascending order; one of them has the old range's value.
    ///
    /// [`reserve`](Self::reserve) has reserved nodes for one insertion less than there are parts.
    ///
    /// # Panics
    /// If no range starts at `old`, no part has its value, or a part is not within it.
    pub fn cut(&mut self, old: u64, parts: &[Entry]) {
        let steps = Steps::new();
        let (path, leaf, order, at) = self
            .locate(old, &steps)
            .expect("no range starts at the given address");
        let (len, was) = (order.len(), leaf.entry(order, at));
        let keeps = parts.iter().position(|part| part.value == was.value);
        let keeps = keeps.expect("no part has the value of the old range");
        let ordered = parts.windows(2).all(|pair| pair[0].end <= pair[1].start);
        let (first, last) = (parts[0], parts[parts.len() - 1]);
        let within = was.start <= first.start && last.end <= was.end;
        let filled = parts.iter().all(|part| part.start < part.end);
        assert!(
            ordered && within && filled,
            "the parts are not in the range"
        );
        let more = parts.len() - 1;
        if len + more > LEAF {
            self.resize(old, parts[keeps].start, parts[keeps].end);
            let others = parts.iter().enumerate().filter(|(at, _)| *at != keeps);
            return others.for_each(|(_, part)| self.insert(*part));
        }
        let below = path.end_below(leaf, at);
        let above = path.above(self.tree, leaf, order, at);
        let between = parts.windows(2).map(|pair| pair[1].start - pair[0].end);
        self.with_change(|w| {
            path.raise(between.fold(gap_between(below, first.start), u64::max));
            path.raise_above(w.tree, above, last.end);
            let new_end = (at + 1 == len).then_some(last.end);
            change_leaf_and_end(path, leaf, new_end, |leaf| {
                leaf.set(order, at, first);
                for (rank, part) in (at..).zip(parts).skip(1) {
                    leaf.insert(leaf.order(), rank, *part);
                }
            });
        });
        self.count(more as isize);
    }
}
