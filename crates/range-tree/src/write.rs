//! The writer: insert, remove, resize.
//!
//! A change to one range writes one leaf, and those ancestors whose bounds change as a result. All
//! these nodes are marked busy before the first word changes, so a reader sees either the whole
//! change or none of it. The writer splits full nodes on the way down and merges small nodes on the
//! way up ([`balance`](crate::balance)). Each of these steps changes the shape of the tree but not
//! its contents.

use crate::node::{Inner, LEAF, Leaf, Row, Span};
use crate::pool::{NodeRef, Pool};
use crate::read::entry;
use crate::{Entry, OutOfMemory, RangeTree};
use core::mem::MaybeUninit;
use vmarea_sync::SpinGuard;
use vmarea_sync::primitive::{Ordering, fence};

/// Maximum number of inner nodes on a path.
///
/// Any two neighbouring nodes together hold more than half as many rows as fit into one node, so a
/// tree of this height would not fit into memory.
const MAX_HEIGHT: usize = if cfg!(any(test, loom)) { 40 } else { 8 };

/// Path from the root to a leaf: inner nodes, and the row taken in each.
#[derive(Debug)]
pub(crate) struct Path<'t> {
    /// The first `len` steps are initialized.
    steps: [MaybeUninit<(&'t Inner, usize)>; MAX_HEIGHT],
    len: usize,
}

impl<'t> Path<'t> {
    fn new() -> Self {
        Path {
            steps: [const { MaybeUninit::uninit() }; MAX_HEIGHT],
            len: 0,
        }
    }

    fn push(&mut self, inner: &'t Inner, row: usize) {
        self.steps[self.len] = MaybeUninit::new((inner, row));
        self.len += 1;
    }

    /// Returns true if the root is a leaf.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes and returns the lowest step.
    pub fn pop(&mut self) -> Option<(&'t Inner, usize)> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: `push` has initialized the steps below the old length.
        Some(unsafe { self.steps[self.len].assume_init() })
    }

    /// Iterates from the leaf's parent to the root.
    fn upwards(&self) -> impl Iterator<Item = (&'t Inner, usize)> {
        let steps = self.steps[..self.len].iter().rev();
        // SAFETY: `push` has initialized the steps below the length.
        steps.map(|step| unsafe { step.assume_init() })
    }
}

/// Exclusive right to change the map.
///
/// Lookups and gap searches by the same thread see each change immediately.
#[derive(Debug)]
pub struct Writer<'a> {
    pub(crate) tree: &'a RangeTree,
    pub(crate) pool: SpinGuard<'a, Pool>,
}

impl<'a> Writer<'a> {
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
    pub fn insert(&mut self, e: Entry) {
        assert!(e.start < e.end, "empty range");
        self.pool
            .reserve(1)
            .expect("no memory for a node: call reserve first");
        let row = row_of(e);
        match self.make_room(e.start) {
            None => self.with_change(|w| w.insert_first(row)),
            Some((path, leaf)) => {
                let len = leaf.len();
                let at = leaf.first_ending_after(e.start).min(len);
                let fits = at == len || e.end <= leaf.start(at);
                assert!(fits, "range overlaps another range");
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
                self.with_change(|w| w.change_leaf(&path, (leaf, at), (start, end), apply));
            }
        }
        self.count(1);
    }

    /// Removes and returns the range that starts at `start`.
    pub fn remove(&mut self, start: u64) -> Option<Entry> {
        let (mut path, leaf, at) = self.locate(start)?;
        let gone = entry(leaf.row(at));
        let len = leaf.len();
        if len == 1 {
            self.with_change(|w| w.unlink_leaf(&mut path, leaf));
        } else {
            let first = leaf.start(usize::from(at == 0));
            let last = leaf.end_of(len - 1 - usize::from(at == len - 1));
            let before = leaf.gap_around(at, len);
            let apply = |leaf: &Leaf| {
                leaf.remove(at, 1, len);
                let joined = if at < len - 1 { leaf.gap_before(at) } else { 0 };
                (len - 1, before, joined)
            };
            self.with_change(|w| {
                w.change_leaf(&path, (leaf, at), (first, last), apply);
                if (len - 1) * 2 <= LEAF && !path.is_empty() {
                    w.rebalance(&mut path);
                }
            });
        }
        self.count(-1);
        Some(gone)
    }

