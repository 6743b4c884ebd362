//! The writer: insert, remove, resize.
//!
//! A change to one range writes one leaf. Only if the end of the leaf changes, it also writes the
//! ends in the ancestors. All these nodes are marked busy before the first word changes, so a reader
//! sees either the whole change or none of it. The writer splits full nodes on the way down and
//! merges small nodes on the way up ([`balance`](crate::balance)). Each of these steps changes the
//! shape of the tree but not its contents.
//!
//! A change makes gaps larger or smaller. It raises the rooms above a gap that has grown, and leaves
//! the rooms above a gap that has shrunk; a gap search that was misled lowers these
//! ([`gap`](crate::gap)).
//!
//! Each operation first tries the common case, in which only one leaf changes.

use crate::leaf::{LEAF, Leaf, MERGEABLE, Order, gap_between};
use crate::node::{Inner, Versioned};
use crate::path::{Path, Steps};
use crate::pool::{NodeRef, Pool};
use crate::{Entry, OutOfMemory, RangeTree};
use vmarea_sync::SpinGuard;
use vmarea_sync::primitive::{Ordering, fence};

/// Exclusive right to change the map.
///
/// Lookups and gap searches by the same thread see each change immediately. While there is a writer,
/// gap searches do not lower rooms, so a search that earlier changes misled is misled again.
#[derive(Debug)]
pub struct Writer<'a> {
    pub(crate) tree: &'a RangeTree,
    pub(crate) pool: SpinGuard<'a, Pool>,
}

impl<'a> Writer<'a> {
    #[inline]
    pub(crate) fn new(tree: &'a RangeTree, pool: SpinGuard<'a, Pool>) -> Self {
        Writer { tree, pool }
    }

    /// Reserves nodes so that the next `changes` calls of [`insert`](Self::insert) cannot fail.
    ///
    /// The map keeps unused reserved nodes when the writer is dropped.
    ///
    /// # Errors
    /// If the allocator has no memory; the map is unchanged.
    #[inline]
    pub fn reserve(&mut self, changes: usize) -> Result<(), OutOfMemory> {
        self.pool.reserve(changes)
    }

    /// Inserts a range.
    ///
    /// # Panics
    /// If the range is empty or overlaps another, or if no node is reserved and the allocator has
    /// no memory.
    #[inline]
    pub fn insert(&mut self, e: Entry) {
        assert!(e.start < e.end, "empty range");
        if !self.insert_between(e) {
            self.insert_anywhere(e);
        }
        self.count(1);
    }

    /// Inserts a range into a leaf that has a free slot: anywhere in the only leaf, otherwise between
    /// others. No other node changes, because the gap becomes smaller. Returns false if this is not
    /// possible.
    #[inline]
    fn insert_between(&mut self, e: Entry) -> bool {
        let (mut rows, mut only) = (0, true);
        let pass = |_: &Inner, row| (rows, only) = (rows | row, false);
        let Some(leaf) = self.descend(e.start, pass) else {
            return false;
        };
        let (order, rank) = (leaf.order(), leaf.first_ending_after(e.start));
        let (first, last) = (rows | rank == 0, rank >= order.len());
        if order.len() == LEAF || (first || last) && !only {
            return false;
        }
        let fits = last || e.end <= leaf.start(order, rank);
        assert!(fits, "range overlaps another range");
        let rank = rank.min(order.len());
        self.with_change(|_| change_leaf(leaf, |leaf| leaf.insert(order, rank, e)));
        true
    }

    #[cold]
    fn insert_anywhere(&mut self, e: Entry) {
        self.pool
            .reserve(1)
            .expect("no memory for a node: call reserve first");
        let steps = Steps::new();
        let Some((path, leaf)) = self.make_room(e.start, &steps) else {
            return self.with_change(|w| w.insert_first(e));
        };
        let (order, rank) = (leaf.order(), leaf.first_ending_after(e.start));
        let last = rank >= order.len();
        let rank = rank.min(order.len());
        let fits = last || e.end <= leaf.start(order, rank);
        assert!(fits, "range overlaps another range");
        let below = path.end_below(leaf, rank);
        self.with_change(|_| {
            path.raise(gap_between(below, e.start));
            if below == 0 && !last {
                // The gap before the first range does not count, but this was the first range.
                path.raise(leaf.start(order, 0) - e.end);
            }
            change_leaf_and_end(path, leaf, last.then_some(e.end), |leaf| {
                leaf.insert(order, rank, e)
            });
        });
    }

