//! Moves the page-table entries in a range, for `mremap`.
//!
//! If the old and the new range have the same alignment within a 2 MiB slot, whole slots are moved,
//! whether they contain a table or a huge page. Otherwise the entries in each slot are moved
//! individually. The pages may get another anon_vma and index during the move. If a page cannot
//! change its owner, or there is no memory for a table, everything that has been moved is moved
//! back.
//!
//! The hardware's translations of the old addresses are removed before the entries are installed at
//! the new addresses, because a concurrent reverse-map walk that unmaps a moved page flushes only
//! the new address.
//!
//! # Locking
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

/// Maximum number of entries that are removed before they are installed at their new addresses.
const AT_ONCE: usize = 64;

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
        self.space
            .clear_flush(table, VmRange::new(start, start + PMD_SIZE));
        table.exchange_slots((index, to), |slot| match slot {
            Slot::Huge(page) => {
                huge = true;
                self.moved_huge(page, start)
            }
            Slot::Table(table) => self.moved_table(table, start),
            Slot::Vacant => Ok(()),
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
        for at in 0..ENTRIES {
            if let Err(kept) = self.moved(&mut table.entries[at], huge_page_addr(start, at)) {
                for at in 0..at {
                    self.unmoved(table.entries[at], huge_page_addr(start, at));
                }
                return Err(Stopped::Kept(kept));
            }
        }
        Ok(())
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

    /// Moves the entries in a slot one by one.
    fn entries(&mut self, index: u64) -> Result<(), Kept> {
        let part = part_of(slot_start(index), self.range);
        let mut parts = part.clone().step_by(AT_ONCE);
        let ascending = self.new_start <= self.range.start;
        while let Some(from) = if ascending {
            parts.next()
        } else {
            parts.next_back()
        } {
            self.some_entries(index, from..part.end.min(from + AT_ONCE))?;
        }
        Ok(())
    }

    /// Moves up to [`AT_ONCE`] entries in a slot; stops at the first that cannot be moved.
    ///
    /// Tables are created at the destination even if all entries are `None`, because a fault does
    /// not map a huge page where a table exists.
    fn some_entries(&mut self, index: u64, part: Range<usize>) -> Result<(), Kept> {
        let start = slot_start(index);
        let table = self.table;
        let addr = |at| huge_page_addr(start, at);
        for at in [part.start, part.end - 1] {
            table.make_table(self.new_addr(addr(at)))?;
        }
        self.space
            .clear_flush(table, VmRange::new(addr(part.start), addr(part.end)));
        let mut taken = [Pte::None; AT_ONCE];
        let moved = table.with_table(index, |table| {
            for at in part.clone() {
                let mut entry = table.entries[at];
                if entry != Pte::None {
                    self.moved(&mut entry, huge_page_addr(start, at))?;
                    table.set(at, Pte::None);
                    taken[at - part.start] = entry;
                }
            }
            Ok(())
        });
        let mut at = part.start;
        while at < part.end {
            let to = self.new_addr(huge_page_addr(start, at));
            let room = ENTRIES - entry_of(to);
            let end = part.end.min(at + room);
            self.put(&taken[at - part.start..end - part.start], to);
            at = end;
        }
        moved?
    }

    /// Installs entries within one slot, which already has a table.
    fn put(&self, entries: &[Pte], to: u64) {
        let first = entry_of(to);
        let put = self.table.with_table(slot_of(to), |table| {
            for (at, entry) in entries.iter().enumerate() {
                if *entry != Pte::None {
                    table.set(first + at, *entry);
                }
            }
        });
        debug_assert!(put.is_ok(), "the table was made before");
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
