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

use crate::leaf::{LEAF, Leaf, MERGEABLE};
use crate::node::{INNER, Inner, NodePtr, Row, SPARE, Versioned};
use crate::path::Path;
use crate::pool::NodeRef;
use crate::write::Writer;

/// Minimum number of free slots in a neighbour to which a full leaf may move ranges.
///
/// The minimum is at least two, so that both leaves have free slots afterwards and no range moves
/// back immediately.
const MIN_FREE: usize = LEAF / 4 + 2;

impl<'a> Writer<'a> {
    /// Adds a new root above a full root.
    pub(crate) fn add_root(&mut self, root: NodeRef<'a>) {
        let row = Row {
            end: root.last_end(),
            child: self.tree.root(),
            room: root.largest_gap(0),
        };
        let child = self.pool.take_inner();
        if let Some(NodeRef::Inner(inner)) = self.tree.node(child) {
            inner.begin_write();
            inner.push(row);
            inner.end_write();
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
                let keep = match leaf.first_ending_after(start) {
                    0 => 1,
                    LEAF => LEAF - 1,
                    _ => LEAF.div_ceil(2),
                };
                let name = self.pool.take_leaf();
                if let Some(NodeRef::Leaf(right)) = self.tree.node(name) {
                    split_leaf((parent, row), leaf, keep, (right, name));
                }
            }
            NodeRef::Inner(inner) => {
                let keep = match inner.first_ending_after(start) {
                    0 => SPARE,
                    at if at >= INNER - 1 => INNER - SPARE,
                    _ => INNER.div_ceil(2),
                };
                let name = self.pool.take_inner();
                if let Some(NodeRef::Inner(right)) = self.tree.node(name) {
                    split_inner((parent, row), inner, keep, (right, name));
                }
            }
        }
    }

    /// Moves ranges of a full leaf to its left neighbour; returns false if that neighbour is too
    /// full.
    fn redistribute_left(&self, parent: &Inner, row: usize, leaf: &Leaf) -> bool {
        let Some(place) = row.checked_sub(1) else {
            return false;
        };
        let Some(NodeRef::Leaf(left)) = self.tree.node(parent.child(place)) else {
            return false;
        };
        let have = left.order().len();
        if LEAF - have < MIN_FREE {
            return false;
        }
        begin_write([parent]);
        begin_write([left, leaf]);
        for _ in have..have.midpoint(LEAF) {
            let order = leaf.order();
            left.push(leaf.entry(order, 0));
            leaf.remove(order, 0);
        }
        let moved = left.largest_gap(have..left.order().len(), 0);
        parent.set_room(place, parent.room(place).max(moved));
        parent.set_end(place, left.last_end());
        end_write([left, leaf]);
        end_write([parent]);
        true
    }

    /// Moves ranges of a full leaf to its right neighbour; returns false if that neighbour is too
    /// full.
    fn redistribute_right(&self, parent: &Inner, row: usize, leaf: &Leaf) -> bool {
        let Some(NodeRef::Leaf(right)) = self.tree.node(parent.child(row + 1)) else {
            return false;
        };
        let have = right.order().len();
        if LEAF - have < MIN_FREE {
            return false;
        }
        begin_write([parent]);
        begin_write([leaf, right]);
        for _ in have..have.midpoint(LEAF) {
            let order = leaf.order();
            let last = order.len() - 1;
            right.insert(right.order(), 0, leaf.entry(order, last));
            leaf.remove(order, last);
        }
        let end = leaf.last_end();
        let moved = right.largest_gap(0..right.order().len() - have, end);
        parent.set_room(row + 1, parent.room(row + 1).max(moved));
        parent.set_end(row, end);
        end_write([leaf, right]);
        end_write([parent]);
        true
    }

    /// Removes a leaf and its only remaining range, and every ancestor that becomes empty.
    pub(crate) fn unlink_leaf(&mut self, mut path: Path<'_, 'a>, leaf: &'a Leaf) {
        leaf.begin_write();
        leaf.remove(leaf.order(), 0);
        let mut emptied = NodeRef::Leaf(leaf);
        while let Some((inner, row)) = path.pop() {
            let len = inner.len();
            let gone = inner.child(row);
            if len == 1 {
                inner.begin_write();
                inner.remove(0);
                self.retire_empty(emptied, gone);
                emptied = NodeRef::Inner(inner);
                continue;
            }
            let last = row == len - 1;
            if last {
                path.begin_write();
            }
            inner.begin_write();
            inner.remove(row);
            inner.end_write();
            self.retire_empty(emptied, gone);
            if last {
                path.end_write(inner.end_of(len - 2));
            }
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
            NodeRef::Leaf(leaf) => leaf.end_write(),
            NodeRef::Inner(inner) => inner.end_write(),
        }
        self.pool.retire(child);
    }

    /// Merges small nodes, from the bottom of the path upwards, and removes a root with one child.
    ///
    /// Two neighbours are merged if one node can hold the rows of both and has free rows
    /// afterwards.
    pub(crate) fn rebalance(&mut self, mut path: Path<'_, 'a>) {
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
            self.tree.set_root(root.child(0));
            root.begin_write();
            root.remove(0);
            self.retire_empty(NodeRef::Inner(root), old);
            self.pool.height -= 1;
        }
    }

    /// Merges the child at `row` with its right neighbour if both exist and are small enough.
    fn merge(&mut self, parent: &'a Inner, row: usize) -> bool {
        let gone = parent.child(row + 1);
        let merged = match (self.tree.node(parent.child(row)), self.tree.node(gone)) {
            (Some(NodeRef::Leaf(left)), Some(NodeRef::Leaf(right))) => {
                merge_leaves(parent, row, left, right)
            }
            (Some(NodeRef::Inner(left)), Some(NodeRef::Inner(right))) => {
                merge_inners(parent, row, left, right)
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
            NodeRef::Leaf(leaf) => leaf.order().len() == LEAF,
            NodeRef::Inner(inner) => inner.len() == INNER,
        }
    }
}

