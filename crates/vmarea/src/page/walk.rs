//! The page walk: visits a range slot by slot and entry by entry, as its flags and the visitor say.
//!
//! The visitor answers for each slot of 2 MiB what comes next: its entries, the next slot, or the same
//! again (after it has cut a huge page, say). The flags do what every check of pages needs: hold the
//! reverse map still, and wait for pages that migrate. Zapping, copying and the like are in `range`.
//!
//! # Locking
//! With [`LOCK_RMAP`](WalkFlags::LOCK_RMAP) the family's lock is held while a slot's entries are
//! visited, and let go to wait for a migration, which needs it to end. Entries are shown under the
//! page-table lock; slots are shown without it.
//!
//! # Linux
//! `mm/pagewalk.c` `walk_page_range`, `ACTION_SUBTREE`, `ACTION_CONTINUE`, `ACTION_AGAIN`; the flags are
//! those that the thesis "VMA merging in Linux" adds (2.4.1). A huge page that is descended into is shown
//! as 512 entries, where Linux cuts it.

use super::entry::Pte;
use super::slot::{SlotKind, slot_start};
use super::table::PageTable;
use crate::space::Space;
use crate::types::platform::{Environment, Platform, Standard};
use crate::types::{AnonVmaId, PMD_SIZE, VmRange};
use core::ops::ControlFlow;
use vmarea_sync::ReadGuard;

bitflags::bitflags! {
    /// What a walk does by itself.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct WalkFlags: u32 {
        /// Hold the lock of the anon_vma's family.
        const LOCK_RMAP = 1;
        /// Wait for migrating pages, and show them when they have arrived.
        const MIGRATION = 2;
    }
}

/// What comes after a slot was shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WalkAction {
    /// Its entries.
    #[default]
    Subtree,
    /// The next slot.
    Continue,
    /// The same slot, read again.
    Again,
}

/// Who is shown the slots and entries of a walk.
pub trait WalkOps {
    /// A slot of 2 MiB that is not empty, by the first of its addresses that lies in the range.
    fn slot(&mut self, addr: u64, kind: SlotKind) -> WalkAction {
        let _ = (addr, kind);
        WalkAction::Subtree
    }

    /// An entry that is not `None`. A break ends the walk.
    fn page(&mut self, addr: u64, entry: Pte) -> ControlFlow<()>;
}

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walked {
    /// Everything was shown.
    All,
    /// The visitor ended it.
    Broken,
    /// The page at this address migrates, and the platform does not wait.
    MustWait(u64),
    /// The visitor asked for the slot of this address again and again.
    Endless(u64),
}

/// A slot is shown so often, at the most.
const AGAIN_LIMIT: u32 = 1 << 12;

/// A walk over a part of one VMA.
#[derive(Clone, Copy, Debug)]
pub struct PageWalk<'a, E: Environment = Standard> {
    pub(crate) space: &'a Space<E>,
    /// The page table.
    pub table: &'a PageTable,
    /// The VMA's anon_vma, whose family [`WalkFlags::LOCK_RMAP`] locks.
    pub anon_vma: Option<AnonVmaId>,
    /// What it does by itself.
    pub flags: WalkFlags,
}

impl<'a, E: Environment> PageWalk<'a, E> {
    fn lock(&self) -> Option<ReadGuard<'a, E::Wait>> {
        let anon_vma = self
            .anon_vma
            .filter(|_| self.flags.contains(WalkFlags::LOCK_RMAP))?;
        self.space.anon_vma_read_lock(anon_vma)
    }

    /// Walks `range`, in order of address.
    #[doc(alias = "walk_page_range")]
    pub fn walk(&self, range: VmRange, ops: &mut impl WalkOps) -> Walked {
        for index in self.table.slots_in(range) {
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
