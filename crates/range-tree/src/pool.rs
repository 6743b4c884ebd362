//! Allocation of the tree's nodes, which stay allocated until the tree is borrowed mutably.
//!
//! A reader may still read a node that was removed from the tree, so removed nodes return to this
//! pool and not to the allocator. A leaf is never reused as an inner node.
//!
//! # Invariants
//! P1  every [`NodePtr`] that is stored in a tree was created by the tree's own pool
//! P2  a node lives as long as its pool, or is not in the tree when the tree is borrowed mutably

use crate::OutOfMemory;
use crate::leaf::Leaf;
use crate::node::{Inner, NodePtr, SPARE};
use alloc::alloc::{Layout, alloc, dealloc};
use alloc::vec::Vec;
use core::ptr::NonNull;

/// All nodes of one kind.
#[derive(Debug)]
struct NodeStore<T> {
    all: Vec<NonNull<T>>,
    /// Free nodes, which are not in the tree. The capacity equals that of `all`, so that a push
    /// cannot fail.
    free: Vec<NonNull<T>>,
}

impl<T> NodeStore<T> {
    const LAYOUT: Layout = Layout::new::<T>();

    const fn new() -> Self {
        NodeStore {
            all: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Allocates nodes, made by `new`, until `count` are free.
    fn reserve(&mut self, count: usize, new: fn() -> T) -> Result<(), OutOfMemory> {
        while self.free.len() < count {
            self.all.try_reserve(1).map_err(|_| OutOfMemory)?;
            let missing = self.all.len() + 1 - self.free.len();
            self.free.try_reserve(missing).map_err(|_| OutOfMemory)?;
            // SAFETY: the size of a node is not zero.
            let fresh = unsafe { alloc(Self::LAYOUT) }.cast::<T>();
            let fresh = NonNull::new(fresh).ok_or(OutOfMemory)?;
            // SAFETY: the memory was just allocated with the layout of a node.
            unsafe { fresh.write(new()) };
            self.all.push(fresh);
            self.free.push(fresh);
        }
        Ok(())
    }

    /// Frees all nodes. By P2, no reader may remain.
    fn release(&mut self) {
        self.free.clear();
        self.free.append(&mut self.all);
        self.release_free();
    }

    /// Frees the nodes that are not in the tree. By P2, no reader may remain.
    fn release_free(&mut self) {
        let free = &mut self.free;
        free.sort_unstable();
        self.all.retain(|node| free.binary_search(node).is_err());
        for node in free.drain(..) {
            // SAFETY: `reserve` allocated the node; no list contains it any more, and no reader
            // remains.
            unsafe {
                node.drop_in_place();
                dealloc(node.as_ptr().cast(), Self::LAYOUT);
            }
        }
        self.all.shrink_to_fit();
        free.shrink_to(self.all.capacity());
    }
}

/// The node pool of a tree; see the module documentation.
#[derive(Debug)]
pub(crate) struct Pool {
    leaves: NodeStore<Leaf>,
    inners: NodeStore<Inner>,
    /// Number of inserts for which nodes are reserved.
    promised: usize,
    /// Number of levels of inner nodes in the tree.
    pub height: usize,
}

// SAFETY: the pool owns its nodes, which contain only atomics.
unsafe impl Send for Pool {}

const LEAF_TAG: usize = 1;

/// Reference to the node that a [`NodePtr`] points to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NodeRef<'t> {
    Leaf(&'t Leaf),
    Inner(&'t Inner),
}

impl NodeRef<'_> {
    /// Returns the end of the last range in the node; 0 if there is none.
    pub fn last_end(self) -> u64 {
        match self {
            NodeRef::Leaf(leaf) => leaf.last_end(),
            NodeRef::Inner(inner) => inner.end_below(inner.len(), 0),
        }
    }

    /// Returns the largest gap before a range in a leaf, where `floor` is the end of the last range
    /// in the previous leaf, or the largest room in an inner node.
    pub fn largest_gap(self, floor: u64) -> u64 {
        match self {
            NodeRef::Leaf(leaf) => leaf.largest_gap(0..leaf.order().len(), floor),
            NodeRef::Inner(inner) => inner.largest_room(),
        }
    }
}

impl NodePtr {
    /// Returns the node; `None` for null.
    ///
    /// # Safety
    /// The pool that created the node must live for `'t`.
    #[inline]
    pub unsafe fn node<'t>(self) -> Option<NodeRef<'t>> {
        if self.0.addr() & LEAF_TAG != 0 {
            let leaf = self.0.map_addr(|addr| addr & !LEAF_TAG).cast::<Leaf>();
            // SAFETY: by P1, `take_leaf` created the pointer from a live leaf, which by P2 is still
            // alive.
            Some(NodeRef::Leaf(unsafe { &*leaf }))
        } else if self.0.is_null() {
            None
        } else {
            // SAFETY: by P1, `take_inner` created the pointer from a live inner node, which by P2
            // is still alive.
            Some(NodeRef::Inner(unsafe { &*self.0.cast::<Inner>() }))
        }
    }
}

impl Pool {
    pub const fn new() -> Self {
        Pool {
            leaves: NodeStore::new(),
            inners: NodeStore::new(),
            promised: 0,
            height: 0,
        }
    }

    /// Reserves the nodes for `inserts` inserts.
    ///
    /// An insert splits at most one node on each level and adds at most one level. A node that was
    /// split becomes full again only after [`SPARE`] more inserts, so up to that many inserts split
    /// each inner node at most once.
    #[inline]
    pub fn reserve(&mut self, inserts: usize) -> Result<(), OutOfMemory> {
        if inserts <= self.promised {
            return Ok(());
        }
        self.reserve_more(inserts)
    }

    #[cold]
    fn reserve_more(&mut self, inserts: usize) -> Result<(), OutOfMemory> {
        let again = inserts / SPARE;
        let grown = inserts.min(1 + again);
        let levels = self.height + grown;
        let used = self.inners.all.len() - self.inners.free.len();
        let splits = inserts
            .saturating_mul(levels)
            .min(used.saturating_add(levels.saturating_mul(again)));
        self.leaves.reserve(inserts, Leaf::new)?;
        self.inners
            .reserve(splits.saturating_add(grown), Inner::new)?;
        self.promised = inserts;
        Ok(())
    }

    /// Reserves nodes for [`build`](crate::Writer::build), and gives up the reservation for inserts.
    pub fn reserve_nodes(&mut self, leaves: usize, inners: usize) -> Result<(), OutOfMemory> {
        self.promised = 0;
        self.leaves.reserve(leaves, Leaf::new)?;
        self.inners.reserve(inners, Inner::new)
    }

    /// Uses up the reservation for one insert, which takes nodes. An insert that takes none leaves
    /// the reservation for the next one.
    pub fn use_reservation(&mut self) {
        self.promised -= 1;
    }

    /// Takes a reserved leaf.
    pub fn take_leaf(&mut self) -> NodePtr {
        let leaf = self.leaves.free.pop().expect("no leaf is reserved");
        NodePtr(leaf.as_ptr().cast::<()>().map_addr(|addr| addr | LEAF_TAG))
    }

    /// Takes a reserved inner node.
    pub fn take_inner(&mut self) -> NodePtr {
        NodePtr(
            self.inners
                .free
                .pop()
                .expect("no inner node is reserved")
                .as_ptr()
                .cast(),
        )
    }

    /// Puts a node that was removed from the tree back into the pool.
    pub fn retire(&mut self, child: NodePtr) {
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

    /// Frees the nodes that are not in the tree, including reserved nodes.
    pub fn shrink(&mut self) {
        self.promised = 0;
        self.leaves.release_free();
        self.inners.release_free();
    }

    /// Returns the total size of all nodes in bytes, including reserved nodes.
    pub fn bytes(&self) -> usize {
        self.leaves.all.len() * size_of::<Leaf>() + self.inners.all.len() * size_of::<Inner>()
    }

    /// Returns the number of leaves and of inner nodes in the tree.
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