fn begin_write<T: Versioned, const K: usize>(nodes: [&T; K]) {
    nodes.into_iter().for_each(T::begin_write);
}

fn end_write<T: Versioned, const K: usize>(nodes: [&T; K]) {
    nodes.into_iter().for_each(T::end_write);
}

/// Splits a full leaf: `left` keeps `keep` ranges, and `right` gets the others. `right` becomes the
/// row after `left` in the parent.
fn split_leaf(
    (parent, row): (&Inner, usize),
    left: &Leaf,
    keep: usize,
    (right, child): (&Leaf, NodePtr),
) {
    begin_write([parent]);
    begin_write([left, right]);
    right.take(left, keep);
    let end = left.last_end();
    let room = right.largest_gap(0..LEAF - keep, end);
    let upper = Row {
        end: parent.end_of(row),
        child,
        room,
    };
    parent.insert(row + 1, upper);
    parent.set_end(row, end);
    end_write([left, right]);
    end_write([parent]);
}

/// Like [`split_leaf`], for an inner node.
fn split_inner(
    (parent, row): (&Inner, usize),
    left: &Inner,
    keep: usize,
    (right, child): (&Inner, NodePtr),
) {
    begin_write([parent, left, right]);
    right.take(left, keep);
    let upper = Row {
        end: parent.end_of(row),
        child,
        room: right.largest_room(),
    };
    parent.insert(row + 1, upper);
    parent.set_end(row, left.end_of(keep - 1));
    parent.set_room(row, left.largest_room());
    end_write([left, right, parent]);
}

fn merge_leaves(parent: &Inner, row: usize, left: &Leaf, right: &Leaf) -> bool {
    if left.order().len() + right.order().len() > MERGEABLE {
        return false;
    }
    begin_write([parent]);
    begin_write([left, right]);
    left.take(right, 0);
    remove_merged(parent, row);
    end_write([left, right]);
    end_write([parent]);
    true
}

fn merge_inners(parent: &Inner, row: usize, left: &Inner, right: &Inner) -> bool {
    if left.len() + right.len() > INNER - INNER.div_ceil(4) {
        return false;
    }
    begin_write([parent, left, right]);
    left.take(right, 0);
    remove_merged(parent, row);
    end_write([left, right, parent]);
    true
}

/// Removes the row after `row`, whose child was merged into that of `row`.
fn remove_merged(parent: &Inner, row: usize) {
    let (left, right) = (parent.row(row), parent.row(row + 1));
    parent.remove(row + 1);
    parent.set_end(row, right.end);
    parent.set_room(row, left.room.max(right.room));
}
