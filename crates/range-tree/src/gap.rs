//! Gap search: the lowest or highest gap of a given size in a window.
//!
//! A row of an inner node stores the size of the largest gap within its child. A search enters a
//! child only if this gap is large enough, or if the window begins or ends within the child; at
//! most two children per level are therefore searched in vain. Because a search visits several
//! nodes, it does not check the version of each node, but checks whether the tree as a whole has
//! changed. After a few failed attempts, the search blocks writers.

use crate::node::{INNER, NodePtr};
use crate::pool::NodeRef;
use crate::{Contended, RangeTree};
use core::ops::ControlFlow::{self, Break, Continue};
use vmarea_sync::primitive::{Ordering, fence, spin_loop};

type Gap = (u64, u64);
/// Result of a search step: the gap, or the address that the search has reached.
type Search = ControlFlow<Option<Gap>, u64>;

const MAX_ATTEMPTS: usize = 8;
/// Depth limit that stops a search in an inconsistent tree; greater than the height of any tree.
const MAX_DEPTH: usize = 64;

#[derive(Clone, Copy)]
struct Window {
    low: u64,
    high: u64,
    len: u64,
}

impl Window {
    /// Clips a gap to the window. Returns `None` if the result is too small.
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
        let window = Window {
            low,
            high,
            len: len.max(1),
        };
        self.on_stable_tree(|| match self.lowest(self.root(), low, window, 0) {
            Break(answer) => answer,
            Continue(at) => window.clipped(at, high),
        })
    }

    /// Returns the highest gap of at least `len` in the window `[low, high)`, clipped to the
    /// window.
    pub fn gap_highest(&self, low: u64, high: u64, len: u64) -> Option<(u64, u64)> {
        let window = Window {
            low,
            high,
            len: len.max(1),
        };
        self.on_stable_tree(|| match self.highest(self.root(), high, window, 0) {
            Break(answer) => answer,
            Continue(at) => window.clipped(low, at),
        })
    }

    /// Runs a search, and repeats it if the tree has changed meanwhile. The last attempt blocks
    /// writers.
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

    /// Searches upwards from `at`; all addresses below `at` have already been searched.
    fn lowest(&self, child: NodePtr, mut at: u64, w: Window, depth: usize) -> Search {
        match self.node(child) {
            None => {}
            Some(NodeRef::Leaf(leaf)) => {
                for row in leaf.first_ending_after(at)..leaf.len() {
                    let start = leaf.start(row);
                    if w.decides(at, start, start >= w.high) {
                        return Break(w.clipped(at, start));
                    }
                    at = at.max(leaf.end_of(row));
                }
            }
            Some(NodeRef::Inner(inner)) => {
                let (mut row, len) = (inner.first_ending_after(at), inner.len());
                if row < len {
                    let start = inner.start(row);
                    if w.decides(at, start, start >= w.high) {
                        return Break(w.clipped(at, start));
                    }
                }
                while let Some(room) = inner.next_room(row, len, w.len) {
                    if room > row {
                        at = at.max(inner.end_of(room - 1));
                    }
                    let start = inner.start(room);
                    if w.decides(at, start, start >= w.high) {
                        return Break(w.clipped(at, start));
                    }
                    if inner.gap(room) >= w.len && depth < MAX_DEPTH {
                        self.lowest(inner.word(room), at, w, depth + 1)?;
                    }
                    at = at.max(inner.end_of(room));
                    row = room + 1;
                }
                at = at.max(if len > 0 { inner.end_of(len - 1) } else { 0 });
            }
        }
        Continue(at)
    }

    /// Searches downwards from `at`; all addresses above `at` have already been searched.
    fn highest(&self, child: NodePtr, mut at: u64, w: Window, depth: usize) -> Search {
        match self.node(child) {
            None => {}
            Some(NodeRef::Leaf(leaf)) => {
                for row in (0..leaf.starting_below(at)).rev() {
                    let end = leaf.end_of(row);
                    if w.decides(end, at, end <= w.low) {
                        return Break(w.clipped(end, at));
                    }
                    at = at.min(leaf.start(row));
                }
            }
            Some(NodeRef::Inner(inner)) => {
                let mut below = inner.starting_below(at).min(INNER);
                if let Some(last) = below.checked_sub(1) {
                    let end = inner.end_of(last);
                    if w.decides(end, at, end <= w.low) {
                        return Break(w.clipped(end, at));
                    }
                }
                while let Some(row) = inner.last_room(below, w.len) {
                    if row + 1 < below {
                        at = at.min(inner.start(row + 1));
                    }
                    if inner.gap(row) >= w.len && depth < MAX_DEPTH {
                        self.highest(inner.word(row), at, w, depth + 1)?;
                    }
                    at = at.min(inner.start(row));
                    if row > 0 {
                        let end = inner.end_of(row - 1);
                        if w.decides(end, at, end <= w.low) {
                            return Break(w.clipped(end, at));
                        }
                    }
                    below = row;
                }
                at = at.min(inner.start(0));
            }
        }
        Continue(at)
    }
}
