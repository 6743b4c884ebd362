//! Operations on the pages in a range: zap, copy for a fork, change the owner. `protect` changes
//! their protection.
//!
//! A huge page that lies entirely inside the range is handled as a whole. A huge page that lies
//! only partly inside the range is split first.
//!
//! # Locking
//! `reown` holds the locks of both anon_vma roots, so that a reverse-map walk
//! finds a page either under the old anon_vma or under the new one.
//!
//! # Linux
//! `mm/memory.c` `zap_page_range_single`, `copy_page_range`.

use super::entry::Pte;
use super::gather::{Gather, READ_ONLY};
use super::huge::Huge;
use super::shard::Blocked;
use super::slot::{Cover, HugeFate, Visitor, entry_of};
use super::table::{LockedTable, PageTable};
use super::tables::PageTables;
use super::thp::huge_page_addr;
use crate::Space;
use crate::policy::SharingCheck;
use crate::types::platform::{Environment, Platform};
use crate::types::{AnonVmaId, Errno, FrameId, Pgoff, VmRange};
use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};
use vmarea_merge::GivenUp;

/// Which entries a zap removes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zap {
    /// All entries, because the range is unmapped.
    All,
    /// All entries except guard entries (`MADV_DONTNEED`).
    KeepGuards,
    /// Only guard entries (`MADV_GUARD_REMOVE`).
    GuardsOnly,
    /// Only file pages, for punching a hole in the file; private copies are kept.
    FilePages,
}

struct Zapper<'a, E: Environment> {
    gather: Gather<'a, E>,
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
            self.gather.entry(addr, *entry);
            *entry = Pte::None;
        }
    }

    fn huge(&mut self, addr: u64, huge: &mut Huge, cover: Cover) -> HugeFate {
        match (self.zap, cover) {
            (Zap::GuardsOnly | Zap::FilePages, _) => HugeFate::Keep,
            (_, Cover::Part) => self.gather.space.huge_split(huge),
            (_, Cover::Whole) => {
                self.gather.huge(addr, huge);
                HugeFate::Gone
            }
        }
    }
}

struct Copier<'a, E: Environment> {
    space: &'a Space<E>,
    from: &'a PageTable,
    to: &'a PageTable,
    /// The child's table with the same addresses as the parent's that is being copied.
    table: Option<LockedTable<'a>>,
    /// Preallocated frames: one for the copy of each pinned page.
    copies: Vec<FrameId>,
    /// The first error; after an error, nothing more is copied.
    result: Result<(), Errno>,
}

impl<E: Environment> Copier<'_, E> {
    /// Copies the entry at `addr`: write-protects both copies, or copies a pinned page immediately.
    fn copy(&mut self, addr: u64, entry: &mut Pte) -> Result<(), Errno> {
        let copied = match self.copy_pinned(addr, *entry)? {
            Some(copied) => copied,
            None => {
                *entry = entry.write_protected();
                self.space.entry_dup(self.to, addr, *entry)?;
                *entry
            }
        };
        let table = self.table.as_mut().and_then(LockedTable::table);
        let put = table.and_then(|table| table.change(entry_of(addr), |e| *e = copied));
        debug_assert!(put.is_some(), "`table` has made the child's table");
        Ok(())
    }

    /// Maps a huge page in the child as well, and write-protects both mappings.
    fn copy_huge(&mut self, addr: u64, huge: &mut Huge) -> Result<(), Errno> {
        let copy = self.space.huge_dup(huge)?;
        self.to
            .insert_huge(addr, copy)
            .map_err(|(mut copy, blocked)| {
                debug_assert_eq!(
                    blocked,
                    Blocked::NoMemory,
                    "the child has no page there yet"
                );
                self.space.huge_drop(&mut copy);
                Errno::ENOMEM
            })
    }

    /// Copies a pinned page and returns an entry for the copy; the parent keeps the pinned page.
    fn copy_pinned(&mut self, addr: u64, entry: Pte) -> Result<Option<Pte>, Errno> {
        let (Some(&copy), Some(frame)) = (self.copies.last(), entry.anon_frame()) else {
            return Ok(None);
        };
        let there = self.space.frame(frame);
        if !there.is_pinned() {
            return Ok(None);
        }
        // The copy must show the page at one moment, but other threads of the parent may be writing
        // to it.
        self.space
            .restrict_flush(self.from, VmRange::page(addr), READ_ONLY);
        let ours = self.space.frame(copy);
        if let Some(anon_vma) = ours.mapping() {
            ours.set_mapping(anon_vma, there.index());
        }
        self.space.platform.copy(copy, frame)?;
        self.copies.pop();
        Ok(Some(Pte::Anon {
            frame: copy,
            writable: false,
        }))
    }
}

