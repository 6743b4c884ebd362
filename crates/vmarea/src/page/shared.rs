//! Counts the shared pages in a range, before the pages get another anon_vma or index.
//!
//! [`SharingCheck`] selects one of two definitions of a shared page. `Thesis` follows the thesis
//! literally: a mapped page is shared if its map count plus its swap count exceeds 1, and a
//! swapped-out page is shared if its swap-map entry, including the flags, exceeds 1. `Truth` counts
//! only pages that another address space maps. Under `Truth`, a swapped-out page is not shared even
//! if other entries refer to its swap slot: the page has no owner that could change, and gets an
//! owner from the VMA into which it is faulted in. For the same reason, KSM pages are never
//! counted.
//!
//! # Linux
//! Section 2.2 of the thesis "VMA merging in Linux". In the thesis, the flag `SWAP_HAS_CACHE`
//! counts as sharing, although a page in the cache may belong to a single process.

use super::entry::ENTRIES;
use super::entry::{Pte, Was};
use super::frame::Mark;
use super::huge::Huge;
use super::slot::{HugeFate, SlotKind, slot_end};
use super::table::PageTable;
use super::tables::PageTables;
use super::walk::{PageWalk, WalkAction, WalkFlags, WalkOps, Walked};
use crate::Space;
use crate::policy::SharingCheck;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, FrameId, MmId, SwapId, VmRange};
use alloc::vec::Vec;
use core::ops::ControlFlow;

/// Why a page is considered shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Another page-table entry maps the page.
    Mapped,
    /// Other entries refer to the page's swap slot, or the page is in the swap cache.
    Swapped,
    /// It is unknown whether the page is shared, because it is being migrated.
    Migrating,
}

/// A page that is considered shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedPage {
    /// The address of the page.
    pub addr: u64,
    /// Why the page is considered shared.
    pub why: Why,
}

/// The shared pages in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SharedPages {
    /// The first shared page that was found.
    pub first: Option<SharedPage>,
    /// Number of shared pages.
    ///
    /// With [`SharingCheck::Thesis`], counting may stop at the first shared page. If a page is
    /// being migrated and the platform does not wait for the migration, the number is `u64::MAX`.
    pub count: u64,
}

impl SharedPages {
    fn add(&mut self, addr: u64, why: Why, pages: u64) {
        self.first = self.first.or(Some(SharedPage { addr, why }));
        self.count = self.count.saturating_add(pages);
    }
}

impl<E: Environment> PageTables<'_, E> {
    /// Returns the shared pages in `range`, which lies in one VMA with this anon_vma.
    ///
    /// The result stays valid as long as the caller holds `mmap_lock`, for reading or writing,
    /// because the lock prevents forks.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::policy::SharingCheck;
    ///
    /// let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
    /// space.fault(mm, at, Access::Write)?;
    /// space.fault(mm, at + PAGE_SIZE, Access::Write)?;
    /// let child = space.fork(mm)?;
    /// space.fault(child, at, Access::Write)?;
    ///
    /// let guard = space.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
    /// let vma = guard.vma_lookup(at).expect("mapped");
    /// let check = SharingCheck::Truth;
    /// let shared = guard.page_tables().shared_pages(vma.anon_vma, vma.range, check);
    /// assert_eq!(shared.count, 1, "the child has a copy of the other page");
    /// assert_eq!(shared.first.map(|page| page.addr), Some(at + PAGE_SIZE));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn shared_pages(
        &self,
        anon_vma: Option<AnonVmaId>,
        range: VmRange,
        check: SharingCheck,
    ) -> SharedPages {
        let PageTables { space, table } = *self;
        let walk = PageWalk {
            space,
            table,
            anon_vma,
            flags: WalkFlags::LOCK_RMAP | WalkFlags::MIGRATION,
        };
        let mut visitor = Check {
            space,
            table,
            range,
            check,
            found: SharedPages::default(),
            doubtful: Vec::new(),
        };
        let walked = walk.walk(range, &mut visitor);
        let Check {
            mut found,
            doubtful,
            ..
        } = visitor;
        if let Walked::MustWait(addr) | Walked::Endless(addr) = walked {
            found.add(addr, Why::Migrating, u64::MAX);
        }
        for (addr, frame) in doubtful {
            if space.mapped_by_another(frame, table.owner()) {
                found.add(addr, Why::Mapped, 1);
            }
        }
        found
    }
}

