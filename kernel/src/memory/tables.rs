//! Hardware page tables of one address space (x86-64, four levels, 4 KiB pages).
//!
//! The core's page table is authoritative, and the hardware page tables mirror it: a missing
//! hardware entry costs a page fault, and a hardware entry that is too permissive breaks isolation.
//! A table is created when one of its entries is first set. It lives until all CPUs are stopped in
//! order to free empty tables ([`Tables::free_empty`]), or until its address space ends, so the address
//! of an entry is stable while a CPU uses it.

use super::frames::Frame;
use crate::cpu::direct_map::pointer_to;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use spin::Mutex;
use vmarea::types::VmRange;

/// The entry allows accesses.
pub const PRESENT: u64 = 1;
/// The entry allows stores.
pub const WRITABLE: u64 = 2;
/// The entry allows accesses from user mode.
pub const USER: u64 = 4;
/// The processor has accessed the page; set by the processor.
pub const ACCESSED: u64 = 0x20;
/// The processor has written to the page; set by the processor.
pub const DIRTY: u64 = 0x40;
/// The entry forbids instruction fetches.
pub const NO_EXECUTE: u64 = 1 << 63;
/// The bits of an entry that contain an address.
pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// First address above user memory.
const USER_END: u64 = 1 << 47;
/// For each level above the last, the number of address bits below that level's index.
const LEVELS: [u32; 3] = [39, 30, 21];
/// Number of bytes that one last-level table maps.
const TABLE_SPAN: u64 = 1 << 21;

unsafe extern "C" {
    static boot_pml4: u8;
}

/// Returns the physical address of the top-level table that maps only the kernel.
pub fn kernel_root() -> u64 {
    &raw const boot_pml4 as u64
}

/// The page tables of one address space.
#[derive(Debug)]
pub struct Tables {
    root: Frame,
    /// Number of tables, including the root.
    count: AtomicUsize,
    /// Lock held while a table is added.
    growth: Mutex<()>,
}

/// Returns the entry for `addr` in the table at a physical address; `shift` determines the level.
fn slot(table: u64, addr: u64, shift: u32) -> &'static AtomicU64 {
    let index = addr >> shift & 511;
    // SAFETY: `table` is a page table, whose entries are only accessed as atomics; the table's
    // owner keeps the reference no longer than the tables live.
    unsafe { &*pointer_to::<AtomicU64>(table + index * 8) }
}

