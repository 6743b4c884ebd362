//! The tree's nodes: allocated one by one, kept until the tree ends.
//!
//! A reader may still look at a node that has left the tree, so nodes go back to this pool and
//! never to the allocator while the tree is shared. A leaf is never used again as an inner node.
//!
//! # Invariants
//! P1  every [`Child`] that is stored in a tree was made by the tree's own pool
//! P2  a node lives as long as its pool

use crate::OutOfMemory;
use crate::node::{Child, Inner, Leaf, Node, SPARE, Word};
use alloc::alloc::{Layout, alloc, dealloc};
use alloc::vec::Vec;
use core::ptr::NonNull;

/// Nodes of one kind.
#[derive(Debug)]
struct Stock<T> {
    all: Vec<NonNull<T>>,
    /// Those that are in no tree. Has the capacity of `all`, so that a node can always come back.
    free: Vec<NonNull<T>>,
}

impl<W: Word, const N: usize, const G: usize> Stock<Node<W, N, G>> {
    const LAYOUT: Layout = Layout::new::<Node<W, N, G>>();

    const fn new() -> Self {
        Stock {
            all: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Allocates until `count` are free.
    fn reserve(&mut self, count: usize) -> Result<(), OutOfMemory> {
        while self.free.len() < count {
            self.all.try_reserve(1).map_err(|_| OutOfMemory)?;
            let missing = self.all.len() + 1 - self.free.len();
            self.free.try_reserve(missing).map_err(|_| OutOfMemory)?;
            // SAFETY: a node is not of size zero.
            let fresh = unsafe { alloc(Self::LAYOUT) }.cast::<Node<W, N, G>>();
            let fresh = NonNull::new(fresh).ok_or(OutOfMemory)?;
            // SAFETY: allocated just now with the node's layout.
            unsafe { fresh.write(Node::new()) };
            self.all.push(fresh);
            self.free.push(fresh);
        }
        Ok(())
    }

    /// Gives the memory of all nodes back to the allocator.
    fn release(&mut self) {
        self.free.clear();
        for node in self.all.drain(..) {
            // SAFETY: made by `reserve`; it is in no list any more, and by P2 nobody reads it.
            unsafe {
                node.drop_in_place();
                dealloc(node.as_ptr().cast(), Self::LAYOUT);
            }
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pool {
    leaves: Stock<Leaf>,
    inners: Stock<Inner>,
    /// Inserts that find their nodes without another [`reserve`](Pool::reserve).
    promised: usize,
    /// Levels of inner nodes in the tree.
    pub height: usize,
}

// SAFETY: the pool owns its nodes; they hold atomics only.
unsafe impl Send for Pool {}

const LEAF_TAG: usize = 1;

/// What a [`Child`] names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Opened<'t> {
    Leaf(&'t Leaf),
    Inner(&'t Inner),
}

impl Child {
    pub const NONE: Child = Child(core::ptr::null_mut());

    /// The node; `None` for null.
    ///
    /// # Safety
    /// The pool that made it lives for `'t`.
    #[inline]
    pub unsafe fn open<'t>(self) -> Option<Opened<'t>> {
        if self.0.is_null() {
            None
        } else if self.0.addr() & LEAF_TAG != 0 {
            let leaf = self.0.map_addr(|addr| addr & !LEAF_TAG).cast::<Leaf>();
            // SAFETY: by P1 made by `take_leaf` from a live leaf, which by P2 lives on.
            Some(Opened::Leaf(unsafe { &*leaf }))
        } else {
            // SAFETY: by P1 made by `take_inner` from a live inner node, which by P2 lives on.
            Some(Opened::Inner(unsafe { &*self.0.cast::<Inner>() }))
        }
    }
}

impl Pool {
    pub const fn new() -> Self {
        Pool {
            leaves: Stock::new(),
            inners: Stock::new(),
            promised: 0,
            height: 0,
        }
    }

    /// Sees to it that `inserts` inserts find their nodes.
    ///
    /// An insert splits at most one node of each level and adds at most one level. A node that was
    /// split is full again only after [`SPARE`] more inserts, so few inserts cannot split more
    /// inner nodes than there are.
    pub fn reserve(&mut self, inserts: usize) -> Result<(), OutOfMemory> {
        if inserts <= self.promised {
            return Ok(());
        }
        let again = inserts / SPARE;
        let grown = inserts.min(1 + again);
        let levels = self.height + grown;
        let used = self.inners.all.len() - self.inners.free.len();
        let splits = inserts
            .saturating_mul(levels)
            .min(used.saturating_add(levels.saturating_mul(again)));
        self.leaves.reserve(inserts)?;
        self.inners.reserve(splits.saturating_add(grown))?;
        self.promised = inserts;
        Ok(())
    }

    /// Begins an insert: takes one of those promised, or reserves for it.
    pub fn begin_insert(&mut self) -> Result<(), OutOfMemory> {
        self.reserve(1)?;
        self.promised -= 1;
        Ok(())
    }

    /// A free leaf. One was reserved.
    pub fn take_leaf(&mut self) -> Child {
        let leaf = self.leaves.free.pop().expect("a leaf was reserved");
        Child(leaf.as_ptr().cast::<()>().map_addr(|addr| addr | LEAF_TAG))
    }

    /// A free inner node. One was reserved.
    pub fn take_inner(&mut self) -> Child {
        Child(
            self.inners
                .free
                .pop()
                .expect("an inner node was reserved")
                .as_ptr()
                .cast(),
        )
    }

    /// Takes back a node that has left the tree.
    pub fn retire(&mut self, child: Child) {
        let untagged = child.0.map_addr(|addr| addr & !LEAF_TAG);
        let Some(node) = NonNull::new(untagged) else {
            return;
        };
        if child.0.addr() & LEAF_TAG != 0 {
            self.leaves.free.push(node.cast());
        } else {
            self.inners.free.push(node.cast());
        }
    }

    /// Bytes of all nodes, those in reserve included.
    pub fn bytes(&self) -> usize {
        self.leaves.all.len() * size_of::<Leaf>() + self.inners.all.len() * size_of::<Inner>()
    }

    /// Nodes that are in the tree: leaves, inner nodes.
    pub fn used(&self) -> (usize, usize) {
        let used = |all: usize, free: usize| all - free;
        (
            used(self.leaves.all.len(), self.leaves.free.len()),
            used(self.inners.all.len(), self.inners.free.len()),
        )
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.leaves.release();
        self.inners.release();
    }
}
