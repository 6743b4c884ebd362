//! The page table of one mm: maps an address to its page-table entry.
//!
//! The table consists of slots of the size of a huge page, which are distributed over shards with
//! one lock each. A slot contains either a table of entries or one huge page. The shard
//! lock serves as the page-table lock, so faults in different parts of the address space do not
//! contend. The shards are allocated with the first table, so that an empty address space is small.
//! Beside each shard lock is a hint for the next fault in the shard, stored by the last fault there
//! (see `vma_hint`). Looking up an address in a huge page returns an equivalent small entry, so only
//! code that modifies entries has to handle huge pages.
//!
//! # Invariants
//! H1  a huge slot is inside one VMA
//!
//! # Locking
//! A shard lock protects the slots in the shard and the map counts of the frames to which the
//! slots' entries refer. A fault holds the lock while it handles one entry. A move holds the locks
//! of the source's and the destination's shard (see `pair`).

use super::entry::{ENTRIES, Pte};
use super::huge::Huge;
use super::shard::{Blocked, FaultPath, Shard};
use super::slot::{
    Cover, HugeFate, Slot, SlotKind, Table, Visitor, entry_of, read_slot, slot_of, slot_start,
    slots_of, visit_table,
};
use super::vma_hint::Near;
use crate::types::{MmId, PAGE_SIZE, PMD_SIZE, VmRange};
use core::ops::{ControlFlow, Range};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vmarea_sync::{OnceBox, SpinGuard, SpinLock};

/// Number of shards. Two arbitrary slots are in the same shard with a probability of about 1 in
/// `SHARDS`.
pub(super) const SHARDS: usize = 32;
/// Ranges of up to this many slots are visited slot by slot, longer ranges shard by shard.
const FEW_SLOTS: u64 = SHARDS as u64;

/// A shard with its lock, and the VMA hint for faults in the shard, on their own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Locked {
    pub(super) shard: SpinLock<Shard>,
    near: Near,
}

/// A table whose shard is locked, for changes of several entries.
pub(super) struct LockedTable<'a> {
    shard: SpinGuard<'a, Shard>,
    /// Position of the table's slot in the shard.
    at: usize,
}

impl LockedTable<'_> {
    #[inline]
    pub(super) fn table(&mut self) -> Option<&mut Table> {
        self.shard.slots.get_mut(self.at)?.1.as_table()
    }
}

/// True if a range of slots is short enough to be visited slot by slot, not shard by shard.
fn is_short(slots: &Range<u64>) -> bool {
    slots.end - slots.start <= FEW_SLOTS
}

/// Hashes a slot number so that slots at regular distances are spread evenly over the shards.
///
/// Threads often access ranges that are a power of two apart, at the same offset in each range.
#[inline]
pub(super) fn scattered(slot: u64) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    (slot.wrapping_mul(GOLDEN) >> 48) as usize
}

/// The page table of one address space.
///
/// ```
/// # use vmarea::prelude::*;
/// # let space = Space::new(Policy::LINUX, System::default());
/// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
/// # let mm = space.mm_create(layout, Limits::default())?;
/// # let at = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
/// space.fault(mm, at, Access::Write)?;
/// space.fault(mm, at + 2 * PAGE_SIZE, Access::Write)?;
/// let guard = space.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
/// let pages = guard.pages();
/// let mut present = Vec::new();
/// let range = VmRange::new(at, at + 4 * PAGE_SIZE);
/// pages.for_each_ordered(range, |addr, entry| present.push((addr, entry.frame())));
/// assert_eq!(present[0], (at, pages.get(at).frame()));
/// assert_eq!(present[1].0, at + 2 * PAGE_SIZE);
/// assert_eq!(pages.len(), 2);
/// # Ok::<(), Errno>(())
/// ```
#[derive(Debug, Default)]
pub struct PageTable {
    shards: OnceBox<[Locked; SHARDS]>,
    /// Number of huge pages that this table maps; if it is 0, lookups of huge pages can be skipped.
    huge: AtomicU32,
    owner: AtomicU64,
}

impl PageTable {
    /// Returns the id of the address space to which this page table belongs, once it is set.
    pub fn owner(&self) -> Option<MmId> {
        // ORDERING: Relaxed; set before the address space is used.
        MmId::from_bits(self.owner.load(Ordering::Relaxed))
    }

    pub(crate) fn set_owner(&self, owner: MmId) {
        // ORDERING: Relaxed; see `owner`.
        self.owner.store(owner.to_bits(), Ordering::Relaxed);
    }

