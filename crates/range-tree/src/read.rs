//! Lookups, which take no lock.
//!
//! # Locking
//! A reader goes down hand over hand: it takes the child's version, then checks that the parent
//! has not changed since its own was taken. So each node was, at the moment when the root was
//! checked, as the reader saw it, and that is the moment of which the answer is true. A node that
//! was taken out and used elsewhere has another version, and the reader comes again.

use crate::node::{Child, Leaf, Row, Seen};
use crate::pool::Opened;
use crate::{Contended, Entry, RangeTree};
use vmarea_sync::primitive::{Ordering, spin_loop};

/// Where a reader looks: a node and the version it had.
type Place<'t> = (Opened<'t>, Seen);

impl Opened<'_> {
    #[inline]
    pub(crate) fn enter(self) -> Option<Seen> {
        match self {
            Opened::Leaf(leaf) => leaf.enter(),
            Opened::Inner(inner) => inner.enter(),
        }
    }
}

pub(crate) fn entry(row: Row<u64>) -> Entry {
    Entry {
        start: row.span.start,
        end: row.span.end,
        value: row.word,
    }
}

impl RangeTree {
    /// The range that holds `addr`.
    #[inline]
    pub fn get(&self, addr: u64) -> Option<Entry> {
        self.find(addr).filter(|e| e.start <= addr)
    }

    /// The first range that ends after `addr`: the one that holds it, or the next one up.
    #[inline]
    pub fn find(&self, addr: u64) -> Option<Entry> {
        again(|| self.try_find(addr))
    }

    /// The last range that starts below `addr`.
    #[inline]
    pub fn prev(&self, addr: u64) -> Option<Entry> {
        again(|| self.try_prev(addr))
    }

    /// [`find`](Self::find), for a caller who has something better to do than to wait for a writer.
    #[inline]
    pub fn try_find(&self, addr: u64) -> Result<Option<Entry>, Contended> {
        Ok(self.seek(addr)?.map(|(_, _, _, entry)| entry))
    }

    /// The ranges that overlap `[low, high)`, in ascending order.
    ///
    /// Each one was in the map at some moment of the iteration, and begins where the one before ends
    /// or later. A range that a writer moves meanwhile over the end of the last one is left out.
    pub fn ranges(&self, low: u64, high: u64) -> Ranges<'_> {
        Ranges {
            tree: self,
            at: low,
            high,
            place: None,
        }
    }

    /// The leaf, its version, the row and its content: the first that ends after `addr`.
    #[inline]
    fn seek(&self, addr: u64) -> Result<Option<(&Leaf, Seen, usize, Entry)>, Contended> {
        let Some((mut node, mut seen)) = self.enter_root()? else {
            return Ok(None);
        };
        loop {
            match node {
                Opened::Inner(inner) => {
                    let row = inner.first_ending_after(addr);
                    if row >= seen.len() {
                        return inner.holds(seen).then_some(None).ok_or(Contended);
                    }
                    let child = self.enter(inner.word(row))?;
                    if !inner.holds(seen) {
                        return Err(Contended);
                    }
                    (node, seen) = child;
                }
                Opened::Leaf(leaf) => {
                    let row = leaf.first_ending_after(addr);
                    if row >= seen.len() {
                        return leaf.holds(seen).then_some(None).ok_or(Contended);
                    }
                    let found = entry(leaf.row(row));
                    return leaf
                        .holds(seen)
                        .then_some(Some((leaf, seen, row, found)))
                        .ok_or(Contended);
                }
            }
        }
    }

    fn try_prev(&self, addr: u64) -> Result<Option<Entry>, Contended> {
        let Some((mut node, mut seen)) = self.enter_root()? else {
            return Ok(None);
        };
        loop {
            match node {
                Opened::Inner(inner) => {
                    let Some(row) = inner.starting_below(addr).checked_sub(1) else {
                        return inner.holds(seen).then_some(None).ok_or(Contended);
                    };
                    let child = self.enter(inner.word(row))?;
                    if !inner.holds(seen) {
                        return Err(Contended);
                    }
                    (node, seen) = child;
                }
                Opened::Leaf(leaf) => {
                    let found = leaf
                        .starting_below(addr)
                        .checked_sub(1)
                        .map(|row| entry(leaf.row(row)));
                    return leaf.holds(seen).then_some(found).ok_or(Contended);
                }
            }
        }
    }

    #[inline]
    fn enter_root(&self) -> Result<Option<Place<'_>>, Contended> {
        // ORDERING: Acquire, pairs with the Release in `set_root`.
        let root = self.root.0.load(Ordering::Acquire);
        if root.is_null() {
            return Ok(None);
        }
        let place = self.enter(Child(root))?;
        // ORDERING: Relaxed; the Acquire in `enter` keeps it behind. If this still is the root, it
        // was the root while it had the version that we hold.
        if self.root.0.load(Ordering::Relaxed) == root {
            Ok(Some(place))
        } else {
            Err(Contended)
        }
    }

    #[inline]
    fn enter(&self, child: Child) -> Result<Place<'_>, Contended> {
        let node = self.open(child).ok_or(Contended)?;
        Ok((node, node.enter().ok_or(Contended)?))
    }

    #[inline]
    pub(crate) fn open(&self, child: Child) -> Option<Opened<'_>> {
        // SAFETY: a `Child` comes from this tree's root or nodes, so from its pool (P1); the pool is
        // ours and lives as long as the tree.
        unsafe { child.open() }
    }

    #[inline]
    pub(crate) fn root(&self) -> Child {
        // ORDERING: Acquire, pairs with the Release in `set_root`.
        Child(self.root.0.load(Ordering::Acquire))
    }

    pub(crate) fn set_root(&self, root: Child) {
        // ORDERING: Release, pairs with the Acquire in `root` and `enter_root`.
        self.root.0.store(root.0, Ordering::Release);
    }
}

#[inline]
fn again<T>(attempt: impl Fn() -> Result<T, Contended>) -> T {
    loop {
        if let Ok(answer) = attempt() {
            return answer;
        }
        spin_loop();
    }
}

/// Ranges in ascending order; see [`RangeTree::ranges`].
#[derive(Debug)]
pub struct Ranges<'t> {
    tree: &'t RangeTree,
    at: u64,
    high: u64,
    /// The leaf and the row of the last range given out.
    place: Option<(&'t Leaf, Seen, usize)>,
}

impl Iterator for Ranges<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        while self.at < self.high {
            let near = self.place.and_then(|(leaf, seen, row)| {
                let next = row + 1;
                let found =
                    (next < seen.len()).then(|| (leaf, seen, next, entry(leaf.row(next))))?;
                leaf.holds(seen).then_some(found)
            });
            let (leaf, seen, row, found) = near.or_else(|| again(|| self.tree.seek(self.at)))?;
            let first = self.place.is_none();
            let after = self.at;
            self.place = Some((leaf, seen, row));
            self.at = found.end;
            if first || found.start >= after {
                return (found.start < self.high).then_some(found);
            }
        }
        None
    }
}
