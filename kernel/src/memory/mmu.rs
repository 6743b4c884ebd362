//! The processor's page tables and TLBs, which mirror the core's page tables.
//!
//! Every address space has [`Tables`] and a set of the CPUs that may hold its translations. A
//! non-maskable interrupt makes other CPUs flush their TLBs, so that they flush even while they
//! spin on a lock.
//!
//! # Invariants
//! M1  a hardware entry never allows more than the core's entry, except between the core's change
//!     and the flush that the core waits for
//! M2  a CPU whose bit in `active` is clear has no translation of the address space: the bit is set
//!     before the tables are loaded, and cleared after others were

use super::frame_numbers::address_of;
use super::tables::{
    ACCESSED, ADDRESS, DIRTY, NO_EXECUTE, PRESENT, Tables, USER, WRITABLE, kernel_root,
};
use crate::cpu::stop::Alone;
use crate::cpu::{self, MAX_CPUS, PerCpu, apic};
use alloc::boxed::Box;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use spin::Mutex;
use vmarea::types::mmu::{Mmu, Translation};
use vmarea::types::{Errno, MmId, PAGE_SIZE, VmFlags, VmRange};

/// Maximum number of address spaces at one time.
const MAX_MMS: usize = 4096;
/// Maximum length of a range that is flushed page by page; a longer one flushes the whole TLB.
const FLUSH_ONE_BY_ONE: u64 = 32 * PAGE_SIZE;

/// The hardware state of an address space, indexed by the address space's id.
struct Slot {
    tables: AtomicPtr<Tables>,
    /// Set of CPUs that may hold translations, one bit each.
    active: AtomicU64,
}

static SLOTS: [Slot; MAX_MMS] = [const {
    Slot {
        tables: AtomicPtr::new(core::ptr::null_mut()),
        active: AtomicU64::new(0),
    }
}; MAX_MMS];

/// The processors' page tables and TLBs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hardware;

/// Returns the page tables of an address space, or `None` if it does not exist.
fn tables(mm: MmId) -> Option<&'static Tables> {
    // ORDERING: Acquire, pairs with the Release in `mm_created`.
    let tables = SLOTS.get(mm.index())?.tables.load(Ordering::Acquire);
    // SAFETY: `mm_created` stored a box, and the core calls `mm_gone`, which frees it, last.
    unsafe { tables.as_ref() }
}

impl Mmu for Hardware {
    fn mm_created(&self, mm: MmId) -> Result<(), Errno> {
        let slot = SLOTS.get(mm.index()).ok_or(Errno::ENOMEM)?;
        let tables = Tables::new().ok_or(Errno::ENOMEM)?;
        let tables = Box::into_raw(Box::new(tables));
        // ORDERING: Release, pairs with the Acquire in `tables`.
        slot.tables.store(tables, Ordering::Release);
        Ok(())
    }

    fn mm_gone(&self, mm: MmId) {
        let slot = &SLOTS[mm.index()];
        // ORDERING: SeqCst, as in `switch`.
        debug_assert!(slot.active.load(Ordering::SeqCst) == 0, "a CPU runs there");
        // ORDERING: AcqRel; the last use of the tables.
        let tables = slot.tables.swap(core::ptr::null_mut(), Ordering::AcqRel);
        if !tables.is_null() {
            // SAFETY: from `Box::into_raw` in `mm_created`, and nobody can find it any more.
            drop(unsafe { Box::from_raw(tables) });
        }
    }

    fn set_entry(&self, mm: MmId, addr: u64, to: Translation) -> Result<(), Errno> {
        let hardware = tables(mm).ok_or(Errno::ENOMEM)?;
        let page = address_of(to.page);
        if page == 0 {
            return Err(Errno::ENOMEM);
        }
        if !to.flags.is_accessible() {
            return Ok(());
        }
        let entry = hardware.entry_or_new(addr).ok_or(Errno::ENOMEM)?;
        let mut bits = page | PRESENT | USER | ACCESSED;
        if to.writable {
            bits |= WRITABLE | DIRTY;
        }
        if !to.flags.contains(VmFlags::EXEC) {
            bits |= NO_EXECUTE;
        }
        // ORDERING: SeqCst; a CPU that starts to run in the address space after this sees the entry.
        let old = entry.swap(bits, Ordering::SeqCst);
        debug_assert!(old & PRESENT == 0 || old & ADDRESS == page, "M1");
        // A TLB holds no entry that was not present. One that allowed less costs at most another
        // page fault, after which the processor reads the tables again.
        Ok(())
    }

