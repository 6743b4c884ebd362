//! What covers 2 MiB of a page table: a table of 512 entries, or one huge page.
//!
//! A slot by itself, without the map that it is in and without its lock; both are in `table`. Whoever
//! visits a range sees entries and huge pages through a [`Visitor`].

use super::entry::Pte;
use super::thp::Huge;
use crate::types::{PAGE_SHIFT, PAGE_SIZE, PMD_SIZE, VmRange};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::ControlFlow;

/// Entries of a table.
pub(crate) const ENTRIES: usize = 512;
const TABLE_SHIFT: u32 = PMD_SIZE.trailing_zeros();
/// The entries of a table.
pub(crate) type Entries = [Pte; ENTRIES];

/// 512 entries.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) entries: Box<Entries>,
    /// Entries that are not `None`.
    pub(super) used: u32,
}

impl Table {
    /// An empty table, filled where it is to stay: 6 KiB are not passed around.
    pub(super) fn new() -> Self {
        let mut entries = Vec::with_capacity(ENTRIES);
        entries.resize(ENTRIES, Pte::None);
        match entries.into_boxed_slice().try_into() {
            Ok(entries) => Self { entries, used: 0 },
            Err(_) => unreachable!("it has as many as a table has"),
        }
    }

    pub(super) fn of(entries: Box<Entries>) -> Self {
        let used = entries.iter().filter(|e| **e != Pte::None).count() as u32;
        Self { entries, used }
    }

    /// Lets `f` change an entry.
    #[inline]
    pub(super) fn change<R>(&mut self, at: usize, f: impl FnOnce(&mut Pte) -> R) -> R {
        let entry = &mut self.entries[at];
        let was = *entry != Pte::None;
        let result = f(entry);
        let is = *entry != Pte::None;
        self.used = self.used + u32::from(is) - u32::from(was);
        result
    }

    /// Puts `to` where `at` is.
    pub(super) fn set(&mut self, at: usize, to: Pte) {
        let was = core::mem::replace(&mut self.entries[at], to);
        self.used = self.used + u32::from(to != Pte::None) - u32::from(was != Pte::None);
    }
}

/// What covers 2 MiB.
#[derive(Debug)]
pub(super) enum Slot {
    Table(Table),
    Huge(Huge),
}

/// What becomes of a huge page that a visitor met.
#[derive(Debug)]
pub(crate) enum HugeFate {
    /// It stays.
    Keep,
    /// The visitor has taken it; the slot is empty.
    Gone,
    /// It becomes small entries, which are visited then.
    Split(Box<Entries>),
}

/// Visits entries and huge pages, and may change them.
pub(crate) trait Visitor {
    /// A table that the range touches, before its entries; it may have none there.
    fn table(&mut self, _index: u64) {}
    /// An entry that is not `None`.
    fn page(&mut self, addr: u64, entry: &mut Pte);
    /// A huge page, which the range covers wholly or not.
    fn huge(&mut self, addr: u64, huge: &mut Huge, cover: Cover) -> HugeFate;
}

/// How much of a huge page a range covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cover {
    /// All of it.
    Whole,
    /// A part.
    Part,
}

/// What lies in a slot of 2 MiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotKind {
    /// Nothing.
    Empty,
    /// Small entries.
    Table,
    /// A huge page, or the huge page of zeros.
    Huge,
}

/// Number of the slot that holds `addr`.
pub(super) fn slot_of(addr: u64) -> u64 {
    addr >> TABLE_SHIFT
}

/// First address of a slot.
pub(super) fn slot_start(index: u64) -> u64 {
    index << TABLE_SHIFT
}

/// First address after the slot that holds `addr`.
pub(super) fn slot_end(addr: u64) -> u64 {
    slot_start(slot_of(addr)) + PMD_SIZE
}

/// Place of `addr` in its slot, in pages.
pub(super) fn entry_of(addr: u64) -> usize {
    (addr >> PAGE_SHIFT) as usize % ENTRIES
}

/// The entries of a slot that lie in a range.
pub(super) fn part_of(start: u64, range: VmRange) -> core::ops::Range<usize> {
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

/// First and last slot that a range touches.
pub(super) fn slots_of(range: VmRange) -> Option<(u64, u64)> {
    (range.start < range.end).then(|| (slot_of(range.start), slot_of(range.end - 1)))
}

pub(super) fn visit_table(
    start: u64,
    table: &mut Table,
    range: VmRange,
    visitor: &mut impl Visitor,
) {
    if table.used == 0 {
        return;
    }
    for at in part_of(start, range) {
        let entry = &mut table.entries[at];
        if *entry == Pte::None {
            continue;
        }
        visitor.page(start + at as u64 * PAGE_SIZE, entry);
        if *entry == Pte::None {
            table.used -= 1;
        }
    }
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
            Slot::Table(table) if table.used == 0 => return ControlFlow::Continue(()),
            Slot::Table(table) => table.entries[at],
            Slot::Huge(huge) => huge.entry(at),
        };
        if entry != Pte::None {
            f(start + at as u64 * PAGE_SIZE, entry)?;
        }
    }
    ControlFlow::Continue(())
}
