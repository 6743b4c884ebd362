//! Moves the page-table entries in a range, for `mremap`.
//!
//! If the old and the new range have the same alignment within a 2 MiB slot, whole slots are moved,
//! whether they contain a table or a huge page. Otherwise the entries in each slot are moved
//! individually. The pages may get another anon_vma and index during the move. If a page cannot
//! change its owner, or there is no memory for a table, everything that has been moved is moved
//! back.
//!
//! The hardware's entries move with the core's, so that the next access does not fault. The TLBs are
//! flushed before a concurrent reverse-map walk can find a moved page, because a walk that unmaps
//! the page flushes only the new address.
//!
//! # Locking
//! The locks of the old and the new page table are held together while entries move.
//! The family locks of the pages' old and new anon_vmas are held during the whole move, so that a
//! reverse-map walk finds each page once, either under the old anon_vma or under the new one.
//!
//! # Linux
//! `mm/mremap.c` `move_page_tables`, `move_normal_pmd`, `move_huge_pmd`, 6.18. In Linux, a move
//! that updates the page offset has to move single entries. Here it can move whole slots, because
//! it holds the family locks; the policy `thesis` moves single entries nevertheless.

use super::entry::{ENTRIES, Pte, Was};
use super::huge::Huge;
use super::range::{Kept, NewOwner, Owner};
use super::shard::Blocked;
use super::slot::{Slot, SlotKind, Table, entry_of, part_of, slot_of, slot_start, slots_of};
use super::table::PageTable;
use super::tables::PageTables;
use super::thp::{HugeEvent, huge_page_addr};
use crate::Space;
use crate::types::mmu::Mmu;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, PMD_SIZE, Pgoff, VmRange};
use alloc::vec::Vec;
use core::ops::Range;

/// Whether moved pages keep their anon_vma and index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageOwner {
    /// The pages keep their anon_vma and index.
    Keep,
    /// The pages get this anon_vma, and consecutive page offsets starting at this one.
    Take(AnonVmaId, Pgoff),
}

/// The direction of a move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forth,
    /// After a failure, moves everything back to its old address, which needs no memory.
    Back,
}

/// A move that is in progress.
struct Move<'a, E: Environment> {
    space: &'a Space<E>,
    table: &'a PageTable,
    range: VmRange,
    new_start: u64,
    way: Way,
    owner: Option<NewOwner<'a>>,
    /// The old addresses of moved entries that TLBs may still contain.
    unflushed: VmRange,
}

impl<E: Environment> PageTables<'_, E> {
    /// Moves the entries in `range`, part of one VMA, to `new_start`, where nothing is mapped.
    ///
    /// `was` is the anon_vma of the VMA that contains `range`, with the page offset of the first
    /// page in the range. Pages that get another owner must not be shared.
    ///
    /// # Errors
    /// A page cannot change its owner, or there is not enough memory. All pages are then at their
    /// old addresses again, with their old owner.
    pub(crate) fn move_to(
        &self,
        range: VmRange,
        new_start: u64,
        (was, owner): (Option<Owner>, PageOwner),
    ) -> Result<(), Kept> {
        let PageTables { space, table } = *self;
        // The merge decision found the pages unshared.
        let (mut none, mut none_back) = (Vec::new(), Vec::new());
        let becomes = match owner {
            PageOwner::Keep => None,
            PageOwner::Take(anon_vma, first) => Some((anon_vma, first)),
        };
        let old = was.map(|(anon_vma, _)| anon_vma);
        let new = becomes.map(|(anon_vma, _)| anon_vma);
        let new = new.filter(|new| old != Some(*new));
        let _locks = space.lock_anon_vma_roots(old.into_iter().chain(new));
        let moved = Move {
            space,
            table,
            range,
            new_start,
            way: Way::Forth,
            unflushed: VmRange::new(0, 0),
            owner: becomes
                .map(|becomes| NewOwner::new((table, range.start), (was, becomes), &mut none)),
        }
        .all();
        let place = VmRange::new(new_start, new_start + range.len_bytes());
        if moved.is_err() {
            let back = Move {
                space,
                table,
                range: place,
                new_start: range.start,
                way: Way::Back,
                unflushed: VmRange::new(0, 0),
                owner: becomes.map(|becomes| {
                    NewOwner::new((table, new_start), (was, becomes), &mut none_back)
                }),
            }
            .all();
            debug_assert!(back.is_ok(), "the old place is still there");
        }
        table.forget_vacant(range);
        table.forget_vacant(place);
        moved
    }
}

