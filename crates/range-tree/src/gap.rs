//! Gap search: the lowest or highest room of a given size in a window.
//!
//! A row of an inner node knows the largest gap inside of its child, so a search enters a child
//! only where there is room, or where the window cuts the child: at most two children of a level
//! are entered in vain. It looks at several nodes, so instead of each node's version it checks that
//! the tree did not change meanwhile; after a few vain attempts it keeps writers out.

use crate::node::{Child, INNER};
use crate::pool::Opened;
use crate::{Contended, RangeTree};
use core::ops::ControlFlow::{self, Break, Continue};
use vmarea_sync::primitive::{Ordering, fence, spin_loop};

type Gap = (u64, u64);
/// The answer, or how far the search has come.
type Search = ControlFlow<Option<Gap>, u64>;

const ATTEMPTS: usize = 8;
/// Deeper than any tree; a reader that sees parts of several states might go in circles.
const DEEP: usize = 64;

#[derive(Clone, Copy)]
struct Window {
    low: u64,
    high: u64,
    len: u64,
}

impl Window {
    /// The gap's part in the window, if it is large enough.
    fn clipped(&self, start: u64, end: u64) -> Option<Gap> {
        let (start, end) = (start.max(self.low), end.min(self.high));
        (end > start && end - start >= self.len).then_some((start, end))
    }

    /// Whether the search ends at this gap: it is large enough even if the window cuts it, or it
    /// reaches the window's other side. One jump for both, and rarely taken.
    #[inline]
    fn decides(&self, start: u64, end: u64, outside: bool) -> bool {
        (end.saturating_sub(start) >= self.len) | outside
    }
}

impl RangeTree {
    /// The lowest gap of at least `len` within `[low, high)`, as `(start, end)` clipped to it.
    pub fn gap_lowest(&self, low: u64, high: u64, len: u64) -> Option<(u64, u64)> {
        let window = Window {
            low,
            high,
            len: len.max(1),
        };
        self.settled(|| match self.lowest(self.root(), low, window, 0) {
            Break(answer) => answer,
            Continue(at) => window.clipped(at, high),
        })
    }

    /// The highest gap of at least `len` within `[low, high)`, as `(start, end)` clipped to it.
    pub fn gap_highest(&self, low: u64, high: u64, len: u64) -> Option<(u64, u64)> {
        let window = Window {
            low,
            high,
            len: len.max(1),
        };
        self.settled(|| match self.highest(self.root(), high, window, 0) {
            Break(answer) => answer,
            Continue(at) => window.clipped(low, at),
        })
    }

    /// Runs a search over one state of the tree.
    fn settled<T>(&self, search: impl Fn() -> T) -> T {
        for _ in 0..ATTEMPTS {
            if let Ok(answer) = self.try_settled(&search) {
                return answer;
            }
            spin_loop();
        }
        let _no_writer = self.writer.lock();
        search()
    }

    fn try_settled<T>(&self, search: impl Fn() -> T) -> Result<T, Contended> {
        // ORDERING: Acquire, pairs with the Release in `Writer`'s end of a change.
        let before = self.changes.load(Ordering::Acquire);
        if before % 2 == 1 {
            return Err(Contended);
        }
        let answer = search();
        // ORDERING: Acquire fence, pairs with the Release fence in `Writer`'s begin of a change.
        fence(Ordering::Acquire);
        if self.changes.load(Ordering::Relaxed) == before {
            Ok(answer)
        } else {
            Err(Contended)
        }
    }

    /// Everything below `at` is done.
    fn lowest(&self, child: Child, mut at: u64, w: Window, depth: usize) -> Search {
        match self.open(child) {
            None => {}
            Some(Opened::Leaf(leaf)) => {
                for row in leaf.first_ending_after(at)..leaf.len() {
                    let start = leaf.start(row);
                    if w.decides(at, start, start >= w.high) {
                        return Break(w.clipped(at, start));
                    }
                    at = at.max(leaf.end_of(row));
                }
            }
            Some(Opened::Inner(inner)) => {
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
                    if inner.gap(room) >= w.len && depth < DEEP {
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

    /// Everything from `at` up is done.
    fn highest(&self, child: Child, mut at: u64, w: Window, depth: usize) -> Search {
        match self.open(child) {
            None => {}
            Some(Opened::Leaf(leaf)) => {
                for row in (0..leaf.starting_below(at)).rev() {
                    let end = leaf.end_of(row);
                    if w.decides(end, at, end <= w.low) {
                        return Break(w.clipped(end, at));
                    }
                    at = at.min(leaf.start(row));
                }
            }
            Some(Opened::Inner(inner)) => {
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
                    if inner.gap(row) >= w.len && depth < DEEP {
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