    /// Changes the bounds of the range that starts at `old`.
    ///
    /// # Panics
    /// If no range starts at `old`, or if the new range is empty or overlaps a neighbour.
    pub fn resize(&mut self, old: u64, start: u64, end: u64) {
        assert!(start < end, "empty range");
        let (path, leaf, at) = self
            .locate(old)
            .expect("no range starts at the given address");
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
            at > 0 || left_end(&path).is_none_or(|left| left <= start),
            "range overlaps its left neighbour"
        );
        assert!(
            at + 1 < len || right_start(&path).is_none_or(|right| end <= right),
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
        self.with_change(|w| w.change_leaf(&path, (leaf, at), (first, last), apply));
    }

    /// Returns the path, leaf and row of the range that starts at `start`.
    pub(crate) fn locate(&self, start: u64) -> Option<(Path<'a>, &'a Leaf, usize)> {
        let mut path = Path::new();
        let mut node = self.tree.node(self.tree.root())?;
        loop {
            match node {
                NodeRef::Inner(inner) => {
                    let row = inner.first_ending_after(start);
                    if row >= inner.len() {
                        return None;
                    }
                    path.push(inner, row);
                    node = self.tree.node(inner.word(row))?;
                }
                NodeRef::Leaf(leaf) => {
                    let row = leaf.first_ending_after(start);
                    return (row < leaf.len() && leaf.start(row) == start)
                        .then_some((path, leaf, row));
                }
            }
        }
    }

    /// Descends to the leaf for a range that starts at `start`.
    fn descend(&self, start: u64) -> Option<(Path<'a>, &'a Leaf)> {
        let mut path = Path::new();
        let mut node = self.tree.node(self.tree.root())?;
        loop {
            match node {
                NodeRef::Leaf(leaf) => return Some((path, leaf)),
                NodeRef::Inner(inner) => {
                    let row = inner.first_ending_after(start).min(inner.len() - 1);
                    path.push(inner, row);
                    node = self.tree.node(inner.word(row))?;
                }
            }
        }
    }

    /// Descends to the leaf for a range that starts at `start`, and splits full nodes on the way.
    ///
    /// Returns `None` if the tree is empty.
    fn make_room(&mut self, start: u64) -> Option<(Path<'a>, &'a Leaf)> {
        let tree = self.tree;
        // A leaf with a free row needs no node, so the reservation remains.
        let (path, leaf) = self.descend(start)?;
        if leaf.len() < LEAF {
            return Some((path, leaf));
        }
        self.pool.use_reservation();
        let mut node = tree.node(tree.root())?;
        if node.is_full() {
            self.with_change(|w| w.add_root(node));
            node = tree.node(tree.root())?;
        }
        let mut path = Path::new();
        loop {
            let inner = match node {
                NodeRef::Leaf(leaf) => return Some((path, leaf)),
                NodeRef::Inner(inner) => inner,
            };
            let row = inner.first_ending_after(start).min(inner.len() - 1);
            let child = tree.node(inner.word(row))?;
            if child.is_full() {
                self.with_change(|w| w.make_room_in_child(inner, row, child, start));
            } else {
                path.push(inner, row);
                node = child;
            }
        }
    }

    /// Inserts the first range into an empty tree.
    fn insert_first(&mut self, row: Row<u64>) {
        self.pool.use_reservation();
        let child = self.pool.take_leaf();
        if let Some(NodeRef::Leaf(leaf)) = self.tree.node(child) {
            leaf.begin_write();
            leaf.set(0, row);
            leaf.end_write(1);
        }
        self.tree.set_root(child);
    }

