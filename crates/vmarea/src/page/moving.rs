//! Moving the entries of a range, for `mremap`.
//!
//! Where both ends are aligned alike whole slots change place, tables and huge pages the same; else
//! the entries of one slot after the other. Pages may take another anon_vma and index on the way.
//!
//! # Locking
//! The families of the pages, old and new, are locked throughout, so that a walk of the reverse map
//! finds each page once, by the old way or by the new.
//!
//! # Linux
//! `mm/mremap.c` `move_page_tables`, `move_normal_pmd`, `move_huge_pmd`, 6.18. There a page-offset
//! update forces single entries; under the families' locks it need not.

use super::entry::{Pte, Was};
use super::range::NewOwner;
use super::slot::{ENTRIES, Slot, SlotKind, entry_of, part_of, slot_of, slot_start};
use super::table::PageTable;
use super::tables::PageTables;
use super::thp::{HugeEvent, huge_page_addr};
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, PMD_SIZE, Pgoff, VmRange};
use alloc::vec::Vec;
use smallvec::SmallVec;

/// The owner that moved pages get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageOwner {
    /// They keep anon_vma and index.
    Keep,
    /// They take this anon_vma, and the index that the first page of the new range has, counted on.
    Take(AnonVmaId, Pgoff),
}

/// A move under way.
struct Move<'a, E: Environment> {
    space: &'a Space<E>,
    table: &'a PageTable,
    range: VmRange,
    new_start: u64,
    owner: Option<NewOwner<'a>>,
}

impl<E: Environment> PageTables<'_, E> {
    /// Moves the entries of `range`, which lie in one VMA, to `new_start`. The two may overlap.
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
            // Upwards, so that an overlap is not overwritten before it has moved.
            slots.reverse();
        }
        slots.into_iter().for_each(|slot| one.slot(slot));
        // Linux goes upwards: in the slot in which the range ends and its new place begins it comes
        // upon the table that it has just made, and makes one for what follows as well.
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
        if aligned && whole && self.whole(index) {
            return;
        }
        self.space.page_tables(self.table).split_huge_at(start);
        self.entries(index);
    }

    /// Moves a slot as it is; false where the new place is not free.
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
                    // As if the entries had gone one by one: there a table stays behind.
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

    /// What a page that moves from `addr` takes along. Doing it twice does no harm.
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
        let start = slot_start(index);
        let part = part_of(start, self.range);
        let mut taken: SmallVec<[Pte; 16]> = SmallVec::from_elem(Pte::None, part.len());
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

    /// Puts entries that lie in one slot. A table is made there even if none is left to put: where
    /// there is one no huge page comes by a fault.
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
