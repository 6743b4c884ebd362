//! Path from the root to a leaf, and what a change of the leaf changes in the nodes on its path.

use crate::RangeTree;
use crate::leaf::{Leaf, Order, gap_between};
use crate::node::{Inner, NodePtr, Versioned};
use crate::pool::NodeRef;
use core::cell::Cell;
use core::mem::MaybeUninit;

/// Maximum number of inner nodes on a path; a power of two.
///
/// Any two neighbouring nodes together hold more than half as many rows as fit into one node, so a
/// tree of this height would not fit into memory.
const MAX_HEIGHT: usize = if cfg!(any(test, loom)) { 64 } else { 16 };

/// Memory for the steps of a path.
#[derive(Debug)]
pub(crate) struct Steps<'t>([Cell<MaybeUninit<(&'t Inner, usize)>>; MAX_HEIGHT]);

impl Steps<'_> {
    #[inline]
    pub fn new() -> Self {
        Steps([const { Cell::new(MaybeUninit::uninit()) }; MAX_HEIGHT])
    }
}

/// The inner nodes above a leaf, and the row taken in each.
///
/// A copy of a path may become shorter while the original is in use, but not longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'p, 't> {
    /// The first `len` steps are initialized.
    steps: &'p Steps<'t>,
    len: usize,
}

/// The first range above a range or a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Above<'p, 't> {
    /// It is in the path's leaf, and starts at this address.
    Same(u64),
    /// It is in the next leaf, which is below this row; the path ends above the row.
    Next(u64, Path<'p, 't>, (&'t Inner, usize)),
    None,
}

impl Above<'_, '_> {
    /// Returns the start of the range.
    pub fn start(self) -> Option<u64> {
        match self {
            Above::Same(start) | Above::Next(start, ..) => Some(start),
            Above::None => None,
        }
    }
}

impl<'p, 't> Path<'p, 't> {
    #[inline]
    pub fn new(steps: &'p Steps<'t>) -> Self {
        Path { steps, len: 0 }
    }

    #[inline]
    pub fn push(&mut self, inner: &'t Inner, row: usize) {
        debug_assert!(self.len < MAX_HEIGHT);
        self.steps.0[self.len % MAX_HEIGHT].set(MaybeUninit::new((inner, row)));
        self.len += 1;
    }

    /// Returns true if the root is a leaf.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Removes and returns the lowest step.
    #[inline]
    pub fn pop(&mut self) -> Option<(&'t Inner, usize)> {
        self.len = self.len.checked_sub(1)?;
        let step = self.steps.0[self.len % MAX_HEIGHT].get();
        // SAFETY: `push` has initialized the steps below the old length.
        Some(unsafe { step.assume_init() })
    }

    /// Iterates from the leaf's parent to the root.
    #[inline]
    fn upwards(mut self) -> impl Iterator<Item = (&'t Inner, usize)> {
        core::iter::from_fn(move || self.pop())
    }

    /// Returns the end of the last range to the left of the leaf; 0 if there is none.
    #[cold]
    fn floor(self) -> u64 {
        self.upwards()
            .find_map(|(inner, row)| Some(inner.end_of(row.checked_sub(1)?)))
            .unwrap_or(0)
    }

    /// Returns the end of the range before the one with the given rank in the leaf; 0 if there is
    /// none.
    #[inline]
    pub fn end_below(self, leaf: &Leaf, rank: usize) -> u64 {
        match rank {
            0 => self.floor(),
            _ => leaf.end_before(rank),
        }
    }

    /// Returns the gap before a range that starts at `start` and has the given rank in the leaf; 0
    /// if it is the first range.
    #[inline]
    pub fn gap_before(self, leaf: &Leaf, rank: usize, start: u64) -> u64 {
        match rank {
            0 => gap_between(self.floor(), start),
            _ => start - leaf.end_before(rank),
        }
    }

    /// Returns the first range above the one with the given rank in the leaf.
    pub fn above(
        mut self,
        tree: &'t RangeTree,
        leaf: &Leaf,
        order: Order,
        rank: usize,
    ) -> Above<'p, 't> {
        if rank + 1 < order.len() {
            return Above::Same(leaf.start(order, rank + 1));
        }
        while let Some((inner, row)) = self.pop() {
            let next = inner.child(row + 1);
            if next != NodePtr::NULL {
                let start = tree.first_start(next).unwrap_or(u64::MAX);
                return Above::Next(start, self, (inner, row + 1));
            }
        }
        Above::None
    }

    /// Raises the rooms on the path to at least `gap`, which is now before a range in the leaf.
    ///
    /// A room is at least as large as the rooms below it, so the first one that suffices is the
    /// last one to be looked at.
    #[inline]
    pub fn raise(mut self, gap: u64) {
        while let Some((inner, row)) = self.pop() {
            if inner.room(row) >= gap {
                return;
            }
            inner.set_room(row, gap);
        }
    }

    /// Raises the rooms above `above`, before which the gap now begins at `end`.
    pub fn raise_above(self, tree: &'t RangeTree, above: Above<'_, 't>, end: u64) {
        match above {
            Above::Same(start) => self.raise(gap_between(end, start)),
            Above::Next(start, upper, (mut inner, mut row)) => {
                let gap = gap_between(end, start);
                upper.raise(gap);
                loop {
                    inner.set_room(row, inner.room(row).max(gap));
                    match tree.node(inner.child(row)) {
                        Some(NodeRef::Inner(child)) => (inner, row) = (child, 0),
                        _ => return,
                    }
                }
            }
            Above::None => {}
        }
    }

    /// Marks each node on the path as busy in which the end of a row is about to change, because
    /// the end of the leaf changes.
    pub fn begin_write(self) {
        for (inner, row) in self.upwards() {
            inner.begin_write();
            if row + 1 < inner.len() {
                return;
            }
        }
    }

    /// Writes the new end of the leaf into the nodes that [`begin_write`](Self::begin_write) has
    /// marked.
    pub fn end_write(self, end: u64) {
        for (inner, row) in self.upwards() {
            inner.set_end(row, end);
            inner.end_write();
            if row + 1 < inner.len() {
                return;
            }
        }
    }
}