impl<E: Environment> Visitor for Copier<'_, E> {
    /// Creates the child's table even if the table stays empty, because a fault does not map a huge
    /// page where a table exists.
    fn table(&mut self, index: u64, positions: Range<usize>) {
        if self.result.is_ok() {
            match self.to.lock_table(index, positions) {
                Ok(table) => self.table = Some(table),
                Err(_) => self.result = Err(Errno::ENOMEM),
            }
        }
    }

    fn leave(&mut self) {
        self.table = None;
    }

    fn page(&mut self, addr: u64, entry: &mut Pte) {
        if self.result.is_ok() {
            self.result = self.copy(addr, entry);
        }
    }

    fn huge(&mut self, addr: u64, huge: &mut Huge, cover: Cover) -> HugeFate {
        let pinned = |frame: FrameId| self.space.frame(frame).is_pinned();
        let any_pinned = !self.copies.is_empty() && huge.frames().any(pinned);
        if cover == Cover::Part || any_pinned {
            return self.space.huge_split(huge);
        }
        if self.result.is_ok() {
            self.result = self.copy_huge(addr, huge);
        }
        HugeFate::Keep
    }
}

/// Why pages could not change their owner or be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// The page at this address is shared or is being migrated.
    Page(u64),
    /// There is no memory for a table or for the copy of a page.
    NoMemory,
}

impl From<Kept> for GivenUp {
    fn from(kept: Kept) -> GivenUp {
        match kept {
            Kept::Page(_) => GivenUp::Page,
            Kept::NoMemory => GivenUp::Memory,
        }
    }
}

impl From<Blocked> for Kept {
    fn from(blocked: Blocked) -> Kept {
        debug_assert_eq!(
            blocked,
            Blocked::NoMemory,
            "nothing is mapped at the new place"
        );
        Kept::NoMemory
    }
}

/// The owner of the pages in a range: an anon_vma, and the page offset of the first page.
pub(crate) type Owner = (AnonVmaId, Pgoff);

/// A change of owner for the pages in a range, with spare frames for copies of shared pages.
pub(super) struct NewOwner<'a> {
    table: &'a PageTable,
    /// The first address in the range.
    start: u64,
    was: Option<Owner>,
    becomes: Owner,
    spare: &'a mut Vec<FrameId>,
}