    fn clear(&self, mm: MmId, range: VmRange) {
        let Some(tables) = tables(mm) else { return };
        tables.for_each(range, |entry| {
            // ORDERING: SeqCst; before the flush reads which CPUs are active.
            entry.store(0, Ordering::SeqCst);
        });
    }

    fn restrict(&self, mm: MmId, range: VmRange, allowed: VmFlags) {
        let Some(tables) = tables(mm) else { return };
        let mut kept = !0;
        let mut added = 0;
        if !allowed.is_accessible() {
            // The hardware cannot allow stores or fetches without loads.
            kept = 0;
        } else if !allowed.contains(VmFlags::WRITE) {
            kept = !WRITABLE;
        }
        if kept != 0 && !allowed.contains(VmFlags::EXEC) {
            added = NO_EXECUTE;
        }
        tables.for_each(range, |entry| {
            // ORDERING: SeqCst, as in `clear`. The processor may set bits in between.
            entry.fetch_and(kept, Ordering::SeqCst);
            entry.fetch_or(added, Ordering::SeqCst);
        });
    }

    fn allow_writes(&self, mm: MmId, range: VmRange) {
        let Some(tables) = tables(mm) else { return };
        tables.for_each(range, |entry| {
            // ORDERING: SeqCst, as in `set_entry`. The processor may set bits in between.
            entry.fetch_or(WRITABLE | DIRTY, Ordering::SeqCst);
        });
    }

    fn move_entries(&self, mm: MmId, range: VmRange, to: u64) {
        let Some(tables) = tables(mm) else { return };
        let place = VmRange::new(to, to + range.len_bytes());
        let Some(places) = tables.entries_or_new(place) else {
            return self.clear(mm, range);
        };
        tables.for_each_table(range, |entries| {
            for (entry, place) in entries.iter().zip(places) {
                // ORDERING: Relaxed; the lock of the core's entry orders changes.
                if entry.load(Ordering::Relaxed) & PRESENT != 0 {
                    // ORDERING: SeqCst; before the flush reads which CPUs are active.
                    place.store(entry.swap(0, Ordering::SeqCst), Ordering::SeqCst);
                }
            }
        });
    }

    fn accessed(&self, mm: MmId, range: VmRange) -> bool {
        let Some(tables) = tables(mm) else {
            return false;
        };
        let mut accessed = false;
        tables.for_each(range, |entry| {
            // ORDERING: Relaxed; only a hint for reclaim.
            accessed |= entry.fetch_and(!ACCESSED, Ordering::Relaxed) & ACCESSED != 0;
        });
        accessed
    }

    fn flush(&self, mm: MmId, range: VmRange) {
        // ORDERING: Relaxed; does not change.
        for _ in 0..WINDOW.load(Ordering::Relaxed) {
            core::hint::spin_loop();
        }
        // ORDERING: SeqCst; after the entries were changed (M2).
        let active = SLOTS[mm.index()].active.load(Ordering::SeqCst);
        let here = 1 << cpu::number();
        if active & here == 0 {
            // This CPU has left the address space, which is ending (M2).
        } else if range.end - range.start <= FLUSH_ONE_BY_ONE {
            let pages = (range.start..range.end).step_by(PAGE_SIZE as usize);
            pages.for_each(flush_page);
        } else {
            x86_64::instructions::tlb::flush_all();
            // ORDERING: Relaxed; a statistic.
            WHOLE_FLUSHES.fetch_add(1, Ordering::Relaxed);
        }
        // ORDERING: Relaxed; does not change.
        if !LOCAL_ONLY.load(Ordering::Relaxed) {
            flush_others(active & !here);
        }
    }
}

/// Number of busy-wait iterations before each flush; see [`set_window`].
static WINDOW: AtomicU64 = AtomicU64::new(0);

/// Delays each flush by `turns` iterations of an empty loop.
///
/// The delay makes tests more likely to notice a missing or late flush.
pub fn set_window(turns: u64) {
    // ORDERING: Relaxed; set before other CPUs start.
    WINDOW.store(turns, Ordering::Relaxed);
}

/// True if a flush does not affect the TLBs of other CPUs; see [`flush_only_here`].
static LOCAL_ONLY: AtomicBool = AtomicBool::new(false);

