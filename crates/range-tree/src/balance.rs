//! Operations on the tree's shape: split, redistribute, merge, and adding or removing a root.
//!
//! The operations in this module do not change the contents of the map. Before an operation moves
//! rows between nodes, it marks these nodes and their parent as busy, so a reader sees the state
//! either before or after the operation.
//!
//! # Picture
//! ```text
//! split            parent [ … a … ]            parent [ … a  b … ]
//!                           │            →               │  │
//!                        [a full]                     [a ] [b ]
//! redistribute     [a full] [b with room]  →  [a with room] [b ]
//! merge            the reverse of split
//! ```

use crate::node::{INNER, Inner, LEAF, Leaf, Node, NodePtr, Row, SPARE, Span, Word};
use crate::pool::NodeRef;
use crate::write::{Path, Writer, make_busy, propagate_span};

/// Minimum number of free rows in a neighbour to which a full leaf may move rows.
///
/// The minimum is at least two, so that both leaves have free rows afterwards and no row moves back
/// immediately.
const MIN_FREE: usize = LEAF / 16 + 2;
/// Returns the maximum total number of rows at which two neighbouring nodes are merged.
const fn mergeable(capacity: usize) -> usize {
    capacity - capacity.div_ceil(4)
}

impl<'a> Writer<'a> {
    /// Adds a new root above a full root.
    pub(crate) fn add_root(&mut self, root: NodeRef<'a>) {
        let span = match root {
            NodeRef::Leaf(leaf) => leaf.span(LEAF),
            NodeRef::Inner(inner) => inner.span(INNER),
        };
        let child = self.pool.take_inner();
        if let Some(NodeRef::Inner(inner)) = self.tree.node(child) {
            inner.begin_write();
            inner.set(
                0,
                Row {
                    span,
                    word: self.tree.root(),
                },
            );
            inner.end_write(1);
        }
        self.tree.set_root(child);
        self.pool.height += 1;
    }

    /// Makes room for a range at `start` in the full child at `row` of `parent`. The parent must
    /// have a free row.
    pub(crate) fn make_room_in_child(
        &mut self,
        parent: &Inner,
        row: usize,
        child: NodeRef<'a>,
        start: u64,
    ) {
        match child {
            NodeRef::Leaf(leaf) => {
                if self.redistribute_left(parent, row, leaf)
                    || self.redistribute_right(parent, row, leaf)
                {
                    return;
                }
                // Inserting ranges in ascending or descending order then leaves full leaves behind.
                let keep = match leaf.first_ending_after(start).min(LEAF) {
                    0 => 1,
                    LEAF => LEAF - 1,
                    _ => LEAF.div_ceil(2),
                };
                let fresh = self.pool.take_leaf();
                if let Some(NodeRef::Leaf(right)) = self.tree.node(fresh) {
                    split(parent, row, leaf, keep, right, fresh);
                }
            }
            NodeRef::Inner(inner) => {
                let keep = match inner.first_ending_after(start) {
                    0 => SPARE,
                    at if at >= INNER - 1 => INNER - SPARE,
                    _ => INNER.div_ceil(2),
                };
                let fresh = self.pool.take_inner();
                if let Some(NodeRef::Inner(right)) = self.tree.node(fresh) {
                    split(parent, row, inner, keep, right, fresh);
                }
            }
        }
    }

    /// Moves rows of a full leaf to its left neighbour; returns false if that neighbour is too
    /// full.
    fn redistribute_left(&self, parent: &Inner, row: usize, leaf: &Leaf) -> bool {
        let Some(place) = row.checked_sub(1) else {
            return false;
        };
        let Some(NodeRef::Leaf(left)) = self.tree.node(parent.word(place)) else {
            return false;
        };
        let have = left.len();
        if LEAF - have < MIN_FREE {
            return false;
        }
        let moved = (LEAF - have) / 2;
        begin_write([parent]);
        begin_write([left, leaf]);
        left.copy(have, leaf, 0, moved);
        leaf.remove(0, moved, LEAF);
        self.end_redistribute(parent, place, (left, have + moved), (leaf, LEAF - moved));
        true
    }

    /// Moves rows of a full leaf to its right neighbour; returns false if that neighbour is too
    /// full.
    fn redistribute_right(&self, parent: &Inner, row: usize, leaf: &Leaf) -> bool {
        if row + 1 >= parent.len() {
            return false;
        }
        let Some(NodeRef::Leaf(right)) = self.tree.node(parent.word(row + 1)) else {
            return false;
        };
        let have = right.len();
        if LEAF - have < MIN_FREE {
            return false;
        }
        let moved = (LEAF - have) / 2;
        begin_write([parent]);
        begin_write([leaf, right]);
        for i in (0..have).rev() {
            right.set(i + moved, right.row(i));
        }
        right.copy(0, leaf, LEAF - moved, moved);
        leaf.remove(LEAF - moved, moved, LEAF);
        self.end_redistribute(parent, row, (leaf, LEAF - moved), (right, have + moved));
        true
    }

    fn end_redistribute(
        &self,
        parent: &Inner,
        place: usize,
        left: (&Leaf, usize),
        right: (&Leaf, usize),
    ) {
        parent.set_span(place, left.0.span(left.1));
        parent.set_span(place + 1, right.0.span(right.1));
        left.0.end_write(left.1);
        right.0.end_write(right.1);
        parent.end_write(parent.len());
    }