impl<'a> NewOwner<'a> {
    pub(super) fn new(
        (table, start): (&'a PageTable, u64),
        (was, becomes): (Option<Owner>, Owner),
        spare: &'a mut Vec<FrameId>,
    ) -> Self {
        NewOwner {
            table,
            start,
            was,
            becomes,
            spare,
        }
    }

    fn at(&self, (anon_vma, first): Owner, addr: u64) -> Owner {
        (anon_vma, first.plus_bytes(addr - self.start))
    }

    /// Transfers the page at `addr` to the new owner; replaces a shared page by a copy.
    ///
    /// A page is considered shared if another process maps it, or if another thread that is
    /// swapping it in or migrating it holds a map count on it and might map it. Swapped-out and KSM
    /// pages have no owner; they get one from the VMA when they are faulted in.
    ///
    /// # Errors
    /// The page is shared and must not or cannot be copied, or is being migrated and the policy
    /// waits for migrations. The page keeps its owner.
    pub(super) fn page<E: Environment>(
        &mut self,
        space: &Space<E>,
        addr: u64,
        entry: &mut Pte,
    ) -> Result<(), Kept> {
        let Some(frame) = entry.anon_frame() else {
            return Ok(());
        };
        let literal = space.policy.merging.sharing == SharingCheck::Thesis;
        if literal && matches!(entry, Pte::Migration { .. }) {
            return Err(Kept::Page(addr));
        }
        let there = space.frame(frame);
        let (anon_vma, index) = self.at(self.becomes, addr);
        if there.single_mapping() {
            there.set_mapping(anon_vma, index);
            return Ok(());
        }
        // There is one spare frame for each page that was shared when the pages were counted.
        let copy = match self.spare.pop() {
            None if !literal => space.frame_alloc(anon_vma, index).ok(),
            spare => spare,
        };
        let copy = copy.ok_or(Kept::Page(addr))?;
        // Until the flush, another thread may still write to the old frame.
        space.clear_flush(self.table, VmRange::page(addr));
        if space.platform.copy(copy, frame).is_err() {
            space.frame_abandon(copy);
            return Err(Kept::NoMemory);
        }
        space.frame(copy).set_mapping(anon_vma, index);
        space.frame_unmap(frame);
        *entry = Pte::Anon {
            frame: copy,
            writable: false,
        };
        Ok(())
    }

    /// Transfers a huge page to the new owner; returns false and changes nothing if the page is
    /// shared.
    pub(super) fn huge<E: Environment>(&self, space: &Space<E>, addr: u64, huge: &Huge) -> bool {
        let ours = space.huge_is_single(huge);
        if ours {
            let (anon_vma, index) = self.at(self.becomes, addr);
            space.huge_set_mapping(huge, anon_vma, index);
        }
        ours
    }

    /// Transfers the page at `addr` back to the old owner if it had been transferred to the new
    /// one.
    pub(super) fn give_back<E: Environment>(&self, space: &Space<E>, addr: u64, frame: FrameId) {
        let there = space.frame(frame);
        let (anon_vma, index) = self.at(self.becomes, addr);
        let changed = there.mapping() == Some(anon_vma) && there.index() == index;
        if changed && let Some(was) = self.was {
            let (anon_vma, index) = self.at(was, addr);
            there.set_mapping(anon_vma, index);
        }
    }

    /// Transfers the pages of a huge page back to the old owner.
    pub(super) fn give_back_huge<E: Environment>(&self, space: &Space<E>, addr: u64, huge: &Huge) {
        for (at, frame) in huge.frames().enumerate() {
            self.give_back(space, huge_page_addr(addr, at), frame);
        }
    }
}

struct Reowner<'a, E: Environment> {
    space: &'a Space<E>,
    to: NewOwner<'a>,
    /// The first error; after an error, no more pages change.
    result: Result<(), Kept>,
}

impl<E: Environment> Visitor for Reowner<'_, E> {
    fn page(&mut self, addr: u64, entry: &mut Pte) {
        if self.result.is_ok() {
            self.result = self.to.page(self.space, addr, entry);
        }
    }

    fn huge(&mut self, addr: u64, huge: &mut Huge, cover: Cover) -> HugeFate {
        let stays = self.result.is_err() && cover == Cover::Whole;
        if stays || cover == Cover::Whole && self.to.huge(self.space, addr, huge) {
            HugeFate::Keep
        } else {
            self.space.huge_split(huge)
        }
    }
}

/// Transfers pages back to their old owner.
struct GiveBack<'a, 'o, E: Environment> {
    space: &'a Space<E>,
    to: &'a NewOwner<'o>,
}

impl<E: Environment> Visitor for GiveBack<'_, '_, E> {
    fn page(&mut self, addr: u64, entry: &mut Pte) {
        if let Some(frame) = entry.anon_frame() {
            self.to.give_back(self.space, addr, frame);
        }
    }

