//! Check of all invariants of the tree.

use crate::node::{INNER, Inner, Node, NodePtr, Span, Word};
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

    fn visit(&self, child: NodePtr, depth: usize, seen: &mut Census) -> Result<Span, Violation> {
        match self.node(child) {
            None => Err(Violation("T3: a row has no child")),
            Some(NodeRef::Leaf(leaf)) => {
                ensure(
                    *seen.leaf_depth.get_or_insert(depth) == depth,
                    "T3: leaves have different depths",
                )?;
                seen.leaves += 1;
                let len = check_node(leaf)?;
                seen.entries
                    .extend((0..len).map(|row| crate::read::entry(leaf.row(row))));
                Ok(leaf.span(len))
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
    ) -> Result<Span, Violation> {
        let len = check_node(inner)?;
        ensure(len <= INNER, "T3: too many rows")?;
        for row in 0..len {
            let span = self.visit(inner.word(row), depth + 1, seen)?;
            let stored = inner.row(row).span;
            ensure(
                (stored.start, stored.end) == (span.start, span.end),
                "T2: bounds differ from the child's",
            )?;
            ensure(
                stored.gap == span.gap,
                "T2: gap differs from the child's largest",
            )?;
            ensure(
                inner.room(row) == stored.gap.max(inner.gap_before(row)),
                "T2: room is not the larger gap",
            )?;
        }
        Ok(inner.span(len))
    }
}

/// Checks a node on its own, and returns its length.
fn check_node<W: Word, const N: usize, const G: usize>(
    node: &Node<W, N, G>,
) -> Result<usize, Violation> {
    ensure(!node.is_busy(), "T5: a node is busy")?;
    let len = node.len();
    ensure(len > 0, "T3: a node is empty")?;
    ensure(len <= N, "T3: too many rows")?;
    let unused = (len..N).all(|row| node.start(row) == u64::MAX && node.end_of(row) == u64::MAX);
    ensure(unused, "T4: a row beyond the length has bounds")?;
    ensure(
        (1..len).all(|row| node.end_of(row - 1) <= node.start(row)),
        "T1: rows overlap",
    )?;
    Ok(len)
}
