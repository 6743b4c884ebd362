//! The check of every invariant of the tree.

use crate::node::{Child, INNER, Inner, Node, Span, Word};
use crate::pool::{Opened, Pool};
use crate::{Entry, RangeTree};
use alloc::vec::Vec;

/// Which invariant does not hold, as the crate's doc names it.
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
struct Seen {
    entries: Vec<Entry>,
    leaves: usize,
    inners: usize,
    leaf_depth: Option<usize>,
}

impl RangeTree {
    /// Checks every invariant. Keeps writers out meanwhile.
    pub fn validate(&self) -> Result<(), Violation> {
        let pool = self.writer.lock();
        let mut seen = Seen::default();
        let root = self.root();
        if root != Child::NONE {
            self.visit(root, 0, &mut seen)?;
            ensure(
                seen.leaf_depth == Some(pool.height),
                "T3: height is not the leaves' depth",
            )?;
        }
        if let Some(Opened::Inner(inner)) = self.open(root) {
            ensure(inner.len() >= 2, "T3: the root has one child")?;
        }
        ensure(
            seen.entries.iter().all(|e| e.start < e.end),
            "T1: an empty range",
        )?;
        ensure(
            seen.entries.is_sorted_by(|a, b| a.end <= b.start),
            "T1: ranges overlap",
        )?;
        ensure(
            seen.entries.len() == self.len(),
            "T1: len is not the number of ranges",
        )?;
        ensure(
            Pool::used(&pool) == (seen.leaves, seen.inners),
            "T5: a node is lost, or used twice",
        )
    }

    fn visit(&self, child: Child, depth: usize, seen: &mut Seen) -> Result<Span, Violation> {
        match self.open(child) {
            None => Err(Violation("T3: a row without child")),
            Some(Opened::Leaf(leaf)) => {
                ensure(
                    *seen.leaf_depth.get_or_insert(depth) == depth,
                    "T3: leaves at two depths",
                )?;
                seen.leaves += 1;
                let len = check_node(leaf)?;
                seen.entries
                    .extend((0..len).map(|row| crate::read::entry(leaf.row(row))));
                Ok(leaf.span(len))
            }
            Some(Opened::Inner(inner)) => {
                seen.inners += 1;
                ensure(depth < 64, "T3: too deep")?;
                self.visit_children(inner, depth, seen)
            }
        }
    }

    fn visit_children(
        &self,
        inner: &Inner,
        depth: usize,
        seen: &mut Seen,
    ) -> Result<Span, Violation> {
        let len = check_node(inner)?;
        ensure(len <= INNER, "T3: too many rows")?;
        for row in 0..len {
            let span = self.visit(inner.word(row), depth + 1, seen)?;
            let said = inner.row(row).span;
            ensure(
                (said.start, said.end) == (span.start, span.end),
                "T2: bounds are not the child's",
            )?;
            ensure(said.gap == span.gap, "T2: gap is not the child's largest")?;
            ensure(
                inner.room(row) == said.gap.max(inner.gap_before(row)),
                "T2: room is not the larger gap",
            )?;
        }
        Ok(inner.span(len))
    }
}

/// What holds of a node by itself. Gives its length.
fn check_node<W: Word, const N: usize, const G: usize>(
    node: &Node<W, N, G>,
) -> Result<usize, Violation> {
    ensure(!node.is_busy(), "T5: a node is busy")?;
    let len = node.len();
    ensure(len > 0, "T3: an empty node")?;
    ensure(len <= N, "T3: too many rows")?;
    let unused = (len..N).all(|row| node.start(row) == u64::MAX && node.end_of(row) == u64::MAX);
    ensure(unused, "T4: a row beyond the length")?;
    ensure(
        (1..len).all(|row| node.end_of(row - 1) <= node.start(row)),
        "T1: rows overlap",
    )?;
    Ok(len)
}
