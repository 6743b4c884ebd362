//! Lockless lookups.
//!
//! # Locking
//! Optimistic lock coupling: a reader loads the child's version, and then checks that the parent
//! has not changed since the reader loaded the parent's version. So at the moment when the reader
//! checked the root, each node was as the reader saw it, and the result is correct for this moment.
//! A node that was removed and reused has another version, and the reader retries.

use crate::leaf::Leaf;
use crate::node::{Head, Inner, NodePtr, Versioned};
use crate::pool::NodeRef;
use crate::{Contended, Entry, RangeTree};
use vmarea_sync::primitive::{Ordering, spin_loop};

/// Position of a reader: a node and its version.
type Position<'t> = (NodeRef<'t>, Head);

impl NodeRef<'_> {
    #[inline]
    pub(crate) fn begin_read(self) -> Option<Head> {
        match self {
            NodeRef::Leaf(leaf) => leaf.begin_read(),
            NodeRef::Inner(inner) => inner.begin_read(),
        }
    }
}

impl RangeTree {
    /// Returns the range that contains `addr`.
    #[inline]
    pub fn get(&self, addr: u64) -> Option<Entry> {
        self.find(addr).filter(|e| e.start <= addr)
    }

    /// Returns the range that contains `addr`, or else the next range above `addr`.
    #[inline]
    pub fn find(&self, addr: u64) -> Option<Entry> {
        retry(|| self.try_find(addr))
    }

    /// Returns the last range that starts below `addr`.
    #[inline]
    pub fn prev(&self, addr: u64) -> Option<Entry> {
        retry(|| self.try_prev(addr))
    }

    /// Returns the range that ends at `start` and the range that starts at `end`, if they exist.
    pub fn touching(&self, start: u64, end: u64) -> [Option<Entry>; 2] {
        retry(|| self.try_touching(start, end))
    }

    fn try_touching(&self, start: u64, end: u64) -> Result<[Option<Entry>; 2], Contended> {
        let (mut below, mut above, mut only) = (None, None, false);
        if let Some((leaf, seen, rank, found)) = self.seek(start)? {
            let order = leaf.order();
            let next = rank + usize::from(found.start < end);
            let ranked = |rank| (rank < order.len()).then(|| leaf.entry(order, rank));
            below = rank.checked_sub(1).and_then(ranked);
            above = ranked(next);
            if below.is_none() || above.is_none() {
                let root = self.node(self.root());
                only = matches!(root, Some(NodeRef::Leaf(root)) if core::ptr::eq(root, leaf));
            }
            if !leaf.is_unchanged(seen) {
                return Err(Contended);
            }
        }
        // The neighbours may be in other leaves, unless there is only one, and several ranges may
        // lie between them.
        let below = match below {
            None if !only => self.try_prev(start)?,
            near => near,
        };
        let above = match above {
            None if only => None,
            Some(near) if near.start >= end => Some(near),
            _ => self.try_find(end)?,
        };
        let ends = below.filter(|below| below.end == start);
        Ok([ends, above.filter(|above| above.start == end)])
    }

    /// Like [`find`](Self::find), but does not retry.
    ///
    /// # Errors
    /// If the reader met a writer in the same node.
    #[inline]
    pub fn try_find(&self, addr: u64) -> Result<Option<Entry>, Contended> {
        Ok(self.seek(addr)?.map(|(_, _, _, entry)| entry))
    }