/// Leaves stale translations in the TLBs of other CPUs from now on.
///
/// One process can then read another's writes, and the tests must notice that.
pub fn flush_only_here() {
    // ORDERING: Relaxed; set before other CPUs start.
    LOCAL_ONLY.store(true, Ordering::Relaxed);
}

/// Number of translations that CPUs have removed from their own TLBs one by one.
static FLUSHED_PAGES: AtomicU64 = AtomicU64::new(0);
/// Number of times that a CPU has removed all translations from its own TLB.
static WHOLE_FLUSHES: AtomicU64 = AtomicU64::new(0);

/// Returns how many translations CPUs have flushed from their own TLBs one by one, and how many
/// times a CPU has flushed its own TLB as a whole, which includes each switch of address spaces.
pub fn local_flushes() -> (u64, u64) {
    // ORDERING: Relaxed; statistics.
    (
        FLUSHED_PAGES.load(Ordering::Relaxed),
        WHOLE_FLUSHES.load(Ordering::Relaxed),
    )
}

fn flush_page(addr: u64) {
    // ORDERING: Relaxed; a statistic.
    FLUSHED_PAGES.fetch_add(1, Ordering::Relaxed);
    // SAFETY: removes a translation; the tables remain.
    unsafe { core::arch::asm!("invlpg [{}]", in(reg) addr, options(nostack, preserves_flags)) };
}

/// Number of CPUs that have not flushed yet; `flush_entry` in `entry.s` decrements it.
#[unsafe(no_mangle)]
static FLUSHES_PENDING: AtomicU64 = AtomicU64::new(0);
static FLUSHING: Mutex<()> = Mutex::new(());

fn flush_others(cpus: u64) {
    if cpus == 0 {
        return;
    }
    let _one_at_a_time = FLUSHING.lock();
    // ORDERING: SeqCst; before the interrupts are sent.
    FLUSHES_PENDING.store(u64::from(cpus.count_ones()), Ordering::SeqCst);
    for cpu in (0..64).filter(|cpu| cpus >> cpu & 1 != 0) {
        apic::send_nmi(cpu);
    }
    // ORDERING: SeqCst; the decrement follows the flush.
    while FLUSHES_PENDING.load(Ordering::SeqCst) != 0 {
        core::hint::spin_loop();
    }
}

/// The address space whose page tables each CPU has loaded.
static LOADED: PerCpu<Cell<Option<MmId>>> = PerCpu::new([const { Cell::new(None) }; MAX_CPUS]);

/// Switches this CPU to an address space; `None` stands for the kernel's page tables.
pub fn switch(to: Option<MmId>) {
    let from = LOADED.get().replace(to);
    if from == to {
        return;
    }
    let bit = 1 << cpu::number();
    let root = match to {
        Some(mm) => {
            // ORDERING: SeqCst; before the tables are read (M2).
            SLOTS[mm.index()].active.fetch_or(bit, Ordering::SeqCst);
            tables(mm).map_or(kernel_root(), Tables::root)
        }
        None => kernel_root(),
    };
    // SAFETY: both kinds of tables map the kernel.
    unsafe { core::arch::asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
    // ORDERING: Relaxed; a statistic.
    WHOLE_FLUSHES.fetch_add(1, Ordering::Relaxed);
    if let Some(mm) = from {
        // ORDERING: SeqCst; after the TLB was flushed (M2).
        SLOTS[mm.index()].active.fetch_and(!bit, Ordering::SeqCst);
    }
}

/// Frees the page tables without entries of all address spaces. Other CPUs flush their TLBs before they
/// go on.
pub fn free_empty_tables(_: &Alone) {
    for slot in &SLOTS {
        // ORDERING: Relaxed; no other CPU runs.
        let tables = slot.tables.load(Ordering::Relaxed);
        // SAFETY: `mm_created` stored a box, and `mm_gone`, which frees it, does not run.
        if let Some(tables) = unsafe { tables.as_ref() } {
            // SAFETY: no other CPU runs in the kernel, and this one uses no entry here.
            unsafe { tables.free_empty() };
        }
    }
    x86_64::instructions::tlb::flush_all();
}

/// Returns the number of frames that an address space's page tables use.
pub fn table_frames(mm: MmId) -> usize {
    tables(mm).map_or(0, Tables::frames)
}

/// Counts the frames of an address space's page tables one by one, to check [`table_frames`].
pub fn count_table_frames(mm: MmId) -> usize {
    tables(mm).map_or(0, Tables::count_frames)
}
