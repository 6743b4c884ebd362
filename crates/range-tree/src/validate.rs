//! Check of all invariants of the tree.

use crate::leaf::Leaf;
use crate::node::{INNER, Inner, NodePtr, Versioned};
use crate::pool::{NodeRef, Pool};
use crate::{Entry, RangeTree};
use alloc::vec::Vec;

/// Description of a violated invariant, with its name from the crate documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation(pub &'static str);

impl From<Violation> for &'static str {
    fn from(v: Violation) -> Self {
        v.0
    }
}

fn ensure(holds: bool, what: &'static str) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation(what)) }
}

#[derive(Default)]
struct Census {
    entries: Vec<Entry>,
    leaves: usize,
    inners: usize,
    leaf_depth: Option<usize>,
}

impl RangeTree {
    /// Checks all invariants; writers wait during the check.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn validate(&self) -> Result<(), Violation> {
        let pool = self.writer.lock();
        let mut seen = Census::default();
        let root = self.root();
        if root != NodePtr::NULL {
            self.visit(root, 0, &mut seen)?;
            ensure(
                seen.leaf_depth == Some(pool.height),
                "T3: height differs from the depth of the leaves",
            )?;
        }
        if let Some(NodeRef::Inner(inner)) = self.node(root) {
            ensure(inner.len() >= 2, "T3: the root has one child")?;
        }
        ensure(
            seen.entries.iter().all(|e| e.start < e.end),
            "T1: a range is empty",
        )?;
        ensure(
            seen.entries.is_sorted_by(|a, b| a.end <= b.start),
            "T1: ranges overlap",
        )?;
        ensure(
            seen.entries.len() == self.len(),
            "T1: len differs from the number of ranges",
        )?;
        ensure(
            Pool::used(&pool) == (seen.leaves, seen.inners),
            "T5: a node is leaked or used twice",
        )
    }

    /// Checks a node and all nodes below it. Returns its end and a lower bound of its room.
    fn visit(
        &self,
        child: NodePtr,
        depth: usize,
        seen: &mut Census,
    ) -> Result<(u64, u64), Violation> {
        match self.node(child) {
            None => Err(Violation("T3: a row has no child")),
            Some(NodeRef::Leaf(leaf)) => {
                ensure(
                    *seen.leaf_depth.get_or_insert(depth) == depth,
                    "T3: leaves have different depths",
                )?;
                seen.leaves += 1;
                let floor = seen.entries.last().map_or(0, |e| e.end);
                let len = check_leaf(leaf)?;
                seen.entries.extend((0..len).map(|rank| leaf.ranked(rank)));
                Ok((leaf.last_end(), leaf.largest_gap(0..len, floor)))
            }
            Some(NodeRef::Inner(inner)) => {
                seen.inners += 1;
                ensure(depth < 64, "T3: tree too deep")?;
                self.visit_children(inner, depth, seen)
            }
        }
    }

    fn visit_children(
        &self,
        inner: &Inner,
        depth: usize,
        seen: &mut Census,
    ) -> Result<(u64, u64), Violation> {
        ensure(!inner.is_busy(), "T5: a node is busy")?;
        let len = inner.len();
        ensure(len > 0, "T3: a node is empty")?;
        ensure(len <= INNER, "T3: too many rows")?;
        ensure(inner.is_tidy(), "T4: a pivot or an unused row is wrong")?;
        for row in 0..len {
            let (end, room) = self.visit(inner.child(row), depth + 1, seen)?;
            ensure(
                inner.end_of(row) == end,
                "T2: an end differs from the child's",
            )?;
            ensure(
                inner.room(row) >= room,
                "T2: a room is less than a gap or a room in the child",
            )?;
        }
        Ok((inner.end_of(len - 1), inner.largest_room()))
    }
}

/// Checks a leaf on its own, and returns its length.
fn check_leaf(leaf: &Leaf) -> Result<usize, Violation> {
    ensure(!leaf.is_busy(), "T5: a node is busy")?;
    ensure(leaf.is_tidy(), "T4: the order or a free slot is wrong")?;
    let len = leaf.order().len();
    ensure(len > 0, "T3: a node is empty")?;
    Ok(len)
}