    /// Iterates over the ranges that overlap `[low, high)`, in ascending order.
    ///
    /// Each range was in the map at some moment during the iteration, and starts at or after the
    /// end of the previous range. If a writer moves a range below that end in the meantime, the
    /// iteration skips the range.
    pub fn ranges(&self, low: u64, high: u64) -> Ranges<'_> {
        Ranges {
            tree: self,
            at: low,
            high,
            place: None,
        }
    }

    /// Returns the leaf, head, rank and content of the first range that ends after `addr`.
    #[inline]
    fn seek(&self, addr: u64) -> Result<Option<(&Leaf, Head, usize, Entry)>, Contended> {
        let Some((mut node, mut seen)) = self.begin_read_root()? else {
            return Ok(None);
        };
        loop {
            match node {
                NodeRef::Inner(inner) => {
                    let row = inner.first_ending_after(addr);
                    let Some(child) = self.node(inner.child(row)) else {
                        return inner.is_unchanged(seen).then_some(None).ok_or(Contended);
                    };
                    let version = child.begin_read().ok_or(Contended)?;
                    if !inner.is_unchanged(seen) {
                        return Err(Contended);
                    }
                    (node, seen) = (child, version);
                }
                NodeRef::Leaf(leaf) => {
                    let (order, rank) = (leaf.order(), leaf.first_ending_after(addr));
                    if rank >= order.len() {
                        return leaf.is_unchanged(seen).then_some(None).ok_or(Contended);
                    }
                    let found = leaf.entry(order, rank);
                    return leaf
                        .is_unchanged(seen)
                        .then_some(Some((leaf, seen, rank, found)))
                        .ok_or(Contended);
                }
            }
        }
    }

    /// Descends to the first range that ends at or after `addr`. If this range does not start below
    /// `addr`, the answer is the range before it, which may be in the leaf to the left.
    fn try_prev(&self, addr: u64) -> Result<Option<Entry>, Contended> {
        let Some(last) = addr.checked_sub(1) else {
            return Ok(None);
        };
        let Some((mut node, mut seen)) = self.begin_read_root()? else {
            return Ok(None);
        };
        // The lowest node on the path with a child to the left of the path.
        let mut turn = None;
        let (leaf, order, rank) = loop {
            match node {
                NodeRef::Inner(inner) => {
                    let row = inner.first_ending_after(last);
                    let row = row.min(inner.len().saturating_sub(1));
                    if row > 0 {
                        turn = Some((inner, seen, row - 1));
                    }
                    (node, seen) = self.step(inner, seen, row)?;
                }
                NodeRef::Leaf(leaf) => {
                    let order = leaf.order();
                    break (leaf, order, leaf.first_ending_after(last).min(order.len()));
                }
            }
        };
        let here = (rank < order.len()).then(|| leaf.entry(order, rank));
        let before = rank.checked_sub(1).map(|left| leaf.entry(order, left));
        let found = match (here.filter(|e| e.start < addr).or(before), turn) {
            (None, Some((inner, version, row))) => self.last_below(inner, version, row)?,
            (found, _) => found,
        };
        leaf.is_unchanged(seen).then_some(found).ok_or(Contended)
    }

    /// Returns the last range in the child at `row`.
    fn last_below(
        &self,
        inner: &Inner,
        seen: Head,
        row: usize,
    ) -> Result<Option<Entry>, Contended> {
        let (mut node, mut seen) = self.step(inner, seen, row)?;
        loop {
            match node {
                NodeRef::Inner(inner) => {
                    let last = inner.len().saturating_sub(1);
                    (node, seen) = self.step(inner, seen, last)?;
                }
                NodeRef::Leaf(leaf) => {
                    let order = leaf.order();
                    let last = order.len().checked_sub(1);
                    let found = last.map(|last| leaf.entry(order, last));
                    return leaf.is_unchanged(seen).then_some(found).ok_or(Contended);
                }
            }
        }
    }

    /// Moves from an inner node to its child at `row`.
    fn step(&self, inner: &Inner, seen: Head, row: usize) -> Result<Position<'_>, Contended> {
        let child = self.begin_read(inner.child(row))?;
        inner.is_unchanged(seen).then_some(child).ok_or(Contended)
    }

    #[inline]
    fn begin_read_root(&self) -> Result<Option<Position<'_>>, Contended> {
        // ORDERING: Acquire, pairs with the Release in `set_root`.
        let root = self.root.0.load(Ordering::Acquire);
        if root.is_null() {
            return Ok(None);
        }
        let position = self.begin_read(NodePtr(root))?;
        // ORDERING: Relaxed; the Acquire in `begin_read` orders this load. If this is still the
        // root, it was the root while it had the version that was loaded.
        if self.root.0.load(Ordering::Relaxed) == root {
            Ok(Some(position))
        } else {
            Err(Contended)
        }
    }

    #[inline]
    fn begin_read(&self, child: NodePtr) -> Result<Position<'_>, Contended> {
        let node = self.node(child).ok_or(Contended)?;
        Ok((node, node.begin_read().ok_or(Contended)?))
    }

    #[inline]
    pub(crate) fn node(&self, child: NodePtr) -> Option<NodeRef<'_>> {
        // SAFETY: a `NodePtr` comes from the root or a node of this tree and therefore from its
        // pool (P1), which lives as long as the tree.
        unsafe { child.node() }
    }

    #[inline]
    pub(crate) fn root(&self) -> NodePtr {
        // ORDERING: Acquire, pairs with the Release in `set_root`.
        NodePtr(self.root.0.load(Ordering::Acquire))
    }

    pub(crate) fn set_root(&self, root: NodePtr) {
        // ORDERING: Release, pairs with the Acquire in `root` and `begin_read_root`.
        self.root.0.store(root.0, Ordering::Release);
    }
}

#[inline]
fn retry<T>(attempt: impl Fn() -> Result<T, Contended>) -> T {
    loop {
        if let Ok(answer) = attempt() {
            return answer;
        }
        spin_loop();
    }
}

/// Iterator over ranges in ascending order; see [`RangeTree::ranges`].
#[derive(Debug)]
pub struct Ranges<'t> {
    tree: &'t RangeTree,
    at: u64,
    high: u64,
    /// Leaf, head and rank of the range that was returned last.
    place: Option<(&'t Leaf, Head, usize)>,
}

impl Iterator for Ranges<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        while self.at < self.high {
            let near = self.place.and_then(|(leaf, seen, rank)| {
                let (order, next) = (leaf.order(), rank + 1);
                let found =
                    (next < order.len()).then(|| (leaf, seen, next, leaf.entry(order, next)))?;
                leaf.is_unchanged(seen).then_some(found)
            });
            let (leaf, seen, rank, found) = near.or_else(|| retry(|| self.tree.seek(self.at)))?;
            let first = self.place.is_none();
            let after = self.at;
            self.place = Some((leaf, seen, rank));
            self.at = found.end;
            if first || found.start >= after {
                return (found.start < self.high).then_some(found);
            }
        }
        None
    }
}
