//! The interface to a hardware MMU: what the embedder is told about page-table entries.
//!
//! The core's page tables decide what is mapped. The hardware's tables and its TLBs are copies,
//! which may lack an entry but must never hold one that the core's tables do not allow. The core
//! reports each change through [`Mmu`]. An embedder without hardware tables uses [`NoMmu`], whose
//! calls are compiled out.
//!
//! # Picture
//! ```text
//! fault     core maps the page ──▶ set_entry                     (entry locked)
//! unmap     clear ──▶ core's entry is removed ──▶ flush ──▶ the frame's map count falls, free
//! protect   core removes permissions ──▶ restrict ──▶ flush      (mmap_lock held for writing)
//! move      clear ──▶ flush ──▶ the entries appear at the new address
//! ```
//! The map count of a frame decides whether a copy-on-write fault may write to the frame in place.
//! The count falls only after the flush, so that no TLB can still reach a frame that another
//! process writes to.
//!
//! # Linux
//! `include/linux/mmu_gather.h`, `ptep_clear_flush`, `update_mmu_cache`, 6.12.

use crate::types::{Errno, FrameId, MmId, Pgoff, VmFlags, VmRange};
use core::fmt;

/// The page that an entry maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappedPage {
    /// The shared zero page.
    Zero,
    /// A frame with an anonymous page.
    Frame(FrameId),
    /// A page in the embedder's page cache.
    File {
        /// The file.
        inode: u64,
        /// The page's offset in the file.
        index: Pgoff,
    },
}

/// A translation that the hardware may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The page that the translation leads to.
    pub page: MappedPage,
    /// True if user mode may write to the page without a fault.
    pub writable: bool,
    /// The flags of the VMA: [`EXEC`](VmFlags::EXEC) and the protection key apply to each page.
    pub flags: VmFlags,
}

/// Hardware page tables and TLBs.
///
/// An address range is in bytes and page-aligned. A range may contain pages that the hardware does
/// not map. No method may call back into the [`Space`](crate::Space).
///
/// [`flush`](Mmu::flush) may be called with a page-table lock held. If it sends interrupts to other
/// CPUs and waits for them, those CPUs must be able to answer while they wait for a spin lock.
pub trait Mmu: fmt::Debug + Send + Sync + 'static {
    /// False if there is no hardware, so that the calls can be compiled out.
    const PRESENT: bool = true;

    /// Creates the hardware tables of a new address space, which map nothing.
    ///
    /// # Errors
    /// ENOMEM; the address space is then not created.
    fn mm_created(&self, mm: MmId) -> Result<(), Errno>;
    /// Frees the hardware tables of an address space, after all its entries were cleared. No CPU
    /// runs in the address space any more.
    fn mm_gone(&self, mm: MmId);
    /// Maps the page at `addr`, after a fault. Called with the entry locked.
    ///
    /// The hardware may map the same page with fewer permissions, or not at all. It never maps
    /// another page at `addr`: the core cleared and flushed that page before.
    ///
    /// # Errors
    /// ENOMEM; the fault then returns [`OutOfMemory`](crate::fault::Faulted::OutOfMemory), and the
    /// hardware maps nothing at `addr`.
    fn set_entry(&self, mm: MmId, addr: u64, to: Translation) -> Result<(), Errno>;
    /// Removes the hardware's entries in `range`. Called with the entries locked, or while no fault
    /// can map a page in `range`. TLBs may hold the translations until the next `flush`.
    fn clear(&self, mm: MmId, range: VmRange);
    /// Removes, from the hardware's entries in `range`, each permission that `allowed` lacks
    /// ([`READ`](VmFlags::READ), [`WRITE`](VmFlags::WRITE), [`EXEC`](VmFlags::EXEC)). Called with
    /// the entries locked, or while no fault can map a page in `range`. TLBs may hold the
    /// permissions until the next `flush`.
    fn restrict(&self, mm: MmId, range: VmRange, allowed: VmFlags);
    /// Removes from the TLBs of all CPUs the translations in `range` that `clear` or `restrict`
    /// changed. No TLB holds them when this method returns.
    fn flush(&self, mm: MmId, range: VmRange);
    /// Returns true if a CPU has used a translation in `range` since the last call, and clears the
    /// accessed bits of the hardware's entries there. Called with the entries locked, for reclaim
    /// ([`Space::reclaim_frame`](crate::Space::reclaim_frame)).
    ///
    /// The TLBs need no flush: a CPU that still holds a translation uses it without setting the bit
    /// again, which only makes the page look older. Hardware without accessed bits returns false.
    fn accessed(&self, mm: MmId, range: VmRange) -> bool {
        let _ = (mm, range);
        false
    }
    /// Frees the hardware tables that map nothing outside `range`. Nothing is mapped in `range`.
    fn free_tables(&self, mm: MmId, range: VmRange) {
        let _ = (mm, range);
    }
}

/// No hardware: the core's page tables are the only ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMmu;

impl Mmu for NoMmu {
    const PRESENT: bool = false;

    fn mm_created(&self, _: MmId) -> Result<(), Errno> {
        Ok(())
    }
    fn mm_gone(&self, _: MmId) {}
    fn set_entry(&self, _: MmId, _: u64, _: Translation) -> Result<(), Errno> {
        Ok(())
    }
    fn clear(&self, _: MmId, _: VmRange) {}
    fn restrict(&self, _: MmId, _: VmRange, _: VmFlags) {}
    fn flush(&self, _: MmId, _: VmRange) {}
}
