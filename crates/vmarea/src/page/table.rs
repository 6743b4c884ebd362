//! The page table of one mm: maps an address to its page-table entry.
//!
//! The table consists of slots of 2 MiB in ordered maps, which are spread over shards with one lock
//! each. A slot is either a table of 512 entries or one huge page. The shard lock is the page-table
//! lock, so faults in different parts of the address space do not contend; the hint that a fault
//! leaves for the next one is stored next to that lock (see `near`). A read inside a huge page
//! returns each of its 512 pages as a separate entry, so only code that modifies entries has to
//! handle huge pages.
//!
//! # Invariants
//! H1  a huge slot is inside one VMA
//!
//! # Locking
//! A shard lock protects the slots in the shard and the map counts of the frames that their entries
//! name. A fault holds the lock while it handles one entry; a move takes the source's lock and the
//! destination's lock one after the other.

use super::entry::Pte;
use super::huge::{ENTRIES, Huge};
use super::slot::{
    Cover, HugeFate, Slot, SlotKind, Table, Visitor, entry_of, read_slot, slot_of, slot_start,
    slots_of, visit_table,
};
use super::vma_hint::Near;
use crate::types::{MmId, PMD_SIZE, VmRange};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vmarea_sync::SpinLock;

/// Number of shards. On average, one in `SHARDS` slots is in the same shard as a given slot.
const SHARDS: usize = 32;
/// A range of up to this many slots is visited slot by slot, a longer range shard by shard.
const FEW_SLOTS: u64 = SHARDS as u64;

#[derive(Debug, Default)]
struct Shard {
    slots: BTreeMap<u64, Slot>,
    /// Number of faults in this shard that were handled without `mmap_lock`.
    unlocked: u64,
}

impl Shard {
    /// Counts a fault if `path` is [`FaultPath::Unlocked`].
    #[inline]
    fn count(&mut self, path: FaultPath) {
        self.unlocked += u64::from(path == FaultPath::Unlocked);
    }

    /// Returns the table at `index`, creating one if the slot is empty, or `None` for a huge page.
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

/// A locked shard and the VMA hint for faults in the shard, on a separate cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Locked {
    shard: SpinLock<Shard>,
    near: Near,
}

/// Hashes a slot number, so that slots at regular distances spread evenly over the shards.
///
/// Threads often work at the same offset in ranges that are a power of two apart.
#[inline]
pub(super) fn scattered(slot: u64) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    (slot.wrapping_mul(GOLDEN) >> 48) as usize
}

/// Whether a fault holds `mmap_lock`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FaultPath {
    /// The fault does not hold `mmap_lock`, and is counted.
    Unlocked,
    /// The fault holds `mmap_lock`, or is a retry of a fault that was already counted.
    Locked,
}

/// The page table of one address space.
#[derive(Debug, Default)]
pub struct PageTable {
    shards: [Locked; SHARDS],
    /// Number of huge slots, so that lookups of huge pages can be skipped if there are none.
    huge: AtomicU32,
    owner: AtomicU64,
}

impl PageTable {
    /// Returns the address space that this page table belongs to.
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

    /// Returns the hint for `addr`: the VMA that the last fault in the same shard found.
    #[inline]
    pub(crate) fn near(&self, addr: u64) -> &Near {
        &self.shards[scattered(slot_of(addr)) % SHARDS].near
    }

    /// Counts a fault that does not read an entry.
    #[cold]
    pub(crate) fn count_fault(&self, path: FaultPath, addr: u64) {
        self.shard(slot_of(addr)).lock().count(path);
    }

    /// Returns the number of faults that were handled without `mmap_lock`.
    pub(crate) fn unlocked_faults(&self) -> u64 {
        self.shards.iter().map(|s| s.shard.lock().unlocked).sum()
    }

    /// Resets the fault count and the VMA hints, for reuse of the table by a new address space.
    pub(crate) fn forget_faults(&self) {
        for locked in &self.shards {
            locked.shard.lock().unlocked = 0;
            locked.near.forget();
        }
    }

    /// Returns the entry for `addr`; inside a huge page, the equivalent small entry.
    pub fn get(&self, addr: u64) -> Pte {
        self.peek(addr, |entry| entry)
    }

    /// Calls `f` with the entry for `addr`, under the page-table lock.
    pub fn peek<R>(&self, addr: u64, f: impl FnOnce(Pte) -> R) -> R {
        let shard = self.shard(slot_of(addr)).lock();
        f(shard.get(addr))
    }

