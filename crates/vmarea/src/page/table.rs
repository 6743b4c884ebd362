//! The page table of one mm: from an address to what lies there.
//!
//! Slots of 2 MiB in an ordered map, spread over shards with a lock each. A slot is a table of 512
//! entries or one huge page. The shard's lock is the page-table lock: faults in different parts of
//! the address space do not meet, and what they keep for the next one lies beside it (`near`). Reading through a huge page shows each of its 512 pages as an entry
//! of its own, so that only who changes entries has to know of huge ones.
//!
//! # Invariants
//! H1  a huge slot lies within one VMA
//!
//! # Locking
//! Shard lock → the slots in it, and the map counts of the frames that they name. A fault holds
//! it for the one entry; a move takes source and destination one after the other.

use super::entry::Pte;
use super::slot::{
    Cover, ENTRIES, HugeFate, Slot, SlotKind, Table, Visitor, entry_of, read_slot, slot_of,
    slot_start, slots_of, visit_table,
};
use super::thp::Huge;
use super::vma_hint::Near;
use crate::types::{MmId, PMD_SIZE, VmRange};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vmarea_sync::SpinLock;

/// Threads that walk through places of their own meet in a shard for one slot in so many.
const SHARDS: usize = 32;
/// A range of so many slots or fewer is visited slot by slot, a longer one shard by shard.
const FEW_SLOTS: u64 = SHARDS as u64;

#[derive(Debug, Default)]
struct Shard {
    slots: BTreeMap<u64, Slot>,
    /// Faults that came here without `mmap_lock`.
    unlocked: u64,
}

impl Shard {
    /// Counts a fault.
    #[inline]
    fn count(&mut self, path: FaultPath) {
        self.unlocked += u64::from(path == FaultPath::Unlocked);
    }

    /// The table at `index`, made where nothing lies there. `None` where a huge page does.
    #[inline]
    fn table(&mut self, index: u64) -> Option<&mut Table> {
        let slot = self.slots.entry(index);
        match slot.or_insert_with(|| Slot::Table(Table::new())) {
            Slot::Table(table) => Some(table),
            Slot::Huge(_) => None,
        }
    }

    #[inline]
    fn get(&self, addr: u64) -> Pte {
        match self.slots.get(&slot_of(addr)) {
            None => Pte::None,
            Some(Slot::Table(table)) => table.entries[entry_of(addr)],
            Some(Slot::Huge(huge)) => huge.entry(entry_of(addr)),
        }
    }
}

/// A shard with its lock, and a hint for faults that come here, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Locked {
    shard: SpinLock<Shard>,
    near: Near,
}

/// A number for a slot (of 2 MiB) that tells nothing of its distance from others: threads often work at
/// the same place of ranges that lie a power of two apart.
#[inline]
pub(super) fn scattered(slot: u64) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    (slot.wrapping_mul(GOLDEN) >> 48) as usize
}

/// The path by which a fault came to the page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FaultPath {
    /// Without `mmap_lock`: it is counted.
    Unlocked,
    /// With it, or it was counted before.
    Locked,
}

/// The page table.
#[derive(Debug, Default)]
pub struct PageTable {
    shards: [Locked; SHARDS],
    /// Huge slots, so that nobody looks for them where none is.
    huge: AtomicU32,
    owner: AtomicU64,
}

impl PageTable {
    /// The address space that it belongs to.
    pub fn owner(&self) -> Option<MmId> {
        // ORDERING: Relaxed; set before the address space is used.
        MmId::from_bits(self.owner.load(Ordering::Relaxed))
    }

    pub(crate) fn set_owner(&self, owner: MmId) {
        // ORDERING: Relaxed; see `owner`.
        self.owner.store(owner.to_bits(), Ordering::Relaxed);
    }

    #[inline]
    fn shard(&self, slot: u64) -> &SpinLock<Shard> {
        &self.shards[scattered(slot) % SHARDS].shard
    }

    /// The VMA that a fault near `addr` found last.
    #[inline]
    pub(crate) fn near(&self, addr: u64) -> &Near {
        &self.shards[scattered(slot_of(addr)) % SHARDS].near
    }

    /// Counts a fault that looks at no entry.
    #[cold]
    pub(crate) fn count_fault(&self, path: FaultPath, addr: u64) {
        self.shard(slot_of(addr)).lock().count(path);
    }

    /// Faults that came without `mmap_lock`.
    pub(crate) fn unlocked_faults(&self) -> u64 {
        self.shards.iter().map(|s| s.shard.lock().unlocked).sum()
    }

    /// Another address space begins: what was counted and remembered of the last one goes.
    pub(crate) fn forget_faults(&self) {
        for locked in &self.shards {
            locked.shard.lock().unlocked = 0;
            locked.near.forget();
        }
    }

    /// The entry for `addr`; within a huge page, what a small entry there would be.
    pub fn get(&self, addr: u64) -> Pte {
        self.peek(addr, |entry| entry)
    }