    /// Removes and returns the range that starts at `start`.
    pub fn remove(&mut self, start: u64) -> Option<Entry> {
        let steps = Steps::new();
        let (path, leaf, order, rank) = self.locate(start, &steps)?;
        let gone = leaf.entry(order, rank);
        let left = order.len() - 1;
        if rank < left && left > MERGEABLE / 2 {
            let above = leaf.start(order, rank + 1);
            let gap = path.gap_before(leaf, rank, above);
            self.with_change(|_| {
                path.raise(gap);
                change_leaf(leaf, |leaf| leaf.remove(order, rank));
            });
        } else {
            self.remove_anywhere(path, leaf, order, rank);
        }
        self.count(-1);
        Some(gone)
    }

    #[cold]
    fn remove_anywhere(&mut self, path: Path<'_, 'a>, leaf: &'a Leaf, order: Order, rank: usize) {
        let left = order.len() - 1;
        let below = path.end_below(leaf, rank);
        let above = path.above(self.tree, leaf, order, rank);
        self.with_change(|w| {
            path.raise_above(w.tree, above, below);
            if left == 0 {
                return w.unlink_leaf(path, leaf);
            }
            let end = (rank == left).then_some(below);
            change_leaf_and_end(path, leaf, end, |leaf| leaf.remove(order, rank));
            if left <= MERGEABLE / 2 && !path.is_empty() {
                w.rebalance(path);
            }
        });
    }

    /// Changes the bounds of the range that starts at `old`.
    ///
    /// # Panics
    /// If no range starts at `old`, or if the new range is empty or overlaps a neighbour.
    pub fn resize(&mut self, old: u64, start: u64, end: u64) {
        assert!(start < end, "empty range");
        let steps = Steps::new();
        let (path, leaf, order, rank) = self
            .locate(old, &steps)
            .expect("no range starts at the given address");
        let mut gap = 0;
        if start != old {
            let below = path.end_below(leaf, rank);
            assert!(below <= start, "range overlaps its left neighbour");
            gap = gap_between(below, start);
        }
        let change = |leaf: &Leaf| leaf.set_bounds(order, rank, (start, end));
        if rank + 1 < order.len() {
            let above = leaf.start(order, rank + 1);
            assert!(end <= above, "range overlaps its right neighbour");
            self.with_change(|_| {
                path.raise(gap.max(above - end));
                change_leaf(leaf, change);
            });
        } else {
            let above = path.above(self.tree, leaf, order, rank);
            let fits = above.start().is_none_or(|above| end <= above);
            assert!(fits, "range overlaps its right neighbour");
            self.with_change(|w| {
                path.raise(gap);
                path.raise_above(w.tree, above, end);
                change_leaf_and_end(path, leaf, Some(end), change);
            });
        }
    }

