//! Gap search: the lowest or highest gap of a given size in a window.
//!
//! A row of an inner node has a room, which is at least the size of the largest gap before a range
//! in its child. A search enters a child only if this room is large enough. Because a search visits
//! several nodes, it does not check the version of each node, but checks whether the tree as a whole
//! has changed. After a few failed attempts, the search blocks writers.
//!
//! A room may be larger than the largest gap, because changes do not lower rooms. Such a room can
//! mislead a search: it enters the child and finds nothing. If there is no writer, a misled search
//! becomes the writer, runs again, and lowers the rooms that misled it. A room is lowered at most
//! once for each change that left it too large, so the changes pay for it.

use crate::leaf::Leaf;
use crate::node::{Inner, NodePtr};
use crate::pool::NodeRef;
use crate::{Contended, RangeTree, Writer};
use core::cell::Cell;
use core::ops::ControlFlow::{self, Break, Continue};
use vmarea_sync::primitive::{Ordering, fence, spin_loop};

type Gap = (u64, u64);
/// Result of the search of a node: the gap, or `None` if the search has reached the end of the
/// window; or else whether the search has seen all gaps in the node.
type Search = ControlFlow<Option<Gap>, bool>;

const MAX_ATTEMPTS: usize = 8;
/// Depth limit that stops a search in an inconsistent tree; greater than the height of any tree.
const MAX_DEPTH: usize = 64;

/// Addresses in which to search, and the least length of the gap.
#[derive(Clone, Copy)]
struct Window<'s> {
    low: u64,
    high: u64,
    len: u64,
    /// Called if a room misled the search, with the node and the row that have the room, and the
    /// address at which the first gap in the row's child begins.
    vain: &'s dyn Fn(&Inner, usize, u64),
}

/// A node to be searched.
#[derive(Clone, Copy)]
struct Place {
    node: NodePtr,
    /// End of the range before the node's first range; 0 if there is none.
    floor: u64,
    depth: usize,
}

impl Place {
    #[inline]
    fn child(self, inner: &Inner, row: usize) -> Place {
        Place {
            node: inner.child(row),
            floor: inner.end_below(row, self.floor),
            depth: self.depth + 1,
        }
    }
}

impl Window<'_> {
    /// Clips a gap to the window. Returns `None` if the result is too small.
    #[inline]
    fn clipped(&self, start: u64, end: u64) -> Option<Gap> {
        let (start, end) = (start.max(self.low), end.min(self.high));
        (end > start && end - start >= self.len).then_some((start, end))
    }

    /// Returns true if the search ends at this gap.
    ///
    /// The search ends if the gap is large enough before it is clipped, or if the search has
    /// reached the far end of the window. Both conditions share one branch, which is rarely taken.
    #[inline]
    fn decides(&self, start: u64, end: u64, outside: bool) -> bool {
        (end.saturating_sub(start) >= self.len) | outside
    }
}

impl RangeTree {
    /// Returns the lowest gap of at least `len` in the window `[low, high)`, clipped to the window.
    pub fn gap_lowest(&self, low: u64, high: u64, len: u64) -> Option<(u64, u64)> {
        self.search((low, high, len), Self::lowest_in_window).0
    }

    /// Returns the highest gap of at least `len` in the window `[low, high)`, clipped to the
    /// window.
    pub fn gap_highest(&self, low: u64, high: u64, len: u64) -> Option<(u64, u64)> {
        self.search((low, high, len), Self::highest_in_window).0
    }

    /// Runs a search, and repeats it as a writer if it was misled. Returns how often it was.
    #[inline]
    fn search(
        &self,
        (low, high, len): (u64, u64, u64),
        search: impl Fn(&Self, Window<'_>) -> Option<Gap>,
    ) -> (Option<Gap>, u64) {
        let misled = Cell::new(0);
        let window = Window {
            low,
            high,
            len: len.max(1),
            vain: &|_, _, _| misled.set(misled.get() + 1),
        };
        let answer = self.on_stable_tree(|| search(self, window));
        if misled.get() > 0 {
            self.lower_rooms(window, &search);
        }
        (answer, misled.get())
    }

    /// Repeats a search and lowers the rooms that misled it, unless there is a writer.
    #[cold]
    fn lower_rooms(&self, window: Window<'_>, search: &dyn Fn(&Self, Window<'_>) -> Option<Gap>) {
        let Some(pool) = self.writer.try_lock() else {
            return;
        };
        let lower = |inner: &Inner, row: usize, floor: u64| {
            if let Some(child) = self.node(inner.child(row)) {
                inner.set_room(row, child.largest_gap(floor));
            }
        };
        let window = Window {
            vain: &lower,
            ..window
        };
        Writer::new(self, pool).with_change(|_| search(self, window));
    }

