//! The writer: insert, remove, resize.
//!
//! A change of one range touches one leaf, and those nodes above it whose bounds follow. They are
//! all made busy before the first word changes, so that a reader sees the change whole or not at
//! all. Room is made on the way down and tidied on the way up ([`balance`](crate::balance)), by
//! steps that change the shape and not the content.

use crate::node::{Inner, LEAF, Leaf, Row, Span};
use crate::pool::{Opened, Pool};
use crate::read::entry;
use crate::{Entry, OutOfMemory, RangeTree};
use vmarea_sync::SpinGuard;
use vmarea_sync::primitive::{Ordering, fence};

/// Levels of inner nodes that a path can have. Two neighbours hold more than half a node's rows
/// between them, so a tree of this height would not fit into memory.
const HEIGHT: usize = if cfg!(any(test, loom)) { 40 } else { 8 };

/// The way from the root to a leaf: inner nodes, and the row taken in each.
#[derive(Debug)]
pub(crate) struct Path<'t> {
    steps: [Option<(&'t Inner, usize)>; HEIGHT],
    len: usize,
}

impl<'t> Path<'t> {
    fn new() -> Self {
        Path {
            steps: [None; HEIGHT],
            len: 0,
        }
    }

    fn push(&mut self, inner: &'t Inner, row: usize) {
        self.steps[self.len] = Some((inner, row));
        self.len += 1;
    }

    /// Takes the lowest step off.
    pub fn pop(&mut self) -> Option<(&'t Inner, usize)> {
        self.len = self.len.checked_sub(1)?;
        self.steps[self.len]
    }

    /// From the leaf's parent up.
    fn upwards(&self) -> impl Iterator<Item = (&'t Inner, usize)> {
        self.steps[..self.len].iter().rev().copied().flatten()
    }
}

/// The right to change the map.
///
/// Lookups and gap searches of the same thread see each change as soon as it is made.
#[derive(Debug)]
pub struct Writer<'a> {
    pub(crate) tree: &'a RangeTree,
    pub(crate) pool: SpinGuard<'a, Pool>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(tree: &'a RangeTree, pool: SpinGuard<'a, Pool>) -> Self {
        Writer { tree, pool }
    }

    /// Makes room so that the next `changes` calls of [`insert`](Self::insert) cannot fail. What is
    /// reserved stays with the map when the writer goes.
    ///
    /// # Errors
    /// If the allocator has no memory; the map is as before.
    #[inline]
    pub fn reserve(&mut self, changes: usize) -> Result<(), OutOfMemory> {
        self.pool.reserve(changes)
    }

    /// Adds a range that overlaps no other.
    ///
    /// # Panics
    /// If the range is empty or overlaps one in the map, or if nothing was reserved and there is no
    /// memory.
    pub fn insert(&mut self, e: Entry) {
        assert!(e.start < e.end, "empty range");
        self.pool
            .begin_insert()
            .expect("memory for a node; call reserve first");
        let span = Span {
            start: e.start,
            end: e.end,
            gap: 0,
        };
        let row = Row {
            span,
            word: e.value,
        };
        match self.make_room(e.start) {
            None => self.changing(|w| w.first(row)),
            Some((path, leaf)) => {
                let len = leaf.len();
                let at = leaf.first_ending_after(e.start).min(len);
                let fits = at == len || e.end <= leaf.start(at);
                assert!(fits, "range overlaps another");
                let start = if at == 0 { e.start } else { leaf.start(0) };
                let end = if at == len {
                    e.end
                } else {
                    leaf.end_of(len - 1)
                };
                let cut = if at < len { leaf.gap_before(at) } else { 0 };
                let apply = |leaf: &Leaf| {
                    leaf.insert(at, len, row);
                    (len + 1, cut, leaf.gap_around(at, len + 1))
                };
                self.changing(|w| w.change(&path, leaf, (start, end), apply));
            }
        }
        self.count(1);
    }

    /// Takes the range that starts at `start` away.
    pub fn remove(&mut self, start: u64) -> Option<Entry> {
        let (mut path, leaf, at) = self.locate(start)?;
        let gone = entry(leaf.row(at));
        let len = leaf.len();
        if len == 1 {
            self.changing(|w| w.unlink_leaf(&mut path, leaf));
        } else {
            let first = leaf.start(usize::from(at == 0));
            let last = leaf.end_of(len - 1 - usize::from(at == len - 1));
            let before = leaf.gap_around(at, len);
            let apply = |leaf: &Leaf| {
                leaf.remove(at, 1, len);
                let joined = if at < len - 1 { leaf.gap_before(at) } else { 0 };
                (len - 1, before, joined)
            };
            self.changing(|w| {
                w.change(&path, leaf, (first, last), apply);
                if (len - 1) * 2 <= LEAF {
                    w.tidy(&mut path);
                }
            });
        }
        self.count(-1);
        Some(gone)
    }

    /// Gives the range that starts at `old` other bounds; no other range may lie between.
    ///
    /// # Panics
    /// If no range starts at `old`, if the new one is empty, or if it would overlap a neighbour.
    pub fn resize(&mut self, old: u64, start: u64, end: u64) {
        assert!(start < end, "empty range");
        let (path, leaf, at) = self.locate(old).expect("a range starts there");
        let (len, word) = (leaf.len(), leaf.word(at));
        assert!(
            at == 0 || leaf.end_of(at - 1) <= start,
            "range overlaps its left neighbour"
        );
        assert!(
            at + 1 == len || end <= leaf.start(at + 1),
            "range overlaps its right neighbour"
        );
        assert!(
            at > 0 || before(&path).is_none_or(|left| left <= start),
            "range overlaps its left neighbour"
        );
        assert!(
            at + 1 < len || after(&path).is_none_or(|right| end <= right),
            "range overlaps its right neighbour"
        );
        let first = if at == 0 { start } else { leaf.start(0) };
        let last = if at + 1 == len {
            end
        } else {
            leaf.end_of(len - 1)
        };
        let was = leaf.gap_around(at, len);
        let span = Span { start, end, gap: 0 };
        let apply = |leaf: &Leaf| {
            leaf.set(at, Row { span, word });
            (len, was, leaf.gap_around(at, len))
        };
        self.changing(|w| w.change(&path, leaf, (first, last), apply));
    }

    /// The leaf and row of the range that starts at `start`.
    fn locate(&self, start: u64) -> Option<(Path<'a>, &'a Leaf, usize)> {
        let mut path = Path::new();
        let mut node = self.tree.open(self.tree.root())?;
        loop {
            match node {
                Opened::Inner(inner) => {
                    let row = inner.first_ending_after(start);
                    if row >= inner.len() {
                        return None;
                    }
                    path.push(inner, row);
                    node = self.tree.open(inner.word(row))?;
                }
                Opened::Leaf(leaf) => {
                    let row = leaf.first_ending_after(start);
                    return (row < leaf.len() && leaf.start(row) == start)
                        .then_some((path, leaf, row));
                }
            }
        }
    }

    /// Goes down to the leaf where a range that starts at `start` belongs, and splits what is full
    /// on the way. `None` if the tree is empty.
    fn make_room(&mut self, start: u64) -> Option<(Path<'a>, &'a Leaf)> {
        let tree = self.tree;
        let mut node = tree.open(tree.root())?;
        if node.is_full() {
            self.changing(|w| w.grow(node));
            node = tree.open(tree.root())?;
        }
        let mut path = Path::new();
        loop {
            let inner = match node {
                Opened::Leaf(leaf) => return Some((path, leaf)),
                Opened::Inner(inner) => inner,
            };
            let row = inner.first_ending_after(start).min(inner.len() - 1);
            let child = tree.open(inner.word(row))?;
            if child.is_full() {
                self.changing(|w| w.relieve(inner, row, child, start));
            } else {
                path.push(inner, row);
                node = child;
            }
        }
    }

    /// The first range of an empty tree.
    fn first(&mut self, row: Row<u64>) {
        let child = self.pool.take_leaf();
        if let Some(Opened::Leaf(leaf)) = self.tree.open(child) {
            leaf.begin();
            leaf.set(0, row);
            leaf.end(1);
        }
        self.tree.set_root(child);
    }

    /// Changes a leaf, whose bounds become `bounds`, and what its ancestors say of it.
    ///
    /// `apply` says how many rows there are then, and the largest gap that the change took away or
    /// made smaller, and that it made.
    fn change(
        &self,
        path: &Path<'a>,
        leaf: &Leaf,
        bounds: (u64, u64),
        apply: impl FnOnce(&Leaf) -> (usize, u64, u64),
    ) {
        make_busy(path, bounds);
        leaf.begin();
        let (len, lost, made) = apply(leaf);
        leaf.end(len);
        let Some((parent, row)) = path.upwards().next() else {
            return;
        };
        let gap = largest(parent.gap(row), lost, made, || leaf.span(len).gap);
        raise(
            path,
            Span {
                start: bounds.0,
                end: bounds.1,
                gap,
            },
        );
    }

    /// Makes readers of several nodes wait, or come again.
    fn changing(&mut self, change: impl FnOnce(&mut Self)) {
        let changes = &self.tree.changes;
        let before = changes.load(Ordering::Relaxed);
        changes.store(before + 1, Ordering::Relaxed);
        // ORDERING: Release fence, pairs with the Acquire fence in `try_settled`.
        fence(Ordering::Release);
        change(self);
        // ORDERING: Release, pairs with the Acquire in `try_settled`.
        changes.store(before + 2, Ordering::Release);
    }

    fn count(&mut self, more: isize) {
        // ORDERING: Relaxed; a number without anything behind it, changed by the writer alone.
        let now = self.tree.ranges.load(Ordering::Relaxed);
        let then = now.wrapping_add_signed(more);
        self.tree.ranges.store(then, Ordering::Relaxed);
    }
}

