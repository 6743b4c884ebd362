//! Hardware page tables of one address space (x86-64, four levels, 4 KiB pages).
//!
//! The core's page table is authoritative, and the hardware page tables mirror it: a missing
//! hardware entry costs a page fault, and a hardware entry that is too permissive breaks isolation.
//! A table is created when one of its entries is first set, and lives as long as the address space,
//! so the address of an entry is stable.

use super::frames::Frame;
use crate::cpu::direct_map::pointer_to;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use spin::Mutex;

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
    pub fn entry_or_new(&self, addr: u64) -> Option<&AtomicU64> {
        let mut table = self.root();
        for shift in LEVELS {
            table = self.table_below(slot(table, addr, shift))?;
        }
        Some(slot(table, addr, 12))
    }

    fn table_below(&self, entry: &AtomicU64) -> Option<u64> {
        // ORDERING: Acquire, pairs with the Release below.
        let present = entry.load(Ordering::Acquire);
        if present & PRESENT != 0 {
            return Some(present & ADDRESS);
        }
        let _growing = self.growth.lock();
        // ORDERING: Acquire, as above: another thread may have added the table in the meantime.
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

    /// Calls `f` with every present entry in the range from `start` to `end` (exclusive).
    pub fn for_each(&self, start: u64, end: u64, mut f: impl FnMut(u64, &AtomicU64)) {
        let (mut addr, end) = (start, end.min(USER_END));
        while addr < end {
            let mut table = self.root();
            let mut hole = None;
            for shift in LEVELS {
                // ORDERING: Acquire, pairs with the Release in `table_below`.
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
            while hole.is_none() && addr < stop {
                let entry = slot(table, addr, 12);
                // ORDERING: Relaxed; the lock of the core's entry orders changes.
                if entry.load(Ordering::Relaxed) & PRESENT != 0 {
                    f(addr, entry);
                }
                addr += 4096;
            }
            addr = stop;
        }
    }
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
    // ORDERING: Acquire, pairs with the Release in `table_below`.
    let entries =
        (0..entries).map(|index| slot(table, index << shift, shift).load(Ordering::Acquire));
    let present = entries.filter(|entry| entry & PRESENT != 0);
    present
        .map(|entry| 1 + count_below(entry & ADDRESS, depth + 1, 512))
        .sum()
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
            // SAFETY: `table_below` gave up the ownership of this frame.
            drop(unsafe { Frame::from_address(entry & ADDRESS) });
        }
    }
}