    /// Runs a search, and repeats it if the tree has changed meanwhile. The last attempt blocks
    /// writers.
    #[inline]
    fn on_stable_tree<T>(&self, search: impl Fn() -> T) -> T {
        for _ in 0..MAX_ATTEMPTS {
            if let Ok(answer) = self.try_on_stable_tree(&search) {
                return answer;
            }
            spin_loop();
        }
        let _no_writer = self.writer.lock();
        search()
    }

    #[inline]
    fn try_on_stable_tree<T>(&self, search: impl Fn() -> T) -> Result<T, Contended> {
        // ORDERING: Acquire, pairs with the Release at the end of `Writer::with_change`.
        let before = self.changes.load(Ordering::Acquire);
        if before % 2 == 1 {
            return Err(Contended);
        }
        let answer = search();
        // ORDERING: Acquire fence, pairs with the Release fence in `Writer::with_change`.
        fence(Ordering::Acquire);
        if self.changes.load(Ordering::Relaxed) == before {
            Ok(answer)
        } else {
            Err(Contended)
        }
    }

    /// Returns the root as a place to be searched, and the end of the last range.
    fn whole(&self) -> (Place, u64) {
        let root = Place {
            node: self.root(),
            floor: 0,
            depth: 0,
        };
        (root, self.node(root.node).map_or(0, NodeRef::last_end))
    }

    /// Returns the start of the first range in or below a node.
    pub(crate) fn first_start(&self, mut child: NodePtr) -> Option<u64> {
        for _ in 0..MAX_DEPTH {
            match self.node(child)? {
                NodeRef::Inner(inner) => child = inner.child(0),
                NodeRef::Leaf(leaf) => return Some(leaf.ranked(0).start),
            }
        }
        None
    }

    #[inline(always)]
    fn lowest_in_window(&self, w: Window<'_>) -> Option<Gap> {
        let (root, last) = self.whole();
        // No room includes the gap before the first range.
        if self.is_in_first_child(root.node, w.low)
            && let Some(first) = self.first_start(root.node)
            && w.decides(w.low, first, first >= w.high)
        {
            return w.clipped(w.low, first);
        }
        match self.lowest(root, w.low, w) {
            Break(answer) => answer,
            Continue(_) => w.clipped(last.max(w.low), w.high),
        }
    }

    #[inline(always)]
    fn highest_in_window(&self, w: Window<'_>) -> Option<Gap> {
        let (root, last) = self.whole();
        if w.high > last && w.decides(last, w.high, last <= w.low) {
            return w.clipped(last, w.high);
        }
        match self.highest(root, w.high.min(last), w) {
            Break(answer) => answer,
            Continue(_) => w.clipped(0, self.first_start(root.node)?),
        }
    }

    /// Returns true if an address is below the end of the root's first child.
    fn is_in_first_child(&self, root: NodePtr, addr: u64) -> bool {
        match self.node(root) {
            Some(NodeRef::Inner(root)) => addr < root.end_of(0),
            Some(NodeRef::Leaf(_)) | None => false,
        }
    }

    /// Searches a leaf upwards; see [`lowest`](Self::lowest).
    #[inline]
    fn lowest_in_leaf(leaf: &Leaf, floor: u64, at: u64, w: Window<'_>) -> Search {
        let (order, first) = (leaf.order(), leaf.first_ending_after(at));
        let mut below = at;
        for (rank, slot) in (first..order.len()).zip(order.upwards(first)) {
            let start = leaf.start_in(slot);
            if w.decides(below, start, start >= w.high) {
                return Break(w.clipped(below, start));
            }
            below = leaf.end_before(rank + 1);
        }
        Continue(first == 0 && (at == floor || floor == 0))
    }

