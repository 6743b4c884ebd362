//! Slots of a page table: each covers the size of a huge page, with either a table of `ENTRIES`
//! entries or one huge page.
//!
//! This module defines a slot; the vector that contains the slot and the lock that protects the
//! slot are in `shard` and `table`. Code that visits a range implements [`Visitor`], which receives
//! the range's entries and huge pages.

use super::entry::{ENTRIES, Pte, new_entries};
use super::huge::Huge;
use crate::types::{Errno, PAGE_SHIFT, PAGE_SIZE, PMD_SIZE, VmRange};
use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

const TABLE_SHIFT: u32 = PMD_SIZE.trailing_zeros();

/// Number of entries in a window, a small table.
const WINDOW: usize = ENTRIES / 8;

/// A table of `ENTRIES` entries, or of a window of them while all others are `None`.
///
/// A program that touches memory sparsely has few entries in each of many tables, and a whole table
/// has 6 KiB or more.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) entries: Vec<Pte>,
    /// Position of the first of these entries.
    first: u32,
    /// Number of entries that are not `None`.
    pub(super) used: u32,
}

impl Table {
    /// Creates an empty table with the entries at `positions`.
    pub(super) fn new(positions: &Range<usize>) -> Result<Self, Errno> {
        let first = positions.start - positions.start % WINDOW;
        let window = first..first + WINDOW;
        let Range { start, end } = match positions.end <= window.end {
            true => window,
            false => 0..ENTRIES,
        };
        Ok(Self {
            entries: new_entries(Pte::None, end - start)?,
            first: start as u32,
            used: 0,
        })
    }

    /// Creates a table of all entries.
    pub(super) fn of(entries: Vec<Pte>) -> Self {
        debug_assert_eq!(entries.len(), ENTRIES);
        let used = entries.iter().filter(|e| **e != Pte::None).count() as u32;
        let first = 0;
        Self {
            entries,
            first,
            used,
        }
    }

    /// Returns the positions of the entries that the table has.
    pub(super) fn positions(&self) -> Range<usize> {
        let first = self.first as usize;
        first..first + self.entries.len()
    }

    /// Adds the entries at `positions`, if the table does not have them.
    #[inline]
    pub(super) fn cover(&mut self, positions: &Range<usize>) -> Result<(), Errno> {
        let own = self.positions();
        match own.start <= positions.start && positions.end <= own.end {
            true => Ok(()),
            false => self.complete(),
        }
    }

    #[cold]
    fn complete(&mut self) -> Result<(), Errno> {
        let mut all = new_entries(Pte::None, ENTRIES)?;
        all[self.positions()].copy_from_slice(&self.entries);
        (self.entries, self.first) = (all, 0);
        Ok(())
    }

    /// Returns the entry at a position.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Pte {
        let entry = self.entries.get(at.wrapping_sub(self.first as usize));
        entry.copied().unwrap_or(Pte::None)
    }

    /// Returns the entry at a position, if the table has it, and the number of entries in use.
    #[inline]
    pub(super) fn entry_mut(&mut self, at: usize) -> Option<(&mut Pte, &mut u32)> {
        let entry = self.entries.get_mut(at.wrapping_sub(self.first as usize))?;
        Some((entry, &mut self.used))
    }

    /// Returns the entries that the table has, with their positions.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Pte)> {
        (self.first as usize..).zip(&mut self.entries)
    }

    /// Modifies an entry with `f` and updates `used`; `None` if the table does not have the entry.
    #[inline]
    pub(super) fn change<R>(&mut self, at: usize, f: impl FnOnce(&mut Pte) -> R) -> Option<R> {
        self.entry_mut(at).map(|entry| change(entry, f))
    }
}

/// Modifies an entry with `f` and updates the number of entries in use.
#[inline]
pub(super) fn change<R>((entry, used): (&mut Pte, &mut u32), f: impl FnOnce(&mut Pte) -> R) -> R {
    let was = *entry != Pte::None;
    let result = f(entry);
    let is = *entry != Pte::None;
    *used = *used + u32::from(is) - u32::from(was);
    result
}

/// The contents of a slot.
#[derive(Debug)]
pub(super) enum Slot {
    /// Nothing. A vacant slot remains after its contents have been moved away, so that moving them
    /// back needs no allocation.
    Vacant,
    Table(Table),
    Huge(Huge),
}