    /// Returns the shards; none if no table has been needed yet.
    fn shards(&self) -> &[Locked] {
        self.shards.get().map_or(&[], |shards| shards)
    }

    /// Returns the shards, in the order of their numbers; makes them if there are none.
    #[inline]
    pub(super) fn make_shards(&self) -> Result<&[Locked; SHARDS], Blocked> {
        self.shards.get_or_make().map_err(|_| Blocked::NoMemory)
    }

    #[inline]
    fn locked(&self, slot: u64) -> Option<&Locked> {
        Some(&self.shards.get()?[scattered(slot) % SHARDS])
    }

    #[inline]
    fn shard(&self, slot: u64) -> Option<&SpinLock<Shard>> {
        Some(&self.locked(slot)?.shard)
    }

    #[inline]
    fn make_shard(&self, slot: u64) -> Result<&SpinLock<Shard>, Blocked> {
        Ok(&self.make_shards()?[scattered(slot) % SHARDS].shard)
    }

    /// Returns the hint for `addr`, if there are tables: the VMA in which the last fault in the same
    /// shard occurred.
    #[inline]
    pub(crate) fn near(&self, addr: u64) -> Option<&Near> {
        Some(&self.locked(slot_of(addr))?.near)
    }

    /// Counts a fault that does not access a page-table entry, unless memory is lacking.
    #[cold]
    pub(crate) fn count_fault(&self, path: FaultPath, addr: u64) {
        if let Ok(shard) = self.make_shard(slot_of(addr)) {
            shard.lock().count(path);
        }
    }

    /// Returns the number of faults that were handled without `mmap_lock`.
    pub(crate) fn unlocked_faults(&self) -> u64 {
        self.shards().iter().map(|s| s.shard.lock().unlocked).sum()
    }

    /// Resets the fault counts and the VMA hints, before a new address space reuses the table.
    pub(crate) fn forget_faults(&self) {
        for locked in self.shards() {
            locked.shard.lock().unlocked = 0;
            locked.near.forget();
        }
    }

    /// Returns the memory of removed tables to the allocator.
    pub(crate) fn shrink(&mut self) {
        for locked in self.shards() {
            locked.shard.lock().slots.shrink_to_fit();
        }
    }

    /// Returns the entry for `addr`; in a huge page, returns the equivalent small entry.
    pub fn get(&self, addr: u64) -> Pte {
        self.peek(addr, |entry| entry)
    }

    /// Calls `f` with the entry for `addr`, under the page-table lock.
    pub fn peek<R>(&self, addr: u64, f: impl FnOnce(Pte) -> R) -> R {
        match self.shard(slot_of(addr)) {
            Some(shard) => {
                let shard = shard.lock();
                f(shard.get(addr))
            }
            None => f(Pte::None),
        }
    }

    /// Returns the entry for `addr`, and counts a fault that uses `path`.
    pub(crate) fn get_for(&self, path: FaultPath, addr: u64) -> Pte {
        let Ok(shard) = self.make_shard(slot_of(addr)) else {
            return Pte::None;
        };
        let mut shard = shard.lock();
        shard.count(path);
        shard.get(addr)
    }