impl<E: Environment> Space<E> {
    /// True if another address space maps the page. The caller must hold no page-table lock.
    fn mapped_by_another(&self, frame: FrameId, owner: Option<MmId>) -> bool {
        let mut another = false;
        self.rmap_walk(frame, |mapping| another |= Some(mapping.mm) != owner);
        another
    }
}

struct Check<'a, E: Environment> {
    space: &'a Space<E>,
    table: &'a PageTable,
    range: VmRange,
    check: SharingCheck,
    found: SharedPages,
    /// Pages with several mappings, perhaps all in one process (only for `SharingCheck::Truth`).
    doubtful: Vec<(u64, FrameId)>,
}

impl<E: Environment> Check<'_, E> {
    /// Records a shared page and ends the walk, for `SharingCheck::Thesis`.
    fn found(&mut self, addr: u64, why: Why) -> ControlFlow<()> {
        self.found.add(addr, why, 1);
        ControlFlow::Break(())
    }

    #[inline]
    fn frame(&mut self, addr: u64, frame: FrameId) -> ControlFlow<()> {
        let there = self.space.frame(frame);
        if there.mapcount() == 1 && !there.is_marked() {
            return ControlFlow::Continue(());
        }
        let mapped = there.mapcount() - u32::from(there.is(Mark::Locked)).min(there.mapcount());
        match self.check {
            SharingCheck::Truth => {
                if mapped > 1 && self.doubtful.try_reserve(1).is_ok() {
                    self.doubtful.push((addr, frame));
                } else if mapped > 1 {
                    // There is no memory to record the page for a later check, so it counts as
                    // shared.
                    self.found.add(addr, Why::Mapped, 1);
                }
                ControlFlow::Continue(())
            }
            SharingCheck::Thesis if mapped > 1 => self.found(addr, Why::Mapped),
            SharingCheck::Thesis => {
                if mapped + self.space.swap.count_of_frame(frame) > 1 {
                    self.found(addr, Why::Swapped)
                } else {
                    ControlFlow::Continue(())
                }
            }
        }
    }

    fn slot_entry(&mut self, addr: u64, slot: SwapId) -> ControlFlow<()> {
        if self.check == SharingCheck::Thesis && self.space.swap_map(slot).0 > 1 {
            self.found(addr, Why::Swapped)
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl<E: Environment> WalkOps for Check<'_, E> {
    fn slot(&mut self, addr: u64, kind: SlotKind) -> WalkAction {
        if kind != SlotKind::Huge {
            return WalkAction::Subtree;
        }
        if self.space.policy.merging.splits_huge {
            self.space.page_tables(self.table).split_huge_at(addr);
            return WalkAction::Again;
        }
        let whole = |huge: &mut Huge| (self.space.huge_whole(huge), HugeFate::Keep);
        match self.table.update_huge(addr, whole) {
            // Another thread has split the huge page: visit the slot again.
            None => WalkAction::Again,
            Some(0) => WalkAction::Continue,
            Some(1) => WalkAction::Subtree,
            Some(_) => {
                // No address space maps a huge page twice.
                let part = VmRange::new(addr, slot_end(addr).min(self.range.end));
                debug_assert!(part.pages() <= ENTRIES as u64);
                self.found.add(addr, Why::Mapped, part.pages());
                WalkAction::Continue
            }
        }
    }

    fn page(&mut self, addr: u64, entry: Pte) -> ControlFlow<()> {
        match entry {
            Pte::Anon { frame, .. }
            | Pte::Migration {
                frame,
                was: Was::ReadOnly | Was::Writable,
            } => self.frame(addr, frame),
            Pte::Swap { slot } => self.slot_entry(addr, slot),
            _ => ControlFlow::Continue(()),
        }
    }
}