    fn huge(&mut self, addr: u64, huge: &mut Huge, _: Cover) -> HugeFate {
        self.to.give_back_huge(self.space, addr, huge);
        HugeFate::Keep
    }
}

impl<E: Environment> PageTables<'_, E> {
    /// Removes the entries in `range` that `zap` selects.
    pub(crate) fn zap(&self, range: VmRange, zap: Zap) {
        let gather = Gather::new(self.space, self.table);
        self.table.visit(range, &mut Zapper { gather, zap });
    }

    /// Copies the entries in `range` to the page table `to`, and write-protects both copies.
    ///
    /// Pinned pages in the parent keep their frames and permissions; for each, `to` gets a copy in
    /// a frame from `copies`, owned by the child's own anon_vma.
    ///
    /// The parent's TLBs may still allow writes to the other pages. The caller must call
    /// [`flush`](Self::flush) before a thread of the parent can take `mmap_lock` or handle a fault
    /// in the VMA, and before the child runs.
    #[doc(alias = "copy_page_range")]
    pub(crate) fn copy_to(
        &self,
        to: &PageTable,
        range: VmRange,
        copies: Vec<FrameId>,
    ) -> Result<(), Errno> {
        let space = self.space;
        let mut copier = Copier {
            space,
            from: self.table,
            to,
            table: None,
            copies,
            result: Ok(()),
        };
        self.table.visit(range, &mut copier);
        space.restrict(self.table, range, READ_ONLY);
        let unused = copier.copies.into_iter();
        unused.for_each(|frame| space.frame_abandon(frame));
        copier.result
    }

    /// Removes the translations in `range` that have changed from all TLBs.
    pub(crate) fn flush(&self, range: VmRange) {
        self.space.flush(self.table, range);
    }

    /// Transfers the pages of `range`, part of one VMA, to another anon_vma without moving them.
    ///
    /// The new page offsets are consecutive. A page that another process also maps keeps its owner,
    /// and is replaced in this address space by a copy in a frame from `spare`.
    ///
    /// # Errors
    /// A page cannot change its owner. All pages then have the owner `was` again.
    pub(crate) fn reown(
        &self,
        range: VmRange,
        owners: (Owner, Owner),
        spare: &mut Vec<FrameId>,
    ) -> Result<(), Kept> {
        let old = self.anon_vma_root(range);
        let becomes = owners.1.0;
        let _locks = self
            .space
            .lock_anon_vma_roots(old.into_iter().chain([becomes]));
        self.reown_locked(range, owners, spare)
    }

    /// Transfers pages like [`reown`](Self::reown); the caller holds both anon_vma root locks.
    pub(crate) fn reown_locked(
        &self,
        range: VmRange,
        (was, becomes): (Owner, Owner),
        spare: &mut Vec<FrameId>,
    ) -> Result<(), Kept> {
        let to = NewOwner::new((self.table, range.start), (Some(was), becomes), spare);
        let space = self.space;
        let mut reowner = Reowner {
            space,
            to,
            result: Ok(()),
        };
        self.table.visit(range, &mut reowner);
        let Reowner { to, result, .. } = reowner;
        if result.is_err() {
            self.table.visit(range, &mut GiveBack { space, to: &to });
        }
        result
    }

    /// Transfers pages back to the owner `was` after [`reown_locked`](Self::reown_locked) has
    /// succeeded.
    pub(crate) fn give_back_locked(&self, range: VmRange, (was, becomes): (Owner, Owner)) {
        let mut none = Vec::new();
        let place = (self.table, range.start);
        let to = NewOwner::new(place, (Some(was), becomes), &mut none);
        let space = self.space;
        self.table.visit(range, &mut GiveBack { space, to: &to });
    }

    /// Returns the root of the anon_vma that owns the pages in a range, which is inside one VMA.
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
