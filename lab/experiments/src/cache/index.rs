//! Indexes that are searched on a cache miss: the core's index, and Linux's red-black tree of 2014.

use super::super::bare::{Bare, BareMm, mm_id};
use super::red_black::RedBlackTree;
use vmarea::lookup::Vmas;
use vmarea::types::{MmId, VmRange, VmaId};
use vmarea_range_tree::RangeTree;
use vmarea_sync::Slots;

/// An index of the VMAs of several address spaces, which are numbered from 0.
pub(super) trait Index {
    /// Name of the index in tables.
    const NAME: &'static str;
    /// One address space of the index.
    type Mm<'a>: Vmas
    where
        Self: 'a;

    fn new(mms: u32) -> Self;
    fn mm(&self, mm: u32) -> Self::Mm<'_>;
    /// Adds a VMA. Returns `None` if there is not enough memory.
    fn link(&mut self, mm: u32, range: VmRange) -> Option<VmaId>;
    /// Changes the bounds of a VMA that currently starts at `start`.
    fn resize(&mut self, mm: u32, vma: VmaId, start: u64, range: VmRange);
    fn unlink(&mut self, mm: u32, vma: VmaId);
}

/// Index that consists of the core's tree and type-stable slots.
pub(super) struct CoreIndex {
    slots: Slots<Bare>,
    trees: Vec<RangeTree>,
}

impl Index for CoreIndex {
    const NAME: &'static str = "core's tree";
    type Mm<'a> = BareMm<'a>;

    fn new(mms: u32) -> Self {
        CoreIndex {
            slots: Slots::new(),
            trees: (0..mms).map(|_| RangeTree::new()).collect(),
        }
    }

    #[inline]
    fn mm(&self, mm: u32) -> BareMm<'_> {
        BareMm {
            id: mm_id(mm),
            tree: &self.trees[mm as usize],
            slots: &self.slots,
        }
    }

    fn link(&mut self, mm: u32, range: VmRange) -> Option<VmaId> {
        self.mm(mm).link(range)
    }

    fn resize(&mut self, mm: u32, vma: VmaId, start: u64, range: VmRange) {
        self.mm(mm).resize(vma, start, range);
    }

    fn unlink(&mut self, mm: u32, vma: VmaId) {
        self.mm(mm).unlink(vma);
    }
}

/// Index with one red-black tree per address space.
pub(super) struct RedBlackIndex(Vec<RedBlackTree>);

/// An address space in a [`RedBlackIndex`].
pub(super) struct RedBlackMm<'a> {
    id: MmId,
    tree: &'a RedBlackTree,
}

impl Index for RedBlackIndex {
    const NAME: &'static str = "red-black tree";
    type Mm<'a> = RedBlackMm<'a>;

    fn new(mms: u32) -> Self {
        RedBlackIndex((0..mms).map(|_| RedBlackTree::default()).collect())
    }

    #[inline]
    fn mm(&self, mm: u32) -> RedBlackMm<'_> {
        RedBlackMm {
            id: mm_id(mm),
            tree: &self.0[mm as usize],
        }
    }

    fn link(&mut self, mm: u32, range: VmRange) -> Option<VmaId> {
        self.0[mm as usize].insert(range)
    }

    fn resize(&mut self, mm: u32, vma: VmaId, _: u64, range: VmRange) {
        self.0[mm as usize].resize(vma, range);
    }

    fn unlink(&mut self, mm: u32, vma: VmaId) {
        self.0[mm as usize].remove(vma);
    }
}

impl Vmas for RedBlackMm<'_> {
    #[inline]
    fn mm(&self) -> MmId {
        self.id
    }

    #[inline]
    fn find(&self, addr: u64) -> Option<VmaId> {
        self.tree.find(addr)
    }

    #[inline]
    fn range(&self, vma: VmaId) -> Option<VmRange> {
        self.tree.range(vma)
    }
}