    /// Removes a leaf and its only remaining range, and every ancestor that becomes empty.
    pub(crate) fn unlink_leaf(&mut self, path: &mut Path<'a>, leaf: &'a Leaf) {
        leaf.begin_write();
        let mut emptied = NodeRef::Leaf(leaf);
        while let Some((inner, row)) = path.pop() {
            let len = inner.len();
            let gone = inner.word(row);
            if len == 1 {
                inner.begin_write();
                self.retire_empty(emptied, gone);
                emptied = NodeRef::Inner(inner);
                continue;
            }
            let start = inner.start(usize::from(row == 0));
            let end = inner.end_of(len - 1 - usize::from(row == len - 1));
            make_busy(path, (start, end));
            inner.begin_write();
            inner.remove(row, 1, len);
            inner.end_write(len - 1);
            self.retire_empty(emptied, gone);
            propagate_span(
                path,
                Span {
                    gap: inner.span(len - 1).gap,
                    start,
                    end,
                },
            );
            if (len - 1) * 2 <= INNER {
                self.rebalance(path);
            }
            return;
        }
        let root = self.tree.root();
        self.tree.set_root(NodePtr::NULL);
        self.retire_empty(emptied, root);
        self.pool.height = 0;
    }

    fn retire_empty(&mut self, node: NodeRef<'a>, child: NodePtr) {
        match node {
            NodeRef::Leaf(leaf) => leaf.end_write(0),
            NodeRef::Inner(inner) => inner.end_write(0),
        }
        self.pool.retire(child);
    }

    /// Merges small nodes, from the bottom of the path upwards, and removes a root with one child.
    ///
    /// Two neighbours are merged if one node can hold the rows of both and has free rows
    /// afterwards.
    pub(crate) fn rebalance(&mut self, path: &mut Path<'a>) {
        while let Some((parent, row)) = path.pop() {
            let merged = self.merge(parent, row)
                || row
                    .checked_sub(1)
                    .is_some_and(|row| self.merge(parent, row));
            if !merged || parent.len() * 2 > INNER {
                break;
            }
        }
        while let Some(NodeRef::Inner(root)) = self.tree.node(self.tree.root())
            && root.len() == 1
        {
            let old = self.tree.root();
            self.tree.set_root(root.word(0));
            root.begin_write();
            self.retire_empty(NodeRef::Inner(root), old);
            self.pool.height -= 1;
        }
    }

    /// Merges the child at `row` with its right neighbour if both exist and are small enough.
    fn merge(&mut self, parent: &'a Inner, row: usize) -> bool {
        if row + 1 >= parent.len() {
            return false;
        }
        let gone = parent.word(row + 1);
        let merged = match (self.tree.node(parent.word(row)), self.tree.node(gone)) {
            (Some(NodeRef::Leaf(left)), Some(NodeRef::Leaf(right))) => {
                merge(parent, row, left, right)
            }
            (Some(NodeRef::Inner(left)), Some(NodeRef::Inner(right))) => {
                merge(parent, row, left, right)
            }
            _ => false,
        };
        if merged {
            self.pool.retire(gone);
        }
        merged
    }
}

impl NodeRef<'_> {
    pub(crate) fn is_full(self) -> bool {
        match self {
            NodeRef::Leaf(leaf) => leaf.len() == LEAF,
            NodeRef::Inner(inner) => inner.len() == INNER,
        }
    }
}

fn begin_write<W: Word, const N: usize, const G: usize, const K: usize>(
    nodes: [&Node<W, N, G>; K],
) {
    for node in nodes {
        node.begin_write();
    }
}

/// Splits a full node: `left` keeps `keep` rows, and `right` gets the others. `right` becomes the
/// row after `left` in the parent.
fn split<W: Word, const N: usize, const G: usize>(
    parent: &Inner,
    row: usize,
    left: &Node<W, N, G>,
    keep: usize,
    right: &Node<W, N, G>,
    name: NodePtr,
) {
    let rows = parent.len();
    begin_write([parent]);
    begin_write([left, right]);
    right.copy(0, left, keep, N - keep);
    left.remove(keep, N - keep, N);
    parent.insert(
        row + 1,
        rows,
        Row {
            span: right.span(N - keep),
            word: name,
        },
    );
    parent.set_span(row, left.span(keep));
    left.end_write(keep);
    right.end_write(N - keep);
    parent.end_write(rows + 1);
}

fn merge<W: Word, const N: usize, const G: usize>(
    parent: &Inner,
    row: usize,
    left: &Node<W, N, G>,
    right: &Node<W, N, G>,
) -> bool {
    let (rows, have, more) = (parent.len(), left.len(), right.len());
    if have + more > mergeable(N) {
        return false;
    }
    begin_write([parent]);
    begin_write([left, right]);
    left.copy(have, right, 0, more);
    right.remove(0, more, more);
    parent.remove(row + 1, 1, rows);
    parent.set_span(row, left.span(have + more));
    left.end_write(have + more);
    right.end_write(0);
    parent.end_write(rows - 1);
    true
}