/// The largest gap after a change: `lost` was a part of the largest, `made` is there now.
pub(crate) fn largest(was: u64, lost: u64, made: u64, count: impl FnOnce() -> u64) -> u64 {
    if made >= was {
        made
    } else if lost < was {
        was
    } else {
        count()
    }
}

/// Makes those nodes of the path busy whose rows will have other bounds.
pub(crate) fn make_busy(path: &Path<'_>, mut bounds: (u64, u64)) {
    for (inner, row) in path.upwards() {
        if (inner.start(row), inner.end_of(row)) == bounds {
            return;
        }
        inner.begin();
        let last = inner.len() - 1;
        bounds = (
            if row == 0 { bounds.0 } else { inner.start(0) },
            if row == last {
                bounds.1
            } else {
                inner.end_of(last)
            },
        );
    }
}

/// Writes a child's new span into its ancestors, as far as it changes them.
pub(crate) fn raise(path: &Path<'_>, mut span: Span) {
    let mut steps = path.upwards().peekable();
    while let Some((inner, row)) = steps.next() {
        let len = inner.len();
        let was = inner.row(row).span;
        if was == span {
            return;
        }
        let lost = inner.gap_around(row, len);
        if inner.is_busy() {
            inner.set_span(row, span);
            inner.end(len);
        } else {
            inner.set_gap(row, span.gap);
            inner.set_room(row);
        }
        let Some(&(parent, place)) = steps.peek() else {
            return;
        };
        let gap = largest(parent.gap(place), lost, inner.gap_around(row, len), || {
            inner.span(len).gap
        });
        span = Span {
            start: inner.start(0),
            end: inner.end_of(len - 1),
            gap,
        };
    }
}

/// The end of the range to the left of the path's leaf.
fn before(path: &Path<'_>) -> Option<u64> {
    path.upwards()
        .find_map(|(inner, row)| Some(inner.end_of(row.checked_sub(1)?)))
}

/// The start of the range to the right of the path's leaf.
fn after(path: &Path<'_>) -> Option<u64> {
    path.upwards()
        .find_map(|(inner, row)| (row + 1 < inner.len()).then(|| inner.start(row + 1)))
}
