//! The page walk: visits the pages in a range slot by slot and entry by entry.
//!
//! For each 2 MiB slot, the visitor chooses the next step: to visit the slot's entries, to skip to
//! the next slot, or to visit the same slot again, for example after splitting a huge page. The
//! flags enable features for code that inspects pages: locking the reverse map, and waiting for
//! pages that are being migrated. Zap, copy and similar operations are in `range`.
//!
//! # Locking
//! With [`LOCK_RMAP`](WalkFlags::LOCK_RMAP) the family lock of the anon_vma is held while a slot's
//! entries are visited. The lock is released during a wait for a migration, because the migration
//! cannot end without taking the lock. The visitor receives entries under the page-table lock, and
//! slots without it.
//!
//! # Linux
//! `mm/pagewalk.c` `walk_page_range`, `ACTION_SUBTREE`, `ACTION_CONTINUE`, `ACTION_AGAIN`; the
//! flags are those that the thesis "VMA merging in Linux" adds (2.4.1). The entries of a huge page
//! are visited as 512 small entries; Linux splits the huge page.

use super::entry::Pte;
use super::slot::{SlotKind, slot_start, slots_of};
use super::table::PageTable;
use crate::Space;
use crate::types::platform::{Environment, Platform, Standard};
use crate::types::{AnonVmaId, PMD_SIZE, VmRange};
use core::ops::ControlFlow;
use vmarea_sync::ReadGuard;

bitflags::bitflags! {
    /// Optional features of a walk.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct WalkFlags: u32 {
        /// Hold the family lock of the anon_vma while the entries in a slot are visited.
        const LOCK_RMAP = 1;
        /// Wait for the migration of a page to end, then visit the page.
        const MIGRATION = 2;
    }
}

/// What a walk does after the visitor has seen a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WalkAction {
    /// Visit the entries in the slot.
    #[default]
    Subtree,
    /// Skip to the next slot.
    Continue,
    /// Visit the same slot again.
    Again,
}

/// The visitor of a walk.
pub trait WalkOps {
    /// Called for each nonempty 2 MiB slot. `addr` is the slot's first address inside the range.
    fn slot(&mut self, addr: u64, kind: SlotKind) -> WalkAction {
        let _ = (addr, kind);
        WalkAction::Subtree
    }

    /// Called for each entry that is not `None`; returning `Break` ends the walk.
    fn page(&mut self, addr: u64, entry: Pte) -> ControlFlow<()>;
}

/// The outcome of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walked {
    /// The whole range was visited.
    All,
    /// The visitor ended the walk early.
    Broken,
    /// The page at this address is being migrated, and the platform does not wait for migrations.
    MustWait(u64),
    /// The visitor requested too many visits to the slot at this address.
    Endless(u64),
}

/// Maximum number of times that one slot is visited.
const AGAIN_LIMIT: u32 = 1 << 12;

/// A walk over part of one VMA.
#[derive(Clone, Copy, Debug)]
pub struct PageWalk<'a, E: Environment = Standard> {
    pub(crate) space: &'a Space<E>,
    /// The page table to walk.
    pub table: &'a PageTable,
    /// The VMA's anon_vma, to whose family [`WalkFlags::LOCK_RMAP`] applies.
    pub anon_vma: Option<AnonVmaId>,
    /// The optional features that the walk uses.
    pub flags: WalkFlags,
}

impl<'a, E: Environment> PageWalk<'a, E> {
    fn lock(&self) -> Option<ReadGuard<'a, E::Wait>> {
        let anon_vma = self
            .anon_vma
            .filter(|_| self.flags.contains(WalkFlags::LOCK_RMAP))?;
        self.space.anon_vma_read_lock(anon_vma)
    }

    /// Walks `range` in ascending address order.
    #[doc(alias = "walk_page_range")]
    pub fn walk(&self, range: VmRange, ops: &mut impl WalkOps) -> Walked {
        let mut slots = slots_of(range);
        while let Some(index) = self.table.next_slot(&mut slots) {
            let start = slot_start(index);
            let part = VmRange::new(start, start + PMD_SIZE).clip(range);
            match self.slot(part, ops) {
                Walked::All => {}
                other => return other,
            }
        }
        Walked::All
    }

    fn slot(&self, part: VmRange, ops: &mut impl WalkOps) -> Walked {
        for _ in 0..AGAIN_LIMIT {
            let kind = self.table.slot_kind(part.start);
            if kind == SlotKind::Empty {
                return Walked::All;
            }
            match ops.slot(part.start, kind) {
                WalkAction::Continue => return Walked::All,
                WalkAction::Subtree => return self.entries(part, ops),
                WalkAction::Again => {}
            }
        }
        Walked::Endless(part.start)
    }

    #[doc(alias = "walk_pte_range")]
    fn entries(&self, mut part: VmRange, ops: &mut impl WalkOps) -> Walked {
        loop {
            let held = self.lock();
            let mut migrating = None;
            let mut broken = false;
            self.table.for_each(part, |addr, entry| {
                if let Pte::Migration { frame, .. } = entry
                    && self.flags.contains(WalkFlags::MIGRATION)
                {
                    migrating = Some((addr, frame));
                    return ControlFlow::Break(());
                }
                let flow = ops.page(addr, entry);
                broken = flow.is_break();
                flow
            });
            drop(held);
            match migrating {
                None if broken => return Walked::Broken,
                None => return Walked::All,
                Some((addr, frame)) => {
                    if !self.space.platform.wait_on_migration(frame) {
                        return Walked::MustWait(addr);
                    }
                    part.start = addr;
                }
            }
        }
    }
}