    /// Returns the entry for `addr`, and counts a fault on the given path.
    pub(crate) fn get_for(&self, path: FaultPath, addr: u64) -> Pte {
        let mut shard = self.shard(slot_of(addr)).lock();
        shard.count(path);
        shard.get(addr)
    }

    /// Returns the kind of the slot that contains `addr`.
    pub fn slot_kind(&self, addr: u64) -> SlotKind {
        let index = slot_of(addr);
        match self.shard(index).lock().slots.get(&index) {
            None => SlotKind::Empty,
            Some(Slot::Table(_)) => SlotKind::Table,
            Some(Slot::Huge(_)) => SlotKind::Huge,
        }
    }

    /// True if `addr` is mapped by a huge page.
    pub(crate) fn has_huge_at(&self, addr: u64) -> bool {
        self.slot_kind(addr) == SlotKind::Huge
    }

    /// Returns the number of huge pages that this table maps.
    pub fn huge_pages(&self) -> u32 {
        // ORDERING: Relaxed; exact for a holder of the mm's lock for writing.
        self.huge.load(Ordering::Relaxed)
    }

    fn count_huge(&self, more: i32) {
        // ORDERING: Relaxed; see `huge_pages`.
        self.huge.fetch_add(more as u32, Ordering::Relaxed);
    }

    /// Modifies the entry for `addr` under the page-table lock.
    ///
    /// Returns `None` and changes nothing if a huge page maps `addr`.
    pub(crate) fn update<R>(&self, addr: u64, f: impl FnOnce(&mut Pte) -> R) -> Option<R> {
        self.update_for(FaultPath::Locked, addr, f)
    }

    /// Modifies an entry like [`update`](Self::update), and counts a fault on the given path.
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

    /// Modifies the huge page that maps `addr`; returns `None` if there is none.
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

    /// Inserts a huge page at `addr`; returns the huge page as the error if the slot is in use.
    pub(crate) fn insert_huge(&self, addr: u64, huge: Huge) -> Result<(), Huge> {
        self.put_slot(slot_of(addr), Slot::Huge(huge))
            .map_err(|slot| match slot {
                Slot::Huge(huge) => huge,
                Slot::Table(_) => unreachable!("it was a huge page"),
            })
    }

    /// Removes a whole slot and returns it.
    pub(super) fn take_slot(&self, index: u64) -> Option<Slot> {
        let slot = self.shard(index).lock().slots.remove(&index);
        if matches!(slot, Some(Slot::Huge(_))) {
            self.count_huge(-1);
        }
        slot
    }

    /// Inserts a whole slot, which may replace an empty table but nothing else.
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

    /// Calls `f` with the table of a slot, creating the table if the slot is empty.
    ///
    /// Returns `None` if the slot is a huge page.
    pub(super) fn with_table<R>(&self, index: u64, f: impl FnOnce(&mut Table) -> R) -> Option<R> {
        self.shard(index).lock().table(index).map(f)
    }

    /// Creates the table that contains the entry for `addr`, if the slot is empty.
    ///
    /// A fault does this before it is known whether the fault will map a page.
    pub(crate) fn make_table(&self, addr: u64) {
        self.with_table(slot_of(addr), |_| ());
    }

    /// Visits all entries and huge pages in `range`, in no particular order.
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
            let mut shard = shard.lock();
            let visit =
                |&index: &u64, slot: &mut Slot| self.visit_slot(index, slot, range, visitor);
            let emptied = shard.slots.extract_if(first..=last, visit);
            emptied.for_each(drop);
        }
    }

    /// Visits one slot; returns true if the caller has to remove the slot.
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

    /// Calls `f` with every entry in `range` that is not `None`, in no order, until `f` breaks.
    ///
    /// For a huge page, `f` is called with the equivalent small entries.
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

    /// Calls `f` with every entry in `range` that is not `None`, in ascending address order.
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

    /// Returns the slots of `range` in ascending order; a long range omits empty slots.
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

    /// Frees the empty tables that are entirely within `range`.
    #[doc(alias = "free_pgtables")]
    pub fn free_tables(&self, range: VmRange) {
        let first = slot_of(range.start + PMD_SIZE - 1);
        let end = slot_of(range.end);
        if first >= end {
            return;
        }
        for Locked { shard, .. } in &self.shards {
            let is_empty = |slot: &Slot| matches!(slot, Slot::Table(t) if t.used == 0);
            let mut shard = shard.lock();
            let empty = shard.slots.extract_if(first..end, |_, slot| is_empty(slot));
            empty.for_each(drop);
        }
    }

    /// True if `range` touches an empty table; always true for a long range, which is not searched.
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

    /// Returns the number of entries that are not `None`; a huge page counts as 512.
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

    /// True if nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
