//! Changes of shape: split, share, merge, and the root's coming and going.
//!
//! None of them changes what the map holds. Each makes busy all nodes between which rows move, and
//! their parent, so a reader comes by before or after.
//!
//! # Picture
//! ```text
//! split            parent [ … a … ]            parent [ … a  b … ]
//!                           │            →               │  │
//!                        [a full]                     [a ] [b ]
//! share            [a full] [b with room]  →  [a with room] [b ]
//! merge            the split backwards
//! ```

use crate::node::{Child, INNER, Inner, LEAF, Leaf, Node, Row, SPARE, Span, Word};
use crate::pool::Opened;
use crate::write::{Path, Writer, make_busy, raise};

/// Rows that a neighbour must have free so that a full leaf moves some there. At least two: then both
/// have room afterwards, and no row is moved back at once.
const ROOM: usize = LEAF / 16 + 2;
/// Rows of two neighbours that become one node.
const fn mergeable(capacity: usize) -> usize {
    capacity - capacity.div_ceil(4)
}

impl<'a> Writer<'a> {
    /// Puts a new root above a full one.
    pub(crate) fn grow(&mut self, root: Opened<'a>) {
        let span = match root {
            Opened::Leaf(leaf) => leaf.span(LEAF),
            Opened::Inner(inner) => inner.span(INNER),
        };
        let child = self.pool.take_inner();
        if let Some(Opened::Inner(inner)) = self.tree.open(child) {
            inner.begin();
            inner.set(
                0,
                Row {
                    span,
                    word: self.tree.root(),
                },
            );
            inner.end(1);
        }
        self.tree.set_root(child);
        self.pool.height += 1;
    }

    /// Makes room in a full child at `row` of a parent that has room, for a range at `start`.
    pub(crate) fn relieve(&mut self, parent: &Inner, row: usize, child: Opened<'a>, start: u64) {
        match child {
            Opened::Leaf(leaf) => {
                if self.share_left(parent, row, leaf) || self.share_right(parent, row, leaf) {
                    return;
                }
                // Ranges that come in order leave full leaves behind.
                let keep = match leaf.first_ending_after(start).min(LEAF) {
                    0 => 1,
                    LEAF => LEAF - 1,
                    _ => LEAF.div_ceil(2),
                };
                let fresh = self.pool.take_leaf();
                if let Some(Opened::Leaf(right)) = self.tree.open(fresh) {
                    split(parent, row, leaf, keep, right, fresh);
                }
            }
            Opened::Inner(inner) => {
                let keep = match inner.first_ending_after(start) {
                    0 => SPARE,
                    at if at >= INNER - 1 => INNER - SPARE,
                    _ => INNER.div_ceil(2),
                };
                let fresh = self.pool.take_inner();
                if let Some(Opened::Inner(right)) = self.tree.open(fresh) {
                    split(parent, row, inner, keep, right, fresh);
                }
            }
        }
    }

    /// Moves rows of a full leaf to its left neighbour.
    fn share_left(&self, parent: &Inner, row: usize, leaf: &Leaf) -> bool {
        let Some(place) = row.checked_sub(1) else {
            return false;
        };
        let Some(Opened::Leaf(left)) = self.tree.open(parent.word(place)) else {
            return false;
        };
        let have = left.len();
        if LEAF - have < ROOM {
            return false;
        }
        let moved = (LEAF - have) / 2;
        begin([parent]);
        begin([left, leaf]);
        left.copy(have, leaf, 0, moved);
        leaf.remove(0, moved, LEAF);
        self.shared(parent, place, (left, have + moved), (leaf, LEAF - moved));
        true
    }

    /// Moves rows of a full leaf to its right neighbour.
    fn share_right(&self, parent: &Inner, row: usize, leaf: &Leaf) -> bool {
        if row + 1 >= parent.len() {
            return false;
        }
        let Some(Opened::Leaf(right)) = self.tree.open(parent.word(row + 1)) else {
            return false;
        };
        let have = right.len();
        if LEAF - have < ROOM {
            return false;
        }
        let moved = (LEAF - have) / 2;
        begin([parent]);
        begin([leaf, right]);
        for i in (0..have).rev() {
            right.set(i + moved, right.row(i));
        }
        right.copy(0, leaf, LEAF - moved, moved);
        leaf.remove(LEAF - moved, moved, LEAF);
        self.shared(parent, row, (leaf, LEAF - moved), (right, have + moved));
        true
    }