impl Slot {
    /// True if the slot maps nothing; the slot may still have a table.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Slot::Vacant => true,
            Slot::Table(table) => table.used == 0,
            Slot::Huge(_) => false,
        }
    }

    /// Returns the slot's table; `None` if the slot has none.
    pub(super) fn as_table(&mut self) -> Option<&mut Table> {
        match self {
            Slot::Table(table) => Some(table),
            Slot::Vacant | Slot::Huge(_) => None,
        }
    }
}

/// What a visitor decides to do with a huge page.
#[derive(Debug)]
pub(crate) enum HugeFate {
    /// The huge page stays mapped.
    Keep,
    /// The visitor has released the mapping, so the slot is removed.
    Gone,
    /// The huge page is replaced by these small entries, which the visitor receives next.
    Split(Vec<Pte>),
}

/// Receives the entries and huge pages in a range, and may modify them.
pub(crate) trait Visitor {
    /// Called for each table that overlaps the range, even if empty, before the table's entries; gets
    /// the positions of entries that are not `None` or may become so.
    fn table(&mut self, _index: u64, _positions: Range<usize>) {}
    /// Called for each entry that is not `None`.
    fn page(&mut self, addr: u64, entry: &mut Pte);
    /// Called for each huge page that overlaps the range.
    fn huge(&mut self, addr: u64, huge: &mut Huge, cover: Cover) -> HugeFate;
    /// Called after the entries of each table, while its lock is still held.
    fn leave(&mut self) {}
}

/// Whether a range covers all of a huge page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cover {
    /// The range covers the whole huge page.
    Whole,
    /// The range covers only part of the huge page.
    Part,
}

/// What a slot contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotKind {
    /// Nothing: no page is mapped, and there is no table.
    Empty,
    /// A table of small entries.
    Table,
    /// A huge page, possibly the huge zero page.
    Huge,
}

/// Returns the index of the slot that contains `addr`.
pub(super) fn slot_of(addr: u64) -> u64 {
    addr >> TABLE_SHIFT
}

/// Returns the first address in a slot.
pub(super) fn slot_start(index: u64) -> u64 {
    index << TABLE_SHIFT
}

/// Returns the first address after the slot that contains `addr`.
pub(super) fn slot_end(addr: u64) -> u64 {
    slot_start(slot_of(addr)) + PMD_SIZE
}

/// Returns the index of the entry for `addr` in its table.
pub(super) fn entry_of(addr: u64) -> usize {
    (addr >> PAGE_SHIFT) as usize % ENTRIES
}

/// Returns the indexes of those entries in a slot that are inside a range.
pub(super) fn part_of(start: u64, range: VmRange) -> Range<usize> {
    let from = if range.start > start {
        entry_of(range.start)
    } else {
        0
    };
    let to = if range.end - start < PMD_SIZE {
        entry_of(range.end)
    } else {
        ENTRIES
    };
    from..to
}

/// Returns the indexes of the slots that a range overlaps.
pub(super) fn slots_of(range: VmRange) -> Range<u64> {
    match range.is_empty() {
        true => 0..0,
        false => slot_of(range.start)..slot_of(range.end - 1) + 1,
    }
}

pub(super) fn visit_table(
    start: u64,
    table: &mut Table,
    range: VmRange,
    visitor: &mut impl Visitor,
) {
    if table.used != 0 {
        let own = table.positions();
        let part = part_of(start, range);
        let (from, to) = (part.start.max(own.start), part.end.min(own.end));
        let entries = table
            .entries
            .get_mut(from - own.start..to.max(from) - own.start);
        for (at, entry) in (from..).zip(entries.unwrap_or_default()) {
            if *entry == Pte::None {
                continue;
            }
            visitor.page(start + at as u64 * PAGE_SIZE, entry);
            if *entry == Pte::None {
                table.used -= 1;
            }
        }
    }
    visitor.leave();
}

pub(super) fn read_slot(
    index: u64,
    slot: &Slot,
    range: VmRange,
    f: &mut impl FnMut(u64, Pte) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let start = slot_start(index);
    for at in part_of(start, range) {
        let entry = match slot {
            slot if slot.is_empty() => return ControlFlow::Continue(()),
            Slot::Vacant => Pte::None,
            Slot::Table(table) => table.get(at),
            Slot::Huge(huge) => huge.entry(at),
        };
        if entry != Pte::None {
            f(start + at as u64 * PAGE_SIZE, entry)?;
        }
    }
    ControlFlow::Continue(())
}