impl Tables {
    /// Creates tables that map only the kernel. Returns `None` if there is no memory for them.
    pub fn new() -> Option<Tables> {
        let root = Frame::zeroed()?;
        for index in 256..512u64 {
            let entry = slot(kernel_root(), index << 39, 39);
            // ORDERING: Relaxed; the kernel's part does not change, and nothing else uses the root
            // yet.
            slot(root.address(), index << 39, 39)
                .store(entry.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Some(Tables {
            root,
            count: AtomicUsize::new(1),
            growth: Mutex::new(()),
        })
    }

    /// Returns the physical address of the top-level table.
    pub fn root(&self) -> u64 {
        self.root.address()
    }

    /// Returns the number of frames that the tables use.
    pub fn frames(&self) -> usize {
        // ORDERING: Relaxed; a statistic.
        self.count.load(Ordering::Relaxed)
    }

    /// Counts the frames that the tables use, one by one.
    pub fn count_frames(&self) -> usize {
        1 + count_below(self.root(), 0, 256)
    }

    /// Returns the entry for `addr`, creating tables as needed, or `None` if there is no memory.
    #[inline]
    pub fn entry_or_new(&self, addr: u64) -> Option<&AtomicU64> {
        let mut table = self.root();
        for shift in LEVELS {
            let entry = slot(table, addr, shift);
            // ORDERING: Acquire, pairs with the Release in `new_table`.
            let present = entry.load(Ordering::Acquire);
            table = match present & PRESENT {
                0 => self.new_table(entry)?,
                _ => present & ADDRESS,
            };
        }
        Some(slot(table, addr, 12))
    }

    #[cold]
    fn new_table(&self, entry: &AtomicU64) -> Option<u64> {
        let _growing = self.growth.lock();
        // ORDERING: Acquire, pairs with the Release below: another thread may have added the table
        // in the meantime.
        let present = entry.load(Ordering::Acquire);
        if present & PRESENT != 0 {
            return Some(present & ADDRESS);
        }
        let table = Frame::zeroed()?.into_address();
        // ORDERING: Relaxed; a statistic.
        self.count.fetch_add(1, Ordering::Relaxed);
        // ORDERING: Release, pairs with the Acquire of readers, which then see the zeros in the
        // table.
        entry.store(table | PRESENT | WRITABLE | USER, Ordering::Release);
        Some(table)
    }

    /// Returns the entries of `range`, which lies within one last-level table, creating tables as
    /// needed, or `None` if there is no memory.
    pub fn entries_or_new(&self, range: VmRange) -> Option<&[AtomicU64]> {
        let first = self.entry_or_new(range.start)?;
        // SAFETY: `range` does not leave the table.
        Some(unsafe { entries_from(first, range.pages()) })
    }

    /// Calls `f` with the entries of `range` in each last-level table, in ascending order.
    pub fn for_each_table(&self, range: VmRange, mut f: impl FnMut(&[AtomicU64])) {
        let (mut addr, end) = (range.start, range.end.min(USER_END));
        while addr < end {
            let mut table = self.root();
            let mut hole = None;
            for shift in LEVELS {
                // ORDERING: Acquire, pairs with the Release in `new_table`.
                let entry = slot(table, addr, shift).load(Ordering::Acquire);
                if entry & PRESENT == 0 {
                    hole = Some(1 << shift);
                    break;
                }
                table = entry & ADDRESS;
            }
            let stop = (addr + 1)
                .next_multiple_of(hole.unwrap_or(TABLE_SPAN))
                .min(end);
            if hole.is_none() {
                let pages = VmRange::new(addr, stop).pages();
                // SAFETY: `stop` is not above the end of what the table maps.
                f(unsafe { entries_from(slot(table, addr, 12), pages) });
            }
            addr = stop;
        }
    }

    /// Frees the tables below the root that have no entry.
    ///
    /// # Safety
    /// Nobody uses the tables or a reference to an entry, but for processors, which flush their TLBs
    /// before they access memory of the address space.
    pub unsafe fn free_empty(&self) {
        // SAFETY: as the caller promises.
        let freed = unsafe { free_empty_below(self.root(), 0, 256) };
        // ORDERING: Relaxed; a statistic.
        self.count.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Returns the entry for `addr`, or `None` if there is no table for it.
    fn entry(&self, addr: u64) -> Option<&AtomicU64> {
        let mut table = self.root();
        for shift in LEVELS {
            // ORDERING: Acquire, pairs with the Release in `new_table`.
            let entry = slot(table, addr, shift).load(Ordering::Acquire);
            if entry & PRESENT == 0 {
                return None;
            }
            table = entry & ADDRESS;
        }
        Some(slot(table, addr, 12))
    }

    /// Calls `f` with every present entry in `range`.
    pub fn for_each(&self, range: VmRange, mut f: impl FnMut(&AtomicU64)) {
        if range == VmRange::page(range.start) && range.end <= USER_END {
            // ORDERING: Relaxed; the lock of the core's entry orders changes.
            let entry = self.entry(range.start);
            let present = |entry: &&AtomicU64| entry.load(Ordering::Relaxed) & PRESENT != 0;
            return entry.filter(present).into_iter().for_each(f);
        }
        self.for_each_table(range, |entries| {
            // ORDERING: Relaxed; the lock of the core's entry orders changes.
            let present = |entry: &&AtomicU64| entry.load(Ordering::Relaxed) & PRESENT != 0;
            entries.iter().filter(present).for_each(&mut f);
        });
    }
}

/// Returns `count` entries of a table, starting with `first`.
///
/// # Safety
/// The table has as many entries from `first` on.
unsafe fn entries_from(first: &AtomicU64, count: u64) -> &[AtomicU64] {
    // SAFETY: as the caller promises; the entries of a table are consecutive.
    unsafe { core::slice::from_raw_parts(first, count as usize) }
}

impl Drop for Tables {
    fn drop(&mut self) {
        free_below(self.root(), 0, 256);
    }
}

/// Counts the tables below the first `entries` entries of the table `table` at the level `depth`.
fn count_below(table: u64, depth: usize, entries: u64) -> usize {
    let Some(&shift) = LEVELS.get(depth) else {
        return 0;
    };
    // ORDERING: Acquire, pairs with the Release in `new_table`.
    let entries =
        (0..entries).map(|index| slot(table, index << shift, shift).load(Ordering::Acquire));
    let present = entries.filter(|entry| entry & PRESENT != 0);
    present
        .map(|entry| 1 + count_below(entry & ADDRESS, depth + 1, 512))
        .sum()
}

/// Frees the tables without entries below the first `entries` entries of the table `table` at the
/// level `depth`; returns their number.
///
/// # Safety
/// As for [`Tables::free_empty`].
unsafe fn free_empty_below(table: u64, depth: usize, entries: u64) -> usize {
    let Some(&shift) = LEVELS.get(depth) else {
        return 0;
    };
    let mut freed = 0;
    for index in 0..entries {
        let entry = slot(table, index << shift, shift);
        // ORDERING: Relaxed; nobody else uses the tables.
        let below = entry.load(Ordering::Relaxed);
        if below & PRESENT == 0 {
            continue;
        }
        // SAFETY: as the caller promises.
        freed += unsafe { free_empty_below(below & ADDRESS, depth + 1, 512) };
        // SAFETY: a table has 512 entries.
        let entries = unsafe { entries_from(slot(below & ADDRESS, 0, 12), 512) };
        // ORDERING: Relaxed, as above.
        if entries
            .iter()
            .all(|entry| entry.load(Ordering::Relaxed) & PRESENT == 0)
        {
            entry.store(0, Ordering::Relaxed);
            // SAFETY: `new_table` gave up the ownership of this frame, and nothing refers to it.
            drop(unsafe { Frame::from_address(below & ADDRESS) });
            freed += 1;
        }
    }
    freed
}

/// Frees the tables below the first `entries` entries of the table `table` at the level `depth`.
fn free_below(table: u64, depth: usize, entries: u64) {
    let Some(&shift) = LEVELS.get(depth) else {
        return;
    };
    for index in 0..entries {
        // ORDERING: Relaxed; no CPU uses the tables any more.
        let entry = slot(table, index << shift, shift).load(Ordering::Relaxed);
        if entry & PRESENT != 0 {
            free_below(entry & ADDRESS, depth + 1, 512);
            // SAFETY: `new_table` gave up the ownership of this frame.
            drop(unsafe { Frame::from_address(entry & ADDRESS) });
        }
    }
}