    fn shared(&self, parent: &Inner, place: usize, left: (&Leaf, usize), right: (&Leaf, usize)) {
        parent.set_span(place, left.0.span(left.1));
        parent.set_span(place + 1, right.0.span(right.1));
        left.0.end(left.1);
        right.0.end(right.1);
        parent.end(parent.len());
    }

    /// Takes the last range's leaf out of the tree, and every node that only led to it.
    pub(crate) fn unlink_leaf(&mut self, path: &mut Path<'a>, leaf: &'a Leaf) {
        leaf.begin();
        let mut emptied = Opened::Leaf(leaf);
        while let Some((inner, row)) = path.pop() {
            let len = inner.len();
            let gone = inner.word(row);
            if len == 1 {
                inner.begin();
                self.end_emptied(emptied, gone);
                emptied = Opened::Inner(inner);
                continue;
            }
            let start = inner.start(usize::from(row == 0));
            let end = inner.end_of(len - 1 - usize::from(row == len - 1));
            make_busy(path, (start, end));
            inner.begin();
            inner.remove(row, 1, len);
            inner.end(len - 1);
            self.end_emptied(emptied, gone);
            raise(
                path,
                Span {
                    gap: inner.span(len - 1).gap,
                    start,
                    end,
                },
            );
            if (len - 1) * 2 <= INNER {
                self.tidy(path);
            }
            return;
        }
        let root = self.tree.root();
        self.tree.set_root(Child::NONE);
        self.end_emptied(emptied, root);
        self.pool.height = 0;
    }

    fn end_emptied(&mut self, node: Opened<'a>, child: Child) {
        match node {
            Opened::Leaf(leaf) => leaf.end(0),
            Opened::Inner(inner) => inner.end(0),
        }
        self.pool.retire(child);
    }

    /// Merges the child at the path's end with a neighbour, if they fit into one node with room to
    /// spare, and so on upwards. Takes away a root with one child.
    pub(crate) fn tidy(&mut self, path: &mut Path<'a>) {
        while let Some((parent, row)) = path.pop() {
            let merged = self.merge(parent, row)
                || row
                    .checked_sub(1)
                    .is_some_and(|row| self.merge(parent, row));
            if !merged || parent.len() * 2 > INNER {
                break;
            }
        }
        while let Some(Opened::Inner(root)) = self.tree.open(self.tree.root())
            && root.len() == 1
        {
            let old = self.tree.root();
            self.tree.set_root(root.word(0));
            root.begin();
            self.end_emptied(Opened::Inner(root), old);
            self.pool.height -= 1;
        }
    }

    /// Merges the child at `row` with its right neighbour, if there is one and it is small enough.
    fn merge(&mut self, parent: &'a Inner, row: usize) -> bool {
        if row + 1 >= parent.len() {
            return false;
        }
        let gone = parent.word(row + 1);
        let merged = match (self.tree.open(parent.word(row)), self.tree.open(gone)) {
            (Some(Opened::Leaf(left)), Some(Opened::Leaf(right))) => {
                merge(parent, row, left, right)
            }
            (Some(Opened::Inner(left)), Some(Opened::Inner(right))) => {
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

impl Opened<'_> {
    pub(crate) fn is_full(self) -> bool {
        match self {
            Opened::Leaf(leaf) => leaf.len() == LEAF,
            Opened::Inner(inner) => inner.len() == INNER,
        }
    }
}

fn begin<W: Word, const N: usize, const G: usize, const K: usize>(nodes: [&Node<W, N, G>; K]) {
    for node in nodes {
        node.begin();
    }
}

/// The left node keeps `keep` rows, the others go to `right`, which becomes the parent's next row.
fn split<W: Word, const N: usize, const G: usize>(
    parent: &Inner,
    row: usize,
    left: &Node<W, N, G>,
    keep: usize,
    right: &Node<W, N, G>,
    name: Child,
) {
    let rows = parent.len();
    begin([parent]);
    begin([left, right]);
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
    left.end(keep);
    right.end(N - keep);
    parent.end(rows + 1);
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
    begin([parent]);
    begin([left, right]);
    left.copy(have, right, 0, more);
    right.remove(0, more, more);
    parent.remove(row + 1, 1, rows);
    parent.set_span(row, left.span(have + more));
    left.end(have + more);
    right.end(0);
    parent.end(rows - 1);
    true
}
