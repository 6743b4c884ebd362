//! Moves the page-table entries of a range, for `mremap`.
//!
//! If the old and the new range have the same alignment within a slot, whole slots are moved, both
//! tables and huge pages; otherwise the entries are moved, slot by slot. The pages may get another
//! anon_vma and index during the move.
//!
//! # Locking
//! The family locks of the pages' old and new anon_vmas are held during the whole move, so that a
//! reverse-map walk finds each page once, either under the old anon_vma or under the new one.
//!
//! # Linux
//! `mm/mremap.c` `move_page_tables`, `move_normal_pmd`, `move_huge_pmd`, 6.18. In Linux, a move
//! that updates the page offset has to move single entries. Here it can move whole slots, because
//! it holds the family locks; the policy `thesis` moves single entries nevertheless.

use super::entry::{Pte, Was};
use super::huge::ENTRIES;
use super::range::NewOwner;
use super::slot::{Slot, SlotKind, entry_of, part_of, slot_of, slot_start};
use super::table::PageTable;
use super::tables::PageTables;
use super::thp::{HugeEvent, huge_page_addr};
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, PMD_SIZE, Pgoff, VmRange};
use alloc::vec::Vec;
use core::ops::Range;

/// Whether moved pages keep their anon_vma and index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageOwner {
    /// The pages keep their anon_vma and index.
    Keep,
    /// The pages get this anon_vma, and page offsets that increase from this page offset.
    Take(AnonVmaId, Pgoff),
}

/// Number of entries that are between their places at a time.
const AT_ONCE: usize = 64;

/// A move that is in progress.
struct Move<'a, E: Environment> {
    space: &'a Space<E>,
    table: &'a PageTable,
    range: VmRange,
    new_start: u64,
    owner: Option<NewOwner<'a>>,
}

impl<E: Environment> PageTables<'_, E> {
    /// Moves the entries of `range`, a part of one VMA, to `new_start`; the ranges may overlap.
    ///
    /// `was` is the anon_vma of that VMA. Pages that get another owner must not be shared.
    pub(crate) fn move_to(
        &self,
        range: VmRange,
        new_start: u64,
        (was, owner): (Option<AnonVmaId>, PageOwner),
    ) {
        let PageTables { space, table } = *self;
        let mut spare = Vec::new();
        let owner = match owner {
            PageOwner::Keep => None,
            PageOwner::Take(anon_vma, first) => Some(NewOwner {
                anon_vma,
                first: (range.start, first),
                spare: &mut spare,
            }),
        };
        let new = owner.as_ref().map(|to| to.anon_vma);
        let new = new.filter(|new| was != Some(*new));
        let _locks = space.lock_anon_vma_roots(was.into_iter().chain(new));
        let mut one = Move {
            space,
            table,
            range,
            new_start,
            owner,
        };
        let mut slots = table.slots_in(range);
        if new_start > range.start {
            // Highest slot first, so that the move does not overwrite overlapping entries.
            slots.reverse();
        }
        slots.into_iter().for_each(|slot| one.slot(slot));
        // Linux moves in ascending order. If the range ends in the slot in which the new range
        // begins, Linux reaches the table that it has just created there, and also creates a table
        // for the destination of the rest of that slot.
        let last = slot_of(range.end - 1);
        if range.end <= new_start && last == slot_of(new_start) {
            one.slot(last);
        }
    }
}

