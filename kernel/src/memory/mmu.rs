//! The processor's page tables and TLBs, as copies of the core's page tables.
//!
//! Every address space has [`Tables`] and a set of the CPUs that may hold its translations. Other
//! CPUs flush on a non-maskable interrupt, so that they do it even while they spin for a lock.
//!
//! # Invariants
//! M1  a hardware entry never allows more than the core's entry, except between the core's change
//!     and the flush that the core waits for
//! M2  a CPU whose bit in `active` is clear has no translation of the address space: the bit is set
//!     before the tables are loaded, and cleared after others were

use super::tables::{
    ACCESSED, ADDRESS, DIRTY, NO_EXECUTE, PRESENT, Tables, USER, WRITABLE, kernel_root,
};
use crate::cpu::{self, apic};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use spin::Mutex;
use vmarea::types::{Errno, MmId, PAGE_SIZE, VmFlags, VmRange};
use vmarea_sync::Key;

/// Number of address spaces that can exist at once.
const MAX_MMS: usize = 4096;
/// A longer range is flushed as a whole.
const FLUSH_ONE_BY_ONE: u64 = 32 * PAGE_SIZE;

/// The hardware's side of an address space, by the index of its id.
struct Slot {
    tables: AtomicPtr<Tables>,
    /// CPUs that may hold translations.
    active: AtomicU64,
}

static SLOTS: [Slot; MAX_MMS] = [const {
    Slot {
        tables: AtomicPtr::new(core::ptr::null_mut()),
        active: AtomicU64::new(0),
    }
}; MAX_MMS];

/// The page that a translation leads to.
#[derive(Clone, Copy, Debug)]
pub struct Translation {
    /// Physical address of the page.
    pub page: u64,
    /// True if user mode may write to the page.
    pub writable: bool,
    /// Flags of the VMA.
    pub flags: VmFlags,
}

fn index(mm: MmId) -> usize {
    Key::from_bits(mm.to_bits()).map_or(usize::MAX, |key| key.index() as usize)
}

/// Returns the tables of an address space that exists.
fn tables(mm: MmId) -> Option<&'static Tables> {
    // ORDERING: Acquire, pairs with the Release in `mm_created`.
    let tables = SLOTS.get(index(mm))?.tables.load(Ordering::Acquire);
    // SAFETY: `mm_created` stored a box, and the core calls `mm_gone`, which frees it, last.
    unsafe { tables.as_ref() }
}

/// Creates the tables of a new address space.
///
/// # Errors
/// ENOMEM.
pub fn mm_created(mm: MmId) -> Result<(), Errno> {
    let slot = SLOTS.get(index(mm)).ok_or(Errno::ENOMEM)?;
    let tables = Tables::new().ok_or(Errno::ENOMEM)?;
    // ORDERING: Release, pairs with the Acquire in `tables`.
    slot.tables
        .store(Box::into_raw(Box::new(tables)), Ordering::Release);
    Ok(())
}

/// Frees the tables of an address space in which no CPU runs.
pub fn mm_gone(mm: MmId) {
    let slot = &SLOTS[index(mm)];
    // ORDERING: AcqRel; the last use of the tables.
    let tables = slot.tables.swap(core::ptr::null_mut(), Ordering::AcqRel);
    debug_assert!(slot.active.load(Ordering::SeqCst) == 0);
    if !tables.is_null() {
        // SAFETY: from `Box::into_raw` in `mm_created`, and nobody can find it any more.
        drop(unsafe { Box::from_raw(tables) });
    }
}