impl<E: Environment> Move<'_, E> {
    fn all(mut self) -> Result<(), Kept> {
        let moved = self.slots();
        self.space.flush(self.table, self.unflushed);
        moved
    }

    fn slots(&mut self) -> Result<(), Kept> {
        let mut slots = slots_of(self.range);
        // If the pages move up, highest slot first, in the order in which Linux creates tables.
        let up = self.new_start > self.range.start;
        while let Some(index) = match up {
            true => self.table.next_slot_back(&mut slots),
            false => self.table.next_slot(&mut slots),
        } {
            self.slot(index)?;
        }
        // Linux moves in ascending order. If the range ends in the slot in which the new range
        // begins, Linux reaches the table that it has just created there, and also creates a table
        // for the destination of the rest of that slot.
        let last = slot_of(self.range.end - 1);
        if self.way == Way::Forth
            && self.range.end <= self.new_start
            && last == slot_of(self.new_start)
        {
            self.slot(last)?;
        }
        Ok(())
    }

    /// True if nothing but the page table changes: pages keep their owner, and there is no KSM page,
    /// whose reverse map would have to learn the new address. The caller holds the locks of the
    /// page tables.
    fn is_plain(&self) -> bool {
        self.owner.is_none() && self.space.ksm.is_empty()
    }

    fn new_addr(&self, addr: u64) -> u64 {
        addr - self.range.start + self.new_start
    }

    fn slot(&mut self, index: u64) -> Result<(), Kept> {
        let start = slot_start(index);
        if self.table.slot_kind(start) == SlotKind::Empty {
            return Ok(());
        }
        let aligned = (self.new_start ^ self.range.start).is_multiple_of(PMD_SIZE);
        let whole = self.range.start <= start && self.range.end - start >= PMD_SIZE;
        let by_entry = self.owner.is_some() && self.space.policy.merging.splits_huge;
        if aligned && whole && !by_entry {
            match self.whole(index) {
                Err(Stopped::ByEntry) => {}
                Err(Stopped::Kept(kept)) => return Err(kept),
                Ok(()) => return Ok(()),
            }
        }
        self.space.page_tables(self.table).split_huge_at(start);
        self.entries(index)
    }

    /// Moves a slot as a whole.
    fn whole(&mut self, index: u64) -> Result<(), Stopped> {
        let start = slot_start(index);
        let to = slot_of(self.new_addr(start));
        let table = self.table;
        let mut huge = false;
        table.exchange_slots((index, to), |slot| {
            let moved = match slot {
                Slot::Huge(page) => {
                    huge = true;
                    self.moved_huge(page, start)
                }
                Slot::Table(table) => self.moved_table(table, start),
                Slot::Vacant => Ok(()),
            };
            moved.inspect(|()| self.move_hardware(VmRange::new(start, start + PMD_SIZE)))
        })?;
        if huge && self.way == Way::Forth {
            self.space.huge.count(HugeEvent::MovedWhole);
        }
        Ok(())
    }

    fn moved_huge(&mut self, huge: &Huge, start: u64) -> Result<(), Stopped> {
        match (&self.owner, self.way) {
            (Some(to), Way::Forth) if !to.huge(self.space, start, huge) => Err(Stopped::ByEntry),
            (Some(to), Way::Back) => {
                to.give_back_huge(self.space, start, huge);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Updates the pages in a table that is being moved; changes nothing if one page cannot be
    /// updated.
    fn moved_table(&mut self, table: &mut Table, start: u64) -> Result<(), Stopped> {
        if self.is_plain() {
            return Ok(());
        }
        let mut entries = table.iter_mut();
        let failed = entries.find_map(|(at, entry)| {
            let moved = self.moved(entry, huge_page_addr(start, at));
            Some((at, moved.err()?))
        });
        drop(entries);
        let Some((failed, kept)) = failed else {
            return Ok(());
        };
        for at in table.positions().start..failed {
            self.unmoved(table.get(at), huge_page_addr(start, at));
        }
        Err(Stopped::Kept(kept))
    }

    /// Updates the owner or KSM item of a page that is being moved from `addr`.
    fn moved(&mut self, entry: &mut Pte, addr: u64) -> Result<(), Kept> {
        match (&mut self.owner, self.way) {
            (Some(to), Way::Forth) => to.page(self.space, addr, entry)?,
            (Some(to), Way::Back) => {
                if let Some(frame) = entry.anon_frame() {
                    to.give_back(self.space, addr, frame);
                }
            }
            (None, _) => {}
        }
        self.moved_item(*entry, (addr, self.new_addr(addr)));
        Ok(())
    }

    /// Undoes the effect of [`moved`](Self::moved) in the direction `Forth`.
    fn unmoved(&self, entry: Pte, addr: u64) {
        if let (Some(to), Some(frame)) = (&self.owner, entry.anon_frame()) {
            to.give_back(self.space, addr, frame);
        }
        self.moved_item(entry, (self.new_addr(addr), addr));
    }

    fn moved_item(&self, entry: Pte, (from, to): (u64, u64)) {
        if let Pte::Ksm { frame }
        | Pte::Migration {
            frame,
            was: Was::Ksm,
        } = entry
        {
            self.space.ksm.moved(frame, self.table, (from, to));
        }
    }

    /// Moves the entries in a slot to one or two other slots.
    ///
    /// Tables are created at the destination even if all entries are `None`, because a fault does
    /// not map a huge page where a table exists.
    fn entries(&mut self, index: u64) -> Result<(), Kept> {
        let start = slot_start(index);
        let part = part_of(start, self.range);
        // The entries below `cut` move to one slot, and the others to the next slot.
        let first = entry_of(self.new_addr(huge_page_addr(start, part.start)));
        let cut = part.end.min(part.start + ENTRIES - first);
        let mut parts = [part.start..cut, cut..part.end];
        if self.new_start > self.range.start {
            parts.reverse();
        }
        parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .try_for_each(|part| self.some_entries(index, part))
    }

    /// Moves entries from one slot to another; stops at the first that cannot be moved.
    fn some_entries(&mut self, index: u64, part: Range<usize>) -> Result<(), Kept> {
        let start = slot_start(index);
        let addr = |at: usize| huge_page_addr(start, at);
        let new = self.new_addr(addr(part.start));
        self.table.with_tables((index, slot_of(new)), |pair| {
            let to = entry_of(new);
            let (moved, result) = match self.is_plain() {
                true => (pair.move_all(part, to), Ok(())),
                false => pair.move_entries(part, to, |at, entry| self.moved(entry, addr(at))),
            };
            self.move_hardware(VmRange::new(addr(moved.start), addr(moved.end)));
            result
        })?
    }

    /// Makes the hardware's entries in `range` follow those that have just moved.
    ///
    /// If nobody but a reverse-map walk from an anon_vma could find the pages, one flush at the end
    /// of the whole move suffices, because such a walk waits for the family lock.
    fn move_hardware(&mut self, range: VmRange) {
        if !E::Mmu::PRESENT || range.is_empty() {
            return;
        }
        if let Some(mm) = self.table.owner() {
            let to = self.new_addr(range.start);
            self.space.mmu.move_entries(mm, range, to);
        }
        if !self.is_plain() {
            return self.space.flush(self.table, range);
        }
        let all = &mut self.unflushed;
        *all = match all.is_empty() {
            true => range,
            false => VmRange::new(all.start.min(range.start), all.end.max(range.end)),
        };
    }
}

/// Why a slot could not be moved as a whole.
enum Stopped {
    /// The entries in the slot have to be moved one by one.
    ByEntry,
    Kept(Kept),
}

impl From<Blocked> for Stopped {
    fn from(blocked: Blocked) -> Stopped {
        match blocked {
            Blocked::InUse => Stopped::ByEntry,
            Blocked::NoMemory => Stopped::Kept(Kept::NoMemory),
        }
    }
}
