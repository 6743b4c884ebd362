//! Operations on the pages of a range: zap, write-protect, copy for fork, change the owner.
//!
//! A huge page that is entirely inside the range is handled as a whole; a huge page that is only
//! partly inside the range is split first.
//!
//! # Locking
//! [`reown`](PageTables::reown) holds the locks of both anon_vma roots, so that a reverse-map walk
//! finds a page either under the old anon_vma or under the new one.
//!
//! # Linux
//! `mm/memory.c` `zap_page_range_single`, `copy_page_range`; `mm/mprotect.c` `change_protection`.

use super::entry::Pte;
use super::huge::Huge;
use super::slot::{Cover, HugeFate, Visitor};
use super::table::PageTable;
use super::tables::PageTables;
use crate::space::Space;
use crate::types::platform::{Environment, Platform};
use crate::types::{AnonVmaId, FrameId, Pgoff, VmRange};
use alloc::vec::Vec;
use core::ops::ControlFlow;

/// Selection of the entries that a zap removes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zap {
    /// All entries: the range is unmapped.
    All,
    /// All entries except guards (`MADV_DONTNEED`).
    KeepGuards,
    /// Only guards (`MADV_GUARD_REMOVE`).
    GuardsOnly,
    /// Only file pages, because a hole is punched in the file; private copies are kept.
    FilePages,
}

struct Zapper<'a, E: Environment> {
    space: &'a Space<E>,
    table: &'a PageTable,
    zap: Zap,
}

impl<E: Environment> Visitor for Zapper<'_, E> {
    #[inline]
    fn page(&mut self, addr: u64, entry: &mut Pte) {
        let take = match self.zap {
            Zap::All => true,
            Zap::KeepGuards => *entry != Pte::Guard,
            Zap::GuardsOnly => *entry == Pte::Guard,
            Zap::FilePages => matches!(entry, Pte::File { .. }),
        };
        if take {
            self.space.entry_drop(self.table, addr, *entry);
            *entry = Pte::None;
        }
    }

    fn huge(&mut self, _: u64, huge: &mut Huge, cover: Cover) -> HugeFate {
        match (self.zap, cover) {
            (Zap::GuardsOnly | Zap::FilePages, _) => HugeFate::Keep,
            (_, Cover::Part) => self.space.huge_split(huge),
            (_, Cover::Whole) => {
                self.space.huge_drop(huge);
                HugeFate::Gone
            }
        }
    }
}

struct WriteProtector<'a, E: Environment>(&'a Space<E>);

impl<E: Environment> Visitor for WriteProtector<'_, E> {
    fn page(&mut self, _: u64, entry: &mut Pte) {
        *entry = entry.write_protected();
    }

    fn huge(&mut self, _: u64, huge: &mut Huge, cover: Cover) -> HugeFate {
        if cover == Cover::Part {
            return self.0.huge_split(huge);
        }
        huge.write_protect();
        HugeFate::Keep
    }
}

struct Copier<'a, E: Environment> {
    space: &'a Space<E>,
    to: &'a PageTable,
    /// Preallocated frames, one for each pinned page.
    copies: Vec<FrameId>,
}

impl<E: Environment> Copier<'_, E> {
    /// Returns an entry with a copy of a pinned page; the parent keeps the page itself.
    fn copy_pinned(&mut self, entry: Pte) -> Option<Pte> {
        let frame = entry.anon_frame().filter(|_| !self.copies.is_empty())?;
        let there = self.space.frame(frame);
        let copy = self.copies.pop_if(|_| there.is_pinned())?;
        let ours = self.space.frame(copy);
        ours.set_mapping(ours.mapping()?, there.index());
        self.space.platform.copy(copy, frame);
        Some(Pte::Anon {
            frame: copy,
            writable: false,
        })
    }
}

impl<E: Environment> Visitor for Copier<'_, E> {
    /// Creates the child's table even if it stays empty: a fault maps no huge page over a table.
    fn table(&mut self, index: u64) {
        self.to.with_table(index, |_| ());
    }

    fn page(&mut self, addr: u64, entry: &mut Pte) {
        let copied = self.copy_pinned(*entry).unwrap_or_else(|| {
            *entry = entry.write_protected();
            self.space.entry_dup(self.to, addr, *entry);
            *entry
        });
        let put = self.to.update(addr, |e| *e = copied);
        debug_assert!(put.is_some(), "the child has no huge page yet");
    }

    fn huge(&mut self, addr: u64, huge: &mut Huge, cover: Cover) -> HugeFate {
        let pinned = |frame: &FrameId| self.space.frame(*frame).is_pinned();
        let any_pinned = !self.copies.is_empty() && huge.frames().iter().any(pinned);
        if cover == Cover::Part || any_pinned {
            return self.space.huge_split(huge);
        }
        let copy = self.space.huge_dup(huge);
        let put = self.to.insert_huge(addr, copy);
        debug_assert!(put.is_ok(), "the child has no page there yet");
        HugeFate::Keep
    }
}

/// The new owner of a range of pages, with spare frames for copies of shared pages.
pub(super) struct NewOwner<'a> {
    pub(super) anon_vma: AnonVmaId,
    /// The first address of the range, and the page offset of its page.
    pub(super) first: (u64, Pgoff),
    pub(super) spare: &'a mut Vec<FrameId>,
}

