//! Changes to several ranges in one step: one range takes in its neighbours, or is cut into several.
//!
//! If all ranges are in one leaf with enough room, only this leaf and the ancestors whose bounds
//! change are written, once. Otherwise the ranges change one after the other, and a reader may see
//! a state in between, in which some addresses are in no range.

use crate::Entry;
use crate::node::{LEAF, Leaf};
use crate::write::{Writer, left_end, right_start, row_of};

impl<'a> Writer<'a> {
    /// Changes the bounds of the range that starts at `old`, and removes all other ranges within
    /// the new bounds.
    ///
    /// # Panics
    /// If no range starts at `old`, or if the new range is empty or overlaps part of another range.
    pub fn absorb(&mut self, old: u64, start: u64, end: u64) {
        assert!(start < end, "empty range");
        let (mut path, leaf, at) = self
            .locate(old)
            .expect("no range starts at the given address");
        let len = leaf.len();
        let (mut first, mut last) = (at, at);
        while first > 0 && leaf.start(first - 1) >= start {
            first -= 1;
        }
        while last + 1 < len && leaf.end_of(last + 1) <= end {
            last += 1;
        }
        let apart = (first > 0 || left_end(&path).is_none_or(|left| left <= start))
            && (last + 1 < len || right_start(&path).is_none_or(|right| end <= right));
        if !apart {
            return self.absorb_one_by_one(old, start, end);
        }
        let fits = (first == 0 || leaf.end_of(first - 1) <= start)
            && (last + 1 == len || end <= leaf.start(last + 1));
        assert!(fits, "range overlaps part of another range");
        let gone = last - first;
        // Only an inner node stores gaps.
        let around = match path.is_empty() {
            true => 0..0,
            false => first..len.min(last + 2),
        };
        let lost = around.map(|row| leaf.gap_before(row)).max();
        let value = leaf.word(at);
        let bounds = (
            if first == 0 { start } else { leaf.start(0) },
            if last + 1 == len {
                end
            } else {
                leaf.end_of(len - 1)
            },
        );
        let apply = |leaf: &Leaf| {
            leaf.set(first, row_of(Entry { start, end, value }));
            if gone > 0 {
                leaf.remove(first + 1, gone, len);
            }
            let made = leaf.gap_around(first, len - gone);
            (len - gone, lost.unwrap_or(0), made)
        };
        self.with_change(|w| {
            w.change_leaf(&path, (leaf, first), bounds, apply);
            if gone > 0 && (len - gone) * 2 <= LEAF && !path.is_empty() {
                w.rebalance(&mut path);
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
        let (path, leaf, at) = self
            .locate(old)
            .expect("no range starts at the given address");
        let (len, was) = (leaf.len(), leaf.row(at));
        let keeps = parts.iter().position(|part| part.value == was.word);
        let keeps = keeps.expect("no part has the value of the old range");
        let ordered = parts.windows(2).all(|pair| pair[0].end <= pair[1].start);
        let (first, last) = (parts[0], parts[parts.len() - 1]);
        let within = was.span.start <= first.start && last.end <= was.span.end;
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
        let bounds = (
            if at == 0 { first.start } else { leaf.start(0) },
            if at + 1 == len {
                last.end
            } else {
                leaf.end_of(len - 1)
            },
        );
        let lost = leaf.gap_around(at, len);
        self.with_change(|w| {
            w.change_leaf(&path, (leaf, at), bounds, |leaf| {
                leaf.open(at + 1, more, len);
                for (place, part) in (at..).zip(parts) {
                    leaf.set(place, row_of(*part));
                }
                let made = (at..=at + more).map(|row| leaf.gap_around(row, len + more));
                (len + more, lost, made.max().unwrap_or(0))
            })
        });
        self.count(more as isize);
    }
}