    /// Searches a leaf downwards; see [`highest`](Self::highest).
    #[inline]
    fn highest_in_leaf(leaf: &Leaf, floor: u64, at: u64, w: Window<'_>) -> Search {
        let order = leaf.order();
        let above = order.len().min(leaf.first_ending_after(at - 1) + 1);
        let Some(last) = above.checked_sub(1) else {
            return Continue(false);
        };
        // Only the last of the ranges can begin above the place where the search begins.
        let mut limit = at;
        for (rank, slot) in (0..above).rev().zip(order.downwards(last)) {
            let start = leaf.start_in(slot).min(limit);
            let end = leaf.end_below(rank, floor);
            if w.decides(end, start, end <= w.low) {
                return Break(w.clipped(end, start));
            }
            limit = u64::MAX;
        }
        Continue(above == order.len() && at == leaf.end_before(above))
    }

    /// Searches a node upwards. The addresses below `at` have already been searched.
    #[inline(always)]
    fn lowest(&self, place: Place, at: u64, w: Window<'_>) -> Search {
        match self.node(place.node) {
            None => Continue(false),
            Some(NodeRef::Leaf(leaf)) => Self::lowest_in_leaf(leaf, place.floor, at, w),
            Some(NodeRef::Inner(inner)) => self.lowest_in_inner(inner, place, at, w),
        }
    }

    fn lowest_in_inner(&self, inner: &Inner, place: Place, mut at: u64, w: Window<'_>) -> Search {
        let (mut from, len) = (inner.first_ending_after(at), inner.len());
        let mut all = from == 0;
        while let Some(row) = inner.next_room(from, len, w.len) {
            let child = place.child(inner, row);
            at = at.max(child.floor);
            if at >= w.high || child.depth > MAX_DEPTH {
                return Break(None);
            }
            match self.lowest(child, at, w)? {
                true => (w.vain)(inner, row, child.floor),
                false => all = false,
            }
            from = row + 1;
        }
        Continue(all)
    }

    /// Searches a node downwards. The addresses above `at`, which is at most the node's end, have
    /// already been searched.
    #[inline(always)]
    fn highest(&self, place: Place, at: u64, w: Window<'_>) -> Search {
        match self.node(place.node) {
            _ if at == 0 => Break(None),
            None => Continue(false),
            Some(NodeRef::Leaf(leaf)) => Self::highest_in_leaf(leaf, place.floor, at, w),
            Some(NodeRef::Inner(inner)) => self.highest_in_inner(inner, place, at, w),
        }
    }

    fn highest_in_inner(&self, inner: &Inner, place: Place, at: u64, w: Window<'_>) -> Search {
        let mut above = inner.len().min(inner.first_ending_after(at - 1) + 1);
        let mut all = above == inner.len();
        while let Some(row) = inner.last_room(above, w.len) {
            let (child, end) = (place.child(inner, row), inner.end_of(row));
            if end <= w.low || child.depth > MAX_DEPTH {
                return Break(None);
            }
            match self.highest(child, at.min(end), w)? {
                true => (w.vain)(inner, row, child.floor),
                false => all = false,
            }
            above = row;
        }
        Continue(all)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Entry, RangeTree};

    fn range(i: u64) -> Entry {
        Entry {
            start: i * 10,
            end: i * 10 + 8,
            value: i,
        }
    }

    /// A change that misleads a search does not mislead the next one.
    #[test]
    fn a_search_is_misled_once() {
        const RANGES: u64 = if cfg!(miri) { 60 } else { 500 };
        let tree = RangeTree::new();
        let scattered = (0..RANGES).map(|i| i * 77 % RANGES);
        scattered.for_each(|i| tree.write().insert(range(i)));
        let nothing = (0, RANGES * 10 - 2, 9);
        let searches = [RangeTree::lowest_in_window, RangeTree::highest_in_window];
        for search in searches {
            let (found, misled) = tree.search(nothing, search);
            assert!(found.is_none() && misled > RANGES / 12, "{misled} times");
            assert_eq!(tree.search(nothing, search), (None, 0));
            assert_eq!(tree.validate(), Ok(()));
            for i in 0..RANGES {
                tree.write().remove(range(i).start);
                tree.write().insert(range(i));
            }
        }
        tree.write().remove(range(7).start);
        for search in searches {
            let (found, _) = tree.search(nothing, search);
            assert_eq!(found, Some((68, 80)));
        }
    }
}
