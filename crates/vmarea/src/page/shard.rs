//! `Shard`: one part of a page table. Its slots are in a sorted vector.

use super::entry::Pte;
use super::slot::{Slot, Table, change, entry_of, slot_of};
use alloc::vec::Vec;
use core::ops::Range;

/// Why an entry or a slot could not be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blocked {
    /// A huge page maps the address, or the destination slot is in use.
    InUse,
    /// There is no memory for a table or a slot.
    NoMemory,
}

/// Whether a fault holds `mmap_lock`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FaultPath {
    /// The fault does not hold `mmap_lock`. It is counted.
    Unlocked,
    /// The fault holds `mmap_lock`, or it is a retry of a fault that has already been counted.
    Locked,
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Slots with their numbers, in ascending order. Unlike a `BTreeMap`, a vector can report that
    /// it cannot grow.
    pub(super) slots: Vec<(u64, Slot)>,
    /// Number of faults in this shard that were handled without `mmap_lock`.
    pub(super) unlocked: u64,
}

impl Shard {
    /// Counts a fault if `path` is [`FaultPath::Unlocked`].
    #[inline]
    pub(super) fn count(&mut self, path: FaultPath) {
        self.unlocked += u64::from(path == FaultPath::Unlocked);
    }

    #[inline]
    pub(super) fn at(&self, index: u64) -> Result<usize, usize> {
        self.slots.binary_search_by_key(&index, |(index, _)| *index)
    }

    #[inline]
    pub(super) fn slot(&self, index: u64) -> Option<&Slot> {
        let at = self.at(index).ok()?;
        Some(&self.slots[at].1)
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, index: u64) -> Option<&mut Slot> {
        let at = self.at(index).ok()?;
        Some(&mut self.slots[at].1)
    }

    /// Returns the vector positions of the slots whose numbers are in `slots`.
    pub(super) fn span(&self, slots: &Range<u64>) -> Range<usize> {
        let at = |first: u64| self.at(first).unwrap_or_else(|at| at);
        at(slots.start)..at(slots.end)
    }

    /// Returns the slot at `index`, creating a vacant one if there is none.
    #[inline]
    pub(super) fn place(&mut self, index: u64) -> Result<&mut Slot, Blocked> {
        let at = match self.at(index) {
            Ok(at) => at,
            Err(at) => {
                let room = self.slots.try_reserve(1);
                room.map_err(|_| Blocked::NoMemory)?;
                self.slots.insert(at, (index, Slot::Vacant));
                at
            }
        };
        Ok(&mut self.slots[at].1)
    }

    /// Calls `f` to modify the entry for `addr`; creates the table first if there is none.
    #[inline]
    pub(super) fn install<R>(
        &mut self,
        addr: u64,
        f: impl FnOnce(&mut Pte) -> R,
    ) -> Result<R, Blocked> {
        let (index, at) = (slot_of(addr), entry_of(addr));
        let there = match self.slot_mut(index) {
            Some(Slot::Table(table)) => table.entry_mut(at),
            _ => None,
        };
        let entry = match there {
            Some(entry) => entry,
            None => self.make_entry(index, at)?,
        };
        Ok(change(entry, f))
    }

    #[cold]
    fn make_entry(&mut self, index: u64, at: usize) -> Result<(&mut Pte, &mut u32), Blocked> {
        let table = self.table(index, at..at + 1)?;
        table.entry_mut(at).ok_or(Blocked::InUse)
    }

    /// Returns the table at `index` with the entries at `positions`; creates what is missing.
    pub(super) fn table(
        &mut self,
        index: u64,
        positions: Range<usize>,
    ) -> Result<&mut Table, Blocked> {
        let slot = self.place(index)?;
        if matches!(slot, Slot::Vacant) {
            *slot = Slot::Table(Table::new(&positions).map_err(|_| Blocked::NoMemory)?);
        }
        let table = slot.as_table().ok_or(Blocked::InUse)?;
        let covered = table.cover(&positions);
        covered.map_err(|_| Blocked::NoMemory).map(|()| table)
    }

    #[inline]
    pub(super) fn get(&self, addr: u64) -> Pte {
        match self.slot(slot_of(addr)) {
            None | Some(Slot::Vacant) => Pte::None,
            Some(Slot::Table(table)) => table.get(entry_of(addr)),
            Some(Slot::Huge(huge)) => huge.entry(entry_of(addr)),
        }
    }
}