    /// Returns the kind of the slot that contains `addr`.
    pub fn slot_kind(&self, addr: u64) -> SlotKind {
        let index = slot_of(addr);
        let Some(shard) = self.shard(index) else {
            return SlotKind::Empty;
        };
        match shard.lock().slot(index) {
            None | Some(Slot::Vacant) => SlotKind::Empty,
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

    /// Calls `f` to modify the entry for `addr`, under the page-table lock.
    ///
    /// Returns `None` and changes nothing if a huge page maps `addr` or no table contains it.
    #[must_use]
    pub(crate) fn update<R>(&self, addr: u64, f: impl FnOnce(&mut Pte) -> R) -> Option<R> {
        let index = slot_of(addr);
        let mut shard = self.shard(index)?.lock();
        let table = shard.slot_mut(index)?.as_table()?;
        table.change(entry_of(addr), f)
    }

    /// Calls `f` to modify the entry for `addr`; creates the table first if there is none.
    pub(crate) fn install<R>(
        &self,
        addr: u64,
        f: impl FnOnce(&mut Pte) -> R,
    ) -> Result<R, Blocked> {
        self.install_for(FaultPath::Locked, addr, f)
    }

    /// Modifies an entry like [`install`](Self::install), and counts a fault that uses `path`.
    #[inline]
    pub(crate) fn install_for<R>(
        &self,
        path: FaultPath,
        addr: u64,
        f: impl FnOnce(&mut Pte) -> R,
    ) -> Result<R, Blocked> {
        let mut shard = self.make_shard(slot_of(addr))?.lock();
        shard.count(path);
        shard.install(addr, f)
    }

    /// Calls `f` to modify the huge page that maps `addr`; returns `None` if there is none.
    pub(crate) fn update_huge<R>(
        &self,
        addr: u64,
        f: impl FnOnce(&mut Huge) -> (R, HugeFate),
    ) -> Option<R> {
        let index = slot_of(addr);
        let mut shard = self.shard(index)?.lock();
        let slot = shard.slot_mut(index)?;
        let Slot::Huge(huge) = slot else {
            return None;
        };
        let (result, fate) = f(huge);
        match fate {
            HugeFate::Keep => {}
            HugeFate::Gone => {
                *slot = Slot::Vacant;
                self.count_huge(-1);
            }
            HugeFate::Split(entries) => {
                *slot = Slot::Table(Table::of(entries));
                self.count_huge(-1);
            }
        }
        Some(result)
    }

    /// Inserts a huge page at `addr`; if that is impossible, returns the huge page with the error.
    pub(crate) fn insert_huge(&self, addr: u64, huge: Huge) -> Result<(), (Huge, Blocked)> {
        let index = slot_of(addr);
        let mut shard = match self.make_shard(index) {
            Ok(shard) => shard.lock(),
            Err(blocked) => return Err((huge, blocked)),
        };
        match shard.place(index) {
            Err(blocked) => Err((huge, blocked)),
            Ok(slot @ Slot::Vacant) => {
                *slot = Slot::Huge(huge);
                self.count_huge(1);
                Ok(())
            }
            Ok(_) => Err((huge, Blocked::InUse)),
        }
    }

    /// Creates the table that contains the entry for `addr`, if the slot is empty.
    ///
    /// A fault creates the table even if the fault later maps no page.
    pub(crate) fn make_table(&self, addr: u64) -> Result<(), Blocked> {
        let at = entry_of(addr);
        self.lock_table(slot_of(addr), at..at + 1).map(drop)
    }

    /// Locks the table in a slot; first creates the table, or those entries at `positions` that it
    /// lacks.
    pub(super) fn lock_table(
        &self,
        index: u64,
        positions: Range<usize>,
    ) -> Result<LockedTable<'_>, Blocked> {
        let mut shard = self.make_shard(index)?.lock();
        shard.table(index, positions)?;
        let at = shard.at(index).map_err(|_| Blocked::InUse)?;
        Ok(LockedTable { shard, at })
    }

    /// Calls `visitor` for all entries and huge pages in `range`, in no particular order.
    pub(crate) fn visit(&self, range: VmRange, visitor: &mut impl Visitor) {
        if range.end - range.start == PAGE_SIZE && self.visit_page(range.start, visitor) {
            return;
        }
        let slots = slots_of(range);
        if is_short(&slots) {
            for index in slots {
                let Some(shard) = self.shard(index) else {
                    return;
                };
                let mut shard = shard.lock();
                if let Ok(at) = shard.at(index)
                    && self.visit_slot(index, &mut shard.slots[at].1, range, visitor)
                {
                    shard.slots.remove(at);
                }
            }
            return;
        }
        for Locked { shard, .. } in self.shards() {
            let mut shard = shard.lock();
            let span = shard.span(&slots);
            let emptied = shard.slots.extract_if(span, |(index, slot)| {
                self.visit_slot(*index, slot, range, visitor)
            });
            emptied.for_each(drop);
        }
    }

    /// Visits the entry for `addr`; returns false if no table contains it.
    fn visit_page(&self, addr: u64, visitor: &mut impl Visitor) -> bool {
        let visited = self.update(addr, |entry| {
            let at = entry_of(addr);
            visitor.table(slot_of(addr), at..at + 1);
            if *entry != Pte::None {
                visitor.page(addr, entry);
            }
            visitor.leave();
        });
        visited.is_some()
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
            visitor.table(index, table.positions());
            visit_table(start, table, range, visitor);
        }
        false
    }