/// Maps a page, after a fault; the core's entry is locked.
///
/// # Errors
/// ENOMEM if there is no frame for a table, or the page got none.
pub fn set_entry(mm: MmId, addr: u64, to: Translation) -> Result<(), Errno> {
    let hardware = tables(mm).ok_or(Errno::ESRCH)?;
    if to.page == 0 {
        return Err(Errno::ENOMEM);
    }
    if !to.flags.is_accessible() {
        return Ok(());
    }
    let entry = hardware.entry_or_new(addr).ok_or(Errno::ENOMEM)?;
    let mut bits = to.page | PRESENT | USER | ACCESSED;
    if to.writable && to.flags.contains(VmFlags::WRITE) {
        bits |= WRITABLE | DIRTY;
    }
    if !to.flags.contains(VmFlags::EXEC) {
        bits |= NO_EXECUTE;
    }
    // ORDERING: SeqCst; a CPU that starts to run in the address space after this sees the entry.
    let old = entry.swap(bits, Ordering::SeqCst);
    debug_assert!(old & PRESENT == 0 || old & ADDRESS == to.page, "M1");
    flush_page(addr);
    Ok(())
}

/// Removes the entries of a range; TLBs may hold the translations until the next flush.
pub fn clear(mm: MmId, range: VmRange) {
    if let Some(tables) = tables(mm) {
        // ORDERING: SeqCst; before the flush reads which CPUs are active.
        tables.for_each(range.start, range.end, |_, entry| {
            entry.store(0, Ordering::SeqCst);
        });
    }
}

/// Removes from the entries of a range each permission that `allowed` lacks.
pub fn restrict(mm: MmId, range: VmRange, allowed: VmFlags) {
    let Some(tables) = tables(mm) else { return };
    tables.for_each(range.start, range.end, |_, entry| {
        let change = |old: u64| {
            let mut new = old;
            if !allowed.contains(VmFlags::WRITE) {
                new &= !WRITABLE;
            }
            if !allowed.contains(VmFlags::EXEC) {
                new |= NO_EXECUTE;
            }
            // The hardware cannot allow stores or fetches without loads.
            (allowed.is_accessible()).then_some(new).or(Some(0))
        };
        // ORDERING: SeqCst, as in `clear`. The processor may set bits in between.
        let _ = entry.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
    });
}

/// Turns of an empty loop before each flush; see [`set_window`].
static WINDOW: AtomicU64 = AtomicU64::new(0);

/// Delays each flush by so many turns of an empty loop, so that a test sees what a missing or late
/// flush would leak.
pub fn set_window(turns: u64) {
    // ORDERING: Relaxed; set before other CPUs start.
    WINDOW.store(turns, Ordering::Relaxed);
}

/// Removes the translations of a range from the TLBs of all CPUs, and waits until they are gone.
pub fn flush(mm: MmId, range: VmRange) {
    // ORDERING: Relaxed; does not change.
    for _ in 0..WINDOW.load(Ordering::Relaxed) {
        core::hint::spin_loop();
    }
    if range.end - range.start <= FLUSH_ONE_BY_ONE {
        (range.start..range.end)
            .step_by(PAGE_SIZE as usize)
            .for_each(flush_page);
    } else {
        x86_64::instructions::tlb::flush_all();
    }
    // ORDERING: SeqCst; after the entries were changed (M2).
    let active = SLOTS[index(mm)].active.load(Ordering::SeqCst);
    flush_others(active & !(1 << cpu::number()));
}

fn flush_page(addr: u64) {
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

/// Makes this CPU run in an address space, or in none, and leave the one that it ran in.
pub fn switch(from: Option<MmId>, to: Option<MmId>) {
    if from == to {
        return;
    }
    let bit = 1 << cpu::number();
    let root = match to {
        Some(mm) => {
            // ORDERING: SeqCst; before the tables are read (M2).
            SLOTS[index(mm)].active.fetch_or(bit, Ordering::SeqCst);
            tables(mm).map_or(kernel_root(), Tables::root)
        }
        None => kernel_root(),
    };
    // SAFETY: both kinds of tables map the kernel.
    unsafe { core::arch::asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
    if let Some(mm) = from {
        // ORDERING: SeqCst; after the TLB was flushed (M2).
        SLOTS[index(mm)].active.fetch_and(!bit, Ordering::SeqCst);
    }
}

/// Returns the number of pages that the hardware maps; an estimate of resident memory.
pub fn resident(mm: MmId) -> usize {
    let mut pages = 0;
    if let Some(tables) = tables(mm) {
        tables.for_each(0, u64::MAX, |_, _| pages += 1);
    }
    pages
}