    /// Calls `f` with the entry for `addr`, under its lock.
    pub fn peek<R>(&self, addr: u64, f: impl FnOnce(Pte) -> R) -> R {
        let shard = self.shard(slot_of(addr)).lock();
        f(shard.get(addr))
    }

    /// As [`get`](Self::get), for a fault.
    pub(crate) fn get_for(&self, path: FaultPath, addr: u64) -> Pte {
        let mut shard = self.shard(slot_of(addr)).lock();
        shard.count(path);
        shard.get(addr)
    }

    /// What lies in the slot of `addr`.
    pub fn slot_kind(&self, addr: u64) -> SlotKind {
        let index = slot_of(addr);
        match self.shard(index).lock().slots.get(&index) {
            None => SlotKind::Empty,
            Some(Slot::Table(_)) => SlotKind::Table,
            Some(Slot::Huge(_)) => SlotKind::Huge,
        }
    }

    /// True where a huge page lies at `addr`.
    pub(crate) fn has_huge_at(&self, addr: u64) -> bool {
        self.slot_kind(addr) == SlotKind::Huge
    }

    /// Huge pages that it maps.
    pub fn huge_pages(&self) -> u32 {
        // ORDERING: Relaxed; exact for who holds the mm's lock for writing.
        self.huge.load(Ordering::Relaxed)
    }

    fn count_huge(&self, more: i32) {
        // ORDERING: Relaxed; see `huge_pages`.
        self.huge.fetch_add(more as u32, Ordering::Relaxed);
    }

    /// Changes the entry for `addr` under its lock. `None`, and nothing done, where it lies within a
    /// huge page.
    pub(crate) fn update<R>(&self, addr: u64, f: impl FnOnce(&mut Pte) -> R) -> Option<R> {
        self.update_for(FaultPath::Locked, addr, f)
    }

    /// As [`update`](Self::update), for a fault.
    #[inline]
    pub(crate) fn update_for<R>(
        &self,
        path: FaultPath,
        addr: u64,
        f: impl FnOnce(&mut Pte) -> R,
    ) -> Option<R> {
        let index = slot_of(addr);
        let mut shard = self.shard(index).lock();
        shard.count(path);
        let table = shard.table(index)?;
        Some(table.change(entry_of(addr), f))
    }

    /// Changes the huge page at `addr`; `None` where there is none.
    pub(crate) fn update_huge<R>(
        &self,
        addr: u64,
        f: impl FnOnce(&mut Huge) -> (R, HugeFate),
    ) -> Option<R> {
        let index = slot_of(addr);
        let mut shard = self.shard(index).lock();
        let slot = shard.slots.get_mut(&index)?;
        let Slot::Huge(huge) = slot else {
            return None;
        };
        let (result, fate) = f(huge);
        match fate {
            HugeFate::Keep => {}
            HugeFate::Gone => {
                shard.slots.remove(&index);
                self.count_huge(-1);
            }
            HugeFate::Split(entries) => {
                *slot = Slot::Table(Table::of(entries));
                self.count_huge(-1);
            }
        }
        Some(result)
    }

    /// Puts a huge page at `addr`. Gives it back where the slot is in use.
    pub(crate) fn insert_huge(&self, addr: u64, huge: Huge) -> Result<(), Huge> {
        self.put_slot(slot_of(addr), Slot::Huge(huge))
            .map_err(|slot| match slot {
                Slot::Huge(huge) => huge,
                Slot::Table(_) => unreachable!("it was a huge page"),
            })
    }

    /// Takes a whole slot out.
    pub(super) fn take_slot(&self, index: u64) -> Option<Slot> {
        let slot = self.shard(index).lock().slots.remove(&index);
        if matches!(slot, Some(Slot::Huge(_))) {
            self.count_huge(-1);
        }
        slot
    }

    /// Puts a whole slot in, over an empty table at the most.
    pub(super) fn put_slot(&self, index: u64, slot: Slot) -> Result<(), Slot> {
        let mut shard = self.shard(index).lock();
        match shard.slots.get(&index) {
            Some(Slot::Huge(_)) => return Err(slot),
            Some(Slot::Table(t)) if t.used != 0 || matches!(slot, Slot::Huge(_)) => {
                return Err(slot);
            }
            _ => {}
        }
        if matches!(slot, Slot::Huge(_)) {
            self.count_huge(1);
        }
        shard.slots.insert(index, slot);
        Ok(())
    }

    /// Calls `f` with the table of a slot, which is made where there is none. `None` where a huge
    /// page lies there.
    pub(super) fn with_table<R>(&self, index: u64, f: impl FnOnce(&mut Table) -> R) -> Option<R> {
        self.shard(index).lock().table(index).map(f)
    }

    /// Makes the table in which `addr` has its entry, where nothing is there: a fault does so before
    /// it knows whether a page comes.
    pub(crate) fn make_table(&self, addr: u64) {
        self.with_table(slot_of(addr), |_| ());
    }