    /// Calls `f` with every entry in `range` that is not `None`, in any order, until `f` breaks.
    ///
    /// In a huge page, `f` is called with the equivalent small entries.
    pub fn for_each(&self, range: VmRange, mut f: impl FnMut(u64, Pte) -> ControlFlow<()>) {
        let slots = slots_of(range);
        if is_short(&slots) {
            for index in slots {
                let Some(shard) = self.shard(index) else {
                    return;
                };
                let shard = shard.lock();
                if let Some(slot) = shard.slot(index)
                    && read_slot(index, slot, range, &mut f).is_break()
                {
                    return;
                }
            }
            return;
        }
        for Locked { shard, .. } in self.shards() {
            let shard = shard.lock();
            for (index, slot) in &shard.slots[shard.span(&slots)] {
                if read_slot(*index, slot, range, &mut f).is_break() {
                    return;
                }
            }
        }
    }

    /// Calls `f` with every entry in `range` that is not `None`, in ascending address order.
    pub fn for_each_ordered(&self, range: VmRange, mut f: impl FnMut(u64, Pte)) {
        let mut slots = slots_of(range);
        while let Some(index) = self.next_slot(&mut slots) {
            let shard = self.shard(index).map(SpinLock::lock);
            if let Some(slot) = shard.as_ref().and_then(|shard| shard.slot(index)) {
                let _ = read_slot(index, slot, range, &mut |addr, entry| {
                    f(addr, entry);
                    ControlFlow::Continue(())
                });
            }
        }
    }

    /// Takes the first slot from the range `slots`; skips unused slots unless the range is short.
    pub(super) fn next_slot(&self, slots: &mut Range<u64>) -> Option<u64> {
        if is_short(slots) {
            return slots.next();
        }
        let first = |Locked { shard, .. }: &Locked| {
            let shard = shard.lock();
            Some(shard.slots[shard.span(slots)].first()?.0)
        };
        let next = self.shards().iter().filter_map(first).min();
        slots.start = next.map_or(slots.end, |next| next + 1);
        next
    }

    /// Takes the last slot from the range `slots`; skips unused slots unless the range is short.
    pub(super) fn next_slot_back(&self, slots: &mut Range<u64>) -> Option<u64> {
        if is_short(slots) {
            return slots.next_back();
        }
        let last = |Locked { shard, .. }: &Locked| {
            let shard = shard.lock();
            Some(shard.slots[shard.span(slots)].last()?.0)
        };
        let next = self.shards().iter().filter_map(last).max();
        slots.end = next.unwrap_or(slots.start);
        next
    }

    /// Frees the empty tables whose slots are entirely within `range`.
    #[doc(alias = "free_pgtables")]
    pub fn free_tables(&self, range: VmRange) {
        let slots = slot_of(range.start + PMD_SIZE - 1)..slot_of(range.end);
        self.remove_slots(slots, |slot| slot.is_empty());
    }

    /// Removes the vacant slots in `range`, whose contents have been moved away.
    pub(super) fn forget_vacant(&self, range: VmRange) {
        self.remove_slots(slots_of(range), |slot| matches!(slot, Slot::Vacant));
    }

    fn remove_slots(&self, slots: Range<u64>, goes: impl Fn(&Slot) -> bool) {
        if slots.is_empty() {
            return;
        }
        if is_short(&slots) {
            for index in slots {
                let Some(shard) = self.shard(index) else {
                    return;
                };
                let mut shard = shard.lock();
                if let Ok(at) = shard.at(index)
                    && goes(&shard.slots[at].1)
                {
                    shard.slots.remove(at);
                }
            }
            return;
        }
        for Locked { shard, .. } in self.shards() {
            let mut shard = shard.lock();
            let span = shard.span(&slots);
            let gone = shard.slots.extract_if(span, |(_, slot)| goes(slot));
            gone.for_each(drop);
        }
    }

    /// True if `range` overlaps an empty table, or is too long to be searched.
    pub(crate) fn has_empty_table(&self, range: VmRange) -> bool {
        let mut slots = slots_of(range);
        let empty = |index| {
            let shard = self.shard(index).map(SpinLock::lock);
            let slot = shard.as_ref().and_then(|shard| shard.slot(index));
            slot.is_some_and(Slot::is_empty)
        };
        !is_short(&slots) || slots.any(empty)
    }

    /// Returns the number of entries that are not `None`; a huge page counts as `ENTRIES`.
    pub fn len(&self) -> u64 {
        let used = |(_, slot): &(u64, Slot)| match slot {
            Slot::Vacant => 0,
            Slot::Table(table) => u64::from(table.used),
            Slot::Huge(_) => ENTRIES as u64,
        };
        self.shards()
            .iter()
            .map(|locked| &locked.shard)
            .map(|s| s.lock().slots.iter().map(used).sum::<u64>())
            .sum()
    }

    /// True if nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