impl NewOwner<'_> {
    fn index(&self, addr: u64) -> Pgoff {
        self.first.1.plus_bytes(addr - self.first.0)
    }

    /// Transfers the page at `addr` to the new owner; a shared page is replaced by a copy.
    ///
    /// A page counts as shared if another process maps it, or if another thread holds a map count
    /// to swap or migrate the page and may map it. Swapped-out and KSM pages have no owner: they
    /// get one from the VMA when they are faulted in.
    pub(super) fn page<E: Environment>(&mut self, space: &Space<E>, addr: u64, entry: &mut Pte) {
        let Some(frame) = entry.anon_frame() else {
            return;
        };
        let there = space.frame(frame);
        let index = self.index(addr);
        let copy = match there.single_mapping() {
            true => None,
            false => self.frame_for(space, index),
        };
        // No memory for a copy: the page itself changes owner; the merge decision found it
        // unshared.
        let Some(copy) = copy else {
            return there.set_mapping(self.anon_vma, index);
        };
        space.platform.copy(copy, frame);
        space.frame(copy).set_mapping(self.anon_vma, index);
        space.frame_unmap(frame);
        *entry = Pte::Anon {
            frame: copy,
            writable: false,
        };
    }

    /// Returns a frame for a copy: a spare frame if one is left, otherwise a newly allocated one.
    ///
    /// There is one spare frame for each page that was shared when the pages were counted.
    fn frame_for<E: Environment>(&mut self, space: &Space<E>, index: Pgoff) -> Option<FrameId> {
        let spare = self.spare.pop();
        spare.or_else(|| space.frame_alloc(self.anon_vma, index).ok())
    }

    /// Transfers a huge page to the new owner; returns false and changes nothing if it is shared.
    pub(super) fn huge<E: Environment>(
        &mut self,
        space: &Space<E>,
        addr: u64,
        huge: &Huge,
    ) -> bool {
        let ours = space.huge_is_single(huge);
        if ours {
            space.huge_set_mapping(huge, self.anon_vma, self.index(addr));
        }
        ours
    }
}

struct Reowner<'a, E: Environment> {
    space: &'a Space<E>,
    to: NewOwner<'a>,
}

impl<E: Environment> Visitor for Reowner<'_, E> {
    fn page(&mut self, addr: u64, entry: &mut Pte) {
        self.to.page(self.space, addr, entry);
    }

    fn huge(&mut self, addr: u64, huge: &mut Huge, cover: Cover) -> HugeFate {
        if cover == Cover::Whole && self.to.huge(self.space, addr, huge) {
            HugeFate::Keep
        } else {
            self.space.huge_split(huge)
        }
    }
}

impl<E: Environment> PageTables<'_, E> {
    /// Removes the entries of `range` that `zap` selects.
    pub(crate) fn zap(&self, range: VmRange, zap: Zap) {
        let PageTables { space, table } = *self;
        table.visit(range, &mut Zapper { space, table, zap });
    }

    /// Removes write permission from every entry of `range`; a fault restores it.
    #[doc(alias = "change_protection")]
    pub(crate) fn write_protect(&self, range: VmRange) {
        self.table.visit(range, &mut WriteProtector(self.space));
    }

    /// Copies the entries of `range` to `to` and write-protects both sides.
    ///
    /// Pinned pages keep their frame and permission; for these, `to` gets the frames in `copies`,
    /// which belong to its own anon_vma.
    #[doc(alias = "copy_page_range")]
    pub(crate) fn copy_to(&self, to: &PageTable, range: VmRange, copies: Vec<FrameId>) {
        let space = self.space;
        let mut copier = Copier { space, to, copies };
        self.table.visit(range, &mut copier);
        let unused = copier.copies.into_iter();
        unused.for_each(|frame| space.frame_abandon(frame));
    }

    /// Transfers the pages of `range`, a part of one VMA, to another anon_vma; the pages do not
    /// move.
    ///
    /// Their page offsets increase from `first`. A page that another process also maps keeps its
    /// owner and is replaced by a copy in a frame from `spare`.
    pub(crate) fn reown(
        &self,
        range: VmRange,
        (anon_vma, first): (AnonVmaId, Pgoff),
        spare: &mut Vec<FrameId>,
    ) {
        let old = self.anon_vma_root(range);
        let _locks = self
            .space
            .lock_anon_vma_roots(old.into_iter().chain([anon_vma]));
        self.reown_locked(range, (anon_vma, first), spare);
    }

    /// Transfers pages like [`reown`](Self::reown), while the caller holds both anon_vma root
    /// locks.
    pub(crate) fn reown_locked(
        &self,
        range: VmRange,
        (anon_vma, first): (AnonVmaId, Pgoff),
        spare: &mut Vec<FrameId>,
    ) {
        let to = NewOwner {
            anon_vma,
            first: (range.start, first),
            spare,
        };
        let space = self.space;
        self.table.visit(range, &mut Reowner { space, to });
    }

    /// Returns the root of the anon_vma that owns the pages of a range inside one VMA.
    fn anon_vma_root(&self, range: VmRange) -> Option<AnonVmaId> {
        let space = self.space;
        let mut root = None;
        self.table.for_each(range, |_, entry| {
            let mapping = entry.anon_frame().and_then(|f| space.frame(f).mapping());
            root = mapping.and_then(|anon_vma| space.anon_vma_root_of(anon_vma));
            match root {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        });
        root
    }
}
