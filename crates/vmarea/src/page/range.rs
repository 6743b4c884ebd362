//! What the calls do to the pages of a range: zap, protect, copy for fork, give another owner.
//!
//! A huge page that a range covers is dealt with as one; where a range covers a part of it, it is cut
//! first.
//!
//! # Locking
//! [`reown`](PageTables::reown) holds the locks of both anon_vma roots, so that a walk of the reverse
//! map finds a page by the old way or by the new.
//!
//! # Linux
//! `mm/memory.c` `zap_page_range_single`, `copy_page_range`; `mm/mprotect.c` `change_protection`.

use super::entry::Pte;
use super::slot::{Cover, HugeFate, Visitor};
use super::table::PageTable;
use super::tables::PageTables;
use super::thp::Huge;
use crate::space::Space;
use crate::types::platform::{Environment, Platform};
use crate::types::{AnonVmaId, FrameId, Pgoff, VmRange};
use alloc::vec::Vec;
use core::ops::ControlFlow;

/// Which entries a zap takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zap {
    /// Everything: the range is unmapped.
    All,
    /// Pages, but guards stay (`MADV_DONTNEED`).
    KeepGuards,
    /// Guards alone (`MADV_GUARD_REMOVE`).
    GuardsOnly,
    /// Pages of the file alone (a hole in it); private copies stay.
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
    /// For the pinned pages, a frame each.
    copies: Vec<FrameId>,
}

impl<E: Environment> Copier<'_, E> {
    /// The copy of a pinned page, which stays its owner's alone.
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
    /// An empty one is copied as well: where there is a table no huge page comes by a fault.
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

/// Where pages belong from now on, and frames to copy those to that another process maps as well.
pub(super) struct NewOwner<'a> {
    pub(super) anon_vma: AnonVmaId,
    /// The first address, and its index.
    pub(super) first: (u64, Pgoff),
    pub(super) spare: &'a mut Vec<FrameId>,
}

impl NewOwner<'_> {
    fn index(&self, addr: u64) -> Pgoff {
        self.first.1.plus_bytes(addr - self.first.0)
    }

    /// The page at `addr` takes the new owner, or a copy of it does and the page is left to the others: to
    /// who maps it as well, or holds it for a moment to swap or migrate it and may come to map it.
    /// Swapped and KSM pages have no owner: they get theirs from the VMA when they come back.
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
        // Without memory for a copy: when the merge was decided the page was nobody else's.
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

    /// A frame for a copy: one for each page that was shared when that was looked at, and more where
    /// another came to it since.
    fn frame_for<E: Environment>(&mut self, space: &Space<E>, index: Pgoff) -> Option<FrameId> {
        let spare = self.spare.pop();
        spare.or_else(|| space.frame_alloc(self.anon_vma, index).ok())
    }

    /// True where the pages at `addr` have the new owner; false where some are others' as well.
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
    /// Empties the entries of `range`.
    pub(crate) fn zap(&self, range: VmRange, zap: Zap) {
        let PageTables { space, table } = *self;
        table.visit(range, &mut Zapper { space, table, zap });
    }

    /// Takes the right to write from every entry of `range`; a fault gives it back.
    #[doc(alias = "change_protection")]
    pub(crate) fn write_protect(&self, range: VmRange) {
        self.table.visit(range, &mut WriteProtector(self.space));
    }

    /// Gives `to` the entries of `range`, both sides read-only. Pinned pages stay as they are:
    /// `to` gets `copies` of them, which are frames of its own anon_vma.
    #[doc(alias = "copy_page_range")]
    pub(crate) fn copy_to(&self, to: &PageTable, range: VmRange, copies: Vec<FrameId>) {
        let space = self.space;
        let mut copier = Copier { space, to, copies };
        self.table.visit(range, &mut copier);
        let unused = copier.copies.into_iter();
        unused.for_each(|frame| space.frame_abandon(frame));
    }

    /// The pages of `range`, which lie in one VMA, take another anon_vma where they lie; their index
    /// counts on from `first`. A page that another process maps as well is left to it: a copy from
    /// `spare` takes its place.
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

    /// As [`reown`](Self::reown), where the caller has locked both anon_vma roots.
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

    /// The root of the anon_vma that the pages of a range belong to; one, as long as the range
    /// lies in one VMA.
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