    /// Returns the path, leaf, order and rank of the range that starts at `start`.
    #[inline(always)]
    pub(crate) fn locate<'p>(
        &self,
        start: u64,
        steps: &'p Steps<'a>,
    ) -> Option<(Path<'p, 'a>, &'a Leaf, Order, usize)> {
        let mut path = Path::new(steps);
        let leaf = self.descend(start, |inner, row| path.push(inner, row))?;
        let (order, rank) = (leaf.order(), leaf.first_ending_after(start));
        let found = rank < order.len() && leaf.start(order, rank) == start;
        found.then_some((path, leaf, order, rank))
    }

    /// Descends to the leaf of the first range that ends after `addr`; `None` if there is none.
    #[inline]
    fn descend(&self, addr: u64, mut pass: impl FnMut(&'a Inner, usize)) -> Option<&'a Leaf> {
        let mut node = self.tree.node(self.tree.root())?;
        loop {
            match node {
                NodeRef::Leaf(leaf) => return Some(leaf),
                NodeRef::Inner(inner) => {
                    let row = inner.first_ending_after(addr);
                    pass(inner, row);
                    node = self.tree.node(inner.child(row))?;
                }
            }
        }
    }

    /// Descends to the leaf for a range that starts at `start`, and splits full nodes on the way if
    /// the leaf is full.
    ///
    /// Returns `None` if the tree is empty.
    fn make_room<'p>(
        &mut self,
        start: u64,
        steps: &'p Steps<'a>,
    ) -> Option<(Path<'p, 'a>, &'a Leaf)> {
        let tree = self.tree;
        let mut path = Path::new(steps);
        let mut node = tree.node(tree.root())?;
        while let NodeRef::Inner(inner) = node {
            let row = inner.first_ending_after(start).min(inner.len() - 1);
            path.push(inner, row);
            node = tree.node(inner.child(row))?;
        }
        if let NodeRef::Leaf(leaf) = node
            && !node.is_full()
        {
            // Needs no node, so the reservation remains.
            return Some((path, leaf));
        }
        self.pool.use_reservation();
        path = Path::new(steps);
        node = tree.node(tree.root())?;
        if node.is_full() {
            self.with_change(|w| w.add_root(node));
            node = tree.node(tree.root())?;
        }
        loop {
            let inner = match node {
                NodeRef::Leaf(leaf) => return Some((path, leaf)),
                NodeRef::Inner(inner) => inner,
            };
            let row = inner.first_ending_after(start).min(inner.len() - 1);
            let child = tree.node(inner.child(row))?;
            if child.is_full() {
                self.with_change(|w| w.make_room_in_child(inner, row, child, start));
            } else {
                path.push(inner, row);
                node = child;
            }
        }
    }

    /// Inserts the first range into an empty tree.
    fn insert_first(&mut self, e: Entry) {
        self.pool.use_reservation();
        let child = self.pool.take_leaf();
        if let Some(NodeRef::Leaf(leaf)) = self.tree.node(child) {
            change_leaf(leaf, |leaf| leaf.push(e));
        }
        self.tree.set_root(child);
    }

    /// Runs a change, and forces concurrent searches that visit several nodes to retry.
    #[inline]
    pub(crate) fn with_change<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        let changes = &self.tree.changes;
        let before = changes.load(Ordering::Relaxed);
        changes.store(before + 1, Ordering::Relaxed);
        // ORDERING: Release fence, pairs with the Acquire fence in `try_on_stable_tree`.
        fence(Ordering::Release);
        let result = change(self);
        // ORDERING: Release, pairs with the Acquire in `try_on_stable_tree`.
        changes.store(before + 2, Ordering::Release);
        result
    }

    #[inline]
    pub(crate) fn count(&mut self, more: isize) {
        // ORDERING: Relaxed; the count publishes no other data, and only the writer changes it.
        let now = self.tree.ranges.load(Ordering::Relaxed);
        let then = now.wrapping_add_signed(more);
        self.tree.ranges.store(then, Ordering::Relaxed);
    }
}

/// Applies a change to a leaf that leaves the leaf's end alone.
#[inline]
pub(crate) fn change_leaf<T>(leaf: &Leaf, apply: impl FnOnce(&Leaf) -> T) -> T {
    leaf.begin_write();
    let result = apply(leaf);
    leaf.end_write();
    result
}

/// Applies a change to a leaf, whose new end is `end` if the change affects it, and updates the
/// leaf's ancestors.
pub(crate) fn change_leaf_and_end<T>(
    path: Path<'_, '_>,
    leaf: &Leaf,
    end: Option<u64>,
    apply: impl FnOnce(&Leaf) -> T,
) {
    if end.is_some() {
        path.begin_write();
    }
    change_leaf(leaf, apply);
    if let Some(end) = end {
        path.end_write(end);
    }
}