    /// Visits everything in `range`, in no order.
    pub(crate) fn visit(&self, range: VmRange, visitor: &mut impl Visitor) {
        let Some((first, last)) = slots_of(range) else {
            return;
        };
        if last - first < FEW_SLOTS {
            for index in first..=last {
                let mut shard = self.shard(index).lock();
                if let Some(slot) = shard.slots.get_mut(&index)
                    && self.visit_slot(index, slot, range, visitor)
                {
                    shard.slots.remove(&index);
                }
            }
            return;
        }
        for Locked { shard, .. } in &self.shards {
            let mut emptied = Vec::new();
            let mut shard = shard.lock();
            for (&index, slot) in shard.slots.range_mut(first..=last) {
                if self.visit_slot(index, slot, range, visitor) {
                    emptied.push(index);
                }
            }
            for index in emptied {
                shard.slots.remove(&index);
            }
        }
    }

    /// True where the slot is to go.
    fn visit_slot(
        &self,
        index: u64,
        slot: &mut Slot,
        range: VmRange,
        visitor: &mut impl Visitor,
    ) -> bool {
        let start = slot_start(index);
        if let Slot::Huge(huge) = slot {
            let whole = range.start <= start && range.end - start >= PMD_SIZE;
            let cover = if whole { Cover::Whole } else { Cover::Part };
            match visitor.huge(start, huge, cover) {
                HugeFate::Keep => return false,
                HugeFate::Gone => {
                    self.count_huge(-1);
                    return true;
                }
                HugeFate::Split(entries) => {
                    self.count_huge(-1);
                    *slot = Slot::Table(Table::of(entries));
                }
            }
        }
        if let Slot::Table(table) = slot {
            visitor.table(index);
            visit_table(start, table, range, visitor);
        }
        false
    }

    /// Calls `f` with every entry of `range` that is not `None`, until it breaks; in no order. Within
    /// a huge page, with what small entries there would be.
    pub fn for_each(&self, range: VmRange, mut f: impl FnMut(u64, Pte) -> ControlFlow<()>) {
        let Some((first, last)) = slots_of(range) else {
            return;
        };
        if last - first < FEW_SLOTS {
            for index in first..=last {
                let shard = self.shard(index).lock();
                if let Some(slot) = shard.slots.get(&index)
                    && read_slot(index, slot, range, &mut f).is_break()
                {
                    return;
                }
            }
            return;
        }
        for Locked { shard, .. } in &self.shards {
            for (&index, slot) in shard.lock().slots.range(first..=last) {
                if read_slot(index, slot, range, &mut f).is_break() {
                    return;
                }
            }
        }
    }

    /// As [`for_each`](Self::for_each), in order of address and to the end.
    pub fn for_each_ordered(&self, range: VmRange, mut f: impl FnMut(u64, Pte)) {
        for index in self.slots_in(range) {
            let shard = self.shard(index).lock();
            if let Some(slot) = shard.slots.get(&index) {
                let _ = read_slot(index, slot, range, &mut |addr, entry| {
                    f(addr, entry);
                    ControlFlow::Continue(())
                });
            }
        }
    }

    /// The slots of `range` that are in use, in order.
    pub(super) fn slots_in(&self, range: VmRange) -> Vec<u64> {
        let Some((first, last)) = slots_of(range) else {
            return Vec::new();
        };
        if last - first < FEW_SLOTS {
            return (first..=last).collect();
        }
        let mut all: Vec<u64> = Vec::new();
        for Locked { shard, .. } in &self.shards {
            all.extend(shard.lock().slots.range(first..=last).map(|(&i, _)| i));
        }
        all.sort_unstable();
        all
    }

    /// Frees the empty tables that lie wholly within `range`.
    #[doc(alias = "free_pgtables")]
    pub fn free_tables(&self, range: VmRange) {
        let first = slot_of(range.start + PMD_SIZE - 1);
        let end = slot_of(range.end);
        if first >= end {
            return;
        }
        for Locked { shard, .. } in &self.shards {
            let mut shard = shard.lock();
            let empty: Vec<u64> = shard
                .slots
                .range(first..end)
                .filter(|(_, slot)| matches!(slot, Slot::Table(t) if t.used == 0))
                .map(|(&i, _)| i)
                .collect();
            for index in empty {
                shard.slots.remove(&index);
            }
        }
    }

    /// True where a table that touches `range` may be empty; of a long range it is not asked.
    pub(crate) fn has_empty_table(&self, range: VmRange) -> bool {
        let Some((first, last)) = slots_of(range) else {
            return false;
        };
        let empty = |index| {
            let shard = self.shard(index).lock();
            matches!(shard.slots.get(&index), Some(Slot::Table(t)) if t.used == 0)
        };
        last - first >= FEW_SLOTS || (first..=last).any(empty)
    }

    /// Entries that are not `None`; a huge page counts as 512.
    pub fn len(&self) -> u64 {
        let used = |slot: &Slot| match slot {
            Slot::Table(table) => u64::from(table.used),
            Slot::Huge(_) => ENTRIES as u64,
        };
        self.shards
            .iter()
            .map(|locked| &locked.shard)
            .map(|s| s.lock().slots.values().map(used).sum::<u64>())
            .sum()
    }

    /// True where nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