    /// Applies a change to a leaf, whose new bounds are `bounds`, and updates the leaf's ancestors.
    ///
    /// The change leaves the rows below `from` alone. `apply` returns the new number of rows, the largest gap that the change removed or shrank,
    /// and the largest gap that it created.
    pub(crate) fn change_leaf(
        &self,
        path: &Path<'a>,
        (leaf, from): (&Leaf, usize),
        bounds: (u64, u64),
        apply: impl FnOnce(&Leaf) -> (usize, u64, u64),
    ) {
        make_busy(path, bounds);
        leaf.begin_write();
        let (len, lost, made) = apply(leaf);
        leaf.end_write_from(len, from);
        let Some((parent, row)) = path.upwards().next() else {
            return;
        };
        let gap = largest_gap(parent.gap(row), lost, made, || leaf.span(len).gap);
        propagate_span(
            path,
            Span {
                start: bounds.0,
                end: bounds.1,
                gap,
            },
        );
    }

    /// Runs a change, and forces concurrent searches that visit several nodes to retry.
    pub(crate) fn with_change(&mut self, change: impl FnOnce(&mut Self)) {
        let changes = &self.tree.changes;
        let before = changes.load(Ordering::Relaxed);
        changes.store(before + 1, Ordering::Relaxed);
        // ORDERING: Release fence, pairs with the Acquire fence in `try_on_stable_tree`.
        fence(Ordering::Release);
        change(self);
        // ORDERING: Release, pairs with the Acquire in `try_on_stable_tree`.
        changes.store(before + 2, Ordering::Release);
    }

    pub(crate) fn count(&mut self, more: isize) {
        // ORDERING: Relaxed; the count publishes no other data, and only the writer changes it.
        let now = self.tree.ranges.load(Ordering::Relaxed);
        let then = now.wrapping_add_signed(more);
        self.tree.ranges.store(then, Ordering::Relaxed);
    }
}

/// Returns the row of a leaf for a range.
pub(crate) fn row_of(e: Entry) -> Row<u64> {
    let span = Span {
        start: e.start,
        end: e.end,
        gap: 0,
    };
    Row {
        span,
        word: e.value,
    }
}

/// Returns the largest gap after a change.
///
/// `was` is the largest gap before the change, `lost` the largest gap that was removed, and `made`
/// the largest gap that was added. `count` determines the largest gap from the rows.
pub(crate) fn largest_gap(was: u64, lost: u64, made: u64, count: impl FnOnce() -> u64) -> u64 {
    if made >= was {
        made
    } else if lost < was {
        was
    } else {
        count()
    }
}

/// Marks each node on the path as busy if the bounds of one of its rows are about to change.
pub(crate) fn make_busy(path: &Path<'_>, mut bounds: (u64, u64)) {
    for (inner, row) in path.upwards() {
        if (inner.start(row), inner.end_of(row)) == bounds {
            return;
        }
        inner.begin_write();
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

/// Writes a child's new span into its ancestors, up to the first ancestor that does not change.
pub(crate) fn propagate_span(path: &Path<'_>, mut span: Span) {
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
            inner.end_write_row(len, row);
        } else {
            inner.set_gap(row, span.gap);
            inner.set_room(row);
        }
        let Some(&(parent, place)) = steps.peek() else {
            return;
        };
        let gap = largest_gap(parent.gap(place), lost, inner.gap_around(row, len), || {
            inner.span(len).gap
        });
        span = Span {
            start: inner.start(0),
            end: inner.end_of(len - 1),
            gap,
        };
    }
}

/// Returns the end of the range to the left of the path's leaf.
pub(crate) fn left_end(path: &Path<'_>) -> Option<u64> {
    path.upwards()
        .find_map(|(inner, row)| Some(inner.end_of(row.checked_sub(1)?)))
}

/// Returns the start of the range to the right of the path's leaf.
pub(crate) fn right_start(path: &Path<'_>) -> Option<u64> {
    path.upwards()
        .find_map(|(inner, row)| (row + 1 < inner.len()).then(|| inner.start(row + 1)))
}