impl<E: Environment> Move<'_, E> {
    fn new_addr(&self, addr: u64) -> u64 {
        addr - self.range.start + self.new_start
    }

    fn slot(&mut self, index: u64) {
        let start = slot_start(index);
        if self.table.slot_kind(start) == SlotKind::Empty {
            return;
        }
        let aligned = (self.new_start ^ self.range.start).is_multiple_of(PMD_SIZE);
        let whole = self.range.start <= start && self.range.end - start >= PMD_SIZE;
        let by_entry = self.owner.is_some() && self.space.policy.merging.splits_huge;
        if aligned && whole && !by_entry && self.whole(index) {
            return;
        }
        self.space.page_tables(self.table).split_huge_at(start);
        self.entries(index);
    }

    /// Moves a slot as a whole; returns false if its entries have to be moved one by one.
    fn whole(&mut self, index: u64) -> bool {
        let start = slot_start(index);
        let stays = self.table.slot_kind(self.new_addr(start)) == SlotKind::Table;
        let Some(mut slot) = self.table.take_slot(index) else {
            return true;
        };
        let huge = matches!(slot, Slot::Huge(_));
        let ready = match &mut slot {
            Slot::Huge(huge) => match &mut self.owner {
                Some(to) => to.huge(self.space, start, huge),
                None => true,
            },
            Slot::Table(table) => {
                for at in 0..ENTRIES {
                    self.moved(&mut table.entries[at], huge_page_addr(start, at));
                }
                true
            }
        };
        if !ready {
            self.put_back(index, slot);
            return false;
        }
        match self.table.put_slot(slot_of(self.new_addr(start)), slot) {
            Ok(()) => {
                if huge {
                    self.space.huge.count(HugeEvent::MovedWhole);
                }
                if stays {
                    // The same result as for entry-by-entry moves, which leave the table in place.
                    self.table.with_table(index, |_| ());
                }
                true
            }
            Err(slot) => {
                self.put_back(index, slot);
                false
            }
        }
    }

    fn put_back(&self, index: u64, slot: Slot) {
        let back = self.table.put_slot(index, slot);
        debug_assert!(back.is_ok(), "it was just taken from there");
    }

    /// Updates the owner or KSM item of a page that moves from `addr`; the update is idempotent.
    fn moved(&mut self, entry: &mut Pte, addr: u64) {
        if let Some(to) = &mut self.owner {
            to.page(self.space, addr, entry);
        }
        if let Pte::Ksm { frame }
        | Pte::Migration {
            frame,
            was: Was::Ksm,
        } = *entry
        {
            self.space.ksm.remove(frame, self.table, addr);
            self.space.ksm.add(frame, self.table, self.new_addr(addr));
        }
    }

    /// Moves the entries of a slot one by one.
    fn entries(&mut self, index: u64) {
        let part = part_of(slot_start(index), self.range);
        let mut parts = part.clone().step_by(AT_ONCE);
        let ascending = self.new_start <= self.range.start;
        while let Some(from) = if ascending {
            parts.next()
        } else {
            parts.next_back()
        } {
            self.some_entries(index, from..part.end.min(from + AT_ONCE));
        }
    }

    /// Moves up to [`AT_ONCE`] entries of a slot.
    fn some_entries(&mut self, index: u64, part: Range<usize>) {
        let start = slot_start(index);
        let mut taken = [Pte::None; AT_ONCE];
        let table = self.table;
        let any = table.with_table(index, |table| {
            for at in part.clone() {
                let mut entry = table.entries[at];
                if entry != Pte::None {
                    table.set(at, Pte::None);
                    self.moved(&mut entry, huge_page_addr(start, at));
                    taken[at - part.start] = entry;
                }
            }
        });
        debug_assert!(any.is_some(), "no huge page is left there");
        let mut at = part.start;
        while at < part.end {
            let to = self.new_addr(huge_page_addr(start, at));
            let room = ENTRIES - entry_of(to);
            let end = part.end.min(at + room);
            self.put(&taken[at - part.start..end - part.start], to);
            at = end;
        }
    }

    /// Installs entries that are inside one slot.
    ///
    /// The table is created even if all entries are `None`: a fault maps no huge page over a table.
    fn put(&self, entries: &[Pte], to: u64) {
        let first = entry_of(to);
        let put = self.table.with_table(slot_of(to), |table| {
            for (at, entry) in entries.iter().enumerate() {
                if *entry != Pte::None {
                    table.set(first + at, *entry);
                }
            }
        });
        debug_assert!(put.is_some(), "nothing is mapped at the new place");
    }
}
