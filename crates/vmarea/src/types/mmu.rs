//! The interface to a hardware MMU, through which the core reports changes to page-table entries.
//!
//! The core's page tables determine what is mapped. The hardware's page tables and TLBs contain
//! copies of entries: they may lack an entry, but must never contain an entry that the core's
//! tables do not allow. The core reports each change through [`Mmu`]. An embedder without hardware
//! page tables uses [`NoMmu`]; calls to the methods of `NoMmu` are compiled out. Only pages that a
//! fault of the core has mapped are reported; an embedder whose host brings the pages needs
//! [`changes`](crate::changes).
//!
//! # Picture
//! ```text
//! fault     core maps the page ──▶ set_entry                     (entry locked)
//! protect   core adds write permission ──▶ allow_writes          (entries locked)
//! unmap     clear ──▶ core's entry is removed ──▶ flush ──▶ the frame's map count falls, free
//! protect   core removes permissions ──▶ restrict ──▶ flush      (mmap_lock held for writing)
//! fork      the same, with one flush after all VMAs             (mmap_lock held for writing)
//! move      core moves the entries ──▶ move_entries ──▶ flush    (old and new entries locked)
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
    /// A frame that contains an anonymous page.
    Frame(FrameId),
    /// A page in the embedder's page cache.
    File {
        /// The file.
        inode: u64,
        /// The index of the page in the file.
        index: Pgoff,
    },
}

/// A translation that the hardware is allowed to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The page to which the address is translated.
    pub page: MappedPage,
    /// True if user mode can write to the page without a fault.
    pub writable: bool,
    /// The VMA's flags, of which [`EXEC`](VmFlags::EXEC) and the protection key apply to the page.
    pub flags: VmFlags,
}

/// An embedder's hardware page tables and TLBs.
///
/// Address ranges are in bytes and page-aligned. A range may contain pages that the hardware does
/// not map. No method may call back into the [`Space`](crate::Space); in debug builds whose locks check
/// their order, one that does panics with the method's name.
///
/// # Failures
/// A method that adds something to the hardware can fail, because the core can do without it: a call
/// or a fault then ends with the error. One that takes something away cannot. A frame is freed or
/// given to another process after it, so an entry that stays would let a program read and write what is
/// no longer its own, and no error number would prevent that. Such a method needs no memory, however,
/// because it may always take away more than it is asked for: an access to what is missing faults,
/// and the fault maps it again. If an entry covers more than the range and cannot be split, the method
/// removes the whole entry; if it cannot find out what a TLB holds, it flushes all of it. An embedder
/// whose host refuses even that must stop, for the same reason as in Linux, where `ptep_clear_flush`
/// returns no error.
///
/// [`flush`](Mmu::flush) may be called while a page-table lock is held. If `flush` sends interrupts
/// to other CPUs and waits for them, those CPUs must handle such interrupts even while they wait
/// for a spin lock.
///
/// # Examples
/// A processor with a page table, and with a TLB that keeps what it has read:
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Arc, Mutex};
/// use vmarea::prelude::*;
/// use vmarea::types::mmu::{Mmu, Translation};
/// use vmarea::types::NoBytes;
/// # use vmarea::types::platform::Spin;
/// # use vmarea::types::writers::OneWriter;
/// # use vmarea::vma::lock::VmaLock;
///
/// type Entries = BTreeMap<(MmId, u64), Translation>;
///
/// #[derive(Clone, Debug, Default)]
/// struct Processor {
///     table: Arc<Mutex<Entries>>,
///     tlb: Arc<Mutex<Entries>>,
/// }
///
/// impl Mmu for Processor {
///     fn mm_created(&self, _mm: MmId) -> Result<(), Errno> {
///         Ok(())
///     }
///     fn mm_gone(&self, mm: MmId) {
///         self.table.lock().unwrap().retain(|(of, _), _| *of != mm);
///     }
///     fn set_entry(&self, mm: MmId, addr: u64, to: Translation) -> Result<(), Errno> {
///         self.table.lock().unwrap().insert((mm, addr), to);
///         Ok(())
///     }
///     fn clear(&self, mm: MmId, range: VmRange) {
///         self.table.lock().unwrap().retain(|(of, addr), _| *of != mm || !range.contains(*addr));
///     }
///     fn restrict(&self, mm: MmId, range: VmRange, allowed: VmFlags) {
///         for ((of, addr), to) in self.table.lock().unwrap().iter_mut() {
///             if *of == mm && range.contains(*addr) {
///                 to.writable &= allowed.contains(VmFlags::WRITE);
///             }
///         }
///     }
///     fn flush(&self, mm: MmId, range: VmRange) {
///         self.tlb.lock().unwrap().retain(|(of, addr), _| *of != mm || !range.contains(*addr));
///     }
/// }
///
/// impl Processor {
///     /// True if a program could write to `addr` without a fault.
///     fn writes(&self, mm: MmId, addr: u64) -> bool {
///         let mut tlb = self.tlb.lock().unwrap();
///         if let Some(to) = self.table.lock().unwrap().get(&(mm, addr)) {
///             tlb.entry((mm, addr)).or_insert(*to);
///         }
///         tlb.get(&(mm, addr)).is_some_and(|to| to.writable)
///     }
/// }
/// # #[derive(Debug, Default)]
/// # struct Kernel;
/// # impl Environment for Kernel {
/// #     type VmaLock = VmaLock;
/// #     type Platform = NoBytes;
/// #     type Mmu = Processor;
/// #     type Wait = Spin;
/// #     type Writers = OneWriter;
/// # }
///
/// let cpu = Processor::default();
/// let space = Space::<Kernel>::with_mmu(Policy::LINUX, System::default(), NoBytes, cpu.clone());
/// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
/// # let mm = space.mm_create(layout, Limits::default())?;
/// let at = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
/// space.fault(mm, at, Access::Write)?;
/// assert!(cpu.writes(mm, at));
/// space.mprotect(mm, at, PAGE_SIZE, Prot::READ, None)?;
/// assert!(!cpu.writes(mm, at));
/// space.munmap(mm, at, PAGE_SIZE)?;
/// assert!(cpu.table.lock().unwrap().is_empty() && cpu.tlb.lock().unwrap().is_empty());
/// # Ok::<(), Errno>(())
/// ```
pub trait Mmu: fmt::Debug + Send + Sync + 'static {
    /// False if there is no hardware MMU, so that calls to it are compiled out.
    const PRESENT: bool = true;

    /// Creates the hardware page tables of a new address space, in which nothing is mapped.
    ///
    /// # Errors
    /// ENOMEM; the address space is then not created.
    fn mm_created(&self, mm: MmId) -> Result<(), Errno>;
    /// Frees the hardware page tables of an address space, after all its entries have been cleared.
    /// No CPU runs in the address space any more.
    fn mm_gone(&self, mm: MmId);
    /// Maps the page at `addr`, after a fault. Called with the page-table lock for the entry held.
    ///
    /// At the time of the call, the hardware might already map the same page with fewer
    /// permissions. It does not map another page at `addr`, because the core has already cleared
    /// and flushed such a mapping.
    ///
    /// # Errors
    /// ENOMEM; the fault then returns [`OutOfMemory`](crate::fault::Faulted::OutOfMemory), and the
    /// hardware maps nothing at `addr`.
    fn set_entry(&self, mm: MmId, addr: u64, to: Translation) -> Result<(), Errno>;
    /// Removes the hardware's entries in `range`. Called with the page-table locks for the entries
    /// held, or while no fault can map a page in `range`. TLBs may contain the translations until
    /// the next `flush`. Cannot fail, but may remove more.
    fn clear(&self, mm: MmId, range: VmRange);
    /// Removes permissions from the hardware's entries in `range`: each of [`READ`](VmFlags::READ),
    /// [`WRITE`](VmFlags::WRITE) and [`EXEC`](VmFlags::EXEC) that is not in `allowed`. Called with
    /// the page-table locks for the entries held, or while no fault can map a page in `range`. TLBs
    /// may contain the removed permissions until the next `flush`. Cannot fail, but may remove more
    /// permissions, or whole entries.
    fn restrict(&self, mm: MmId, range: VmRange, allowed: VmFlags);
    /// Adds write permission to the hardware's entries in `range`, after `mprotect`. The core's
    /// entries for all pages in `range` allow writes. Called with the page-table locks for the
    /// entries held.
    ///
    /// The TLBs need not be flushed: a translation without the permission costs at most a page
    /// fault. For the same reason an implementation may do nothing, which is the default.
    fn allow_writes(&self, mm: MmId, range: VmRange) {
        let _ = (mm, range);
    }
    /// Moves the hardware's entries in `range` to the range that starts at `to`, in which the
    /// hardware maps nothing, for `mremap`. Neither range crosses the end of a page table. Called
    /// with the page-table locks for the old and the new entries held. TLBs may contain the old
    /// translations until the next `flush` of `range`, for which the caller also holds the locks.
    ///
    /// An implementation may remove entries instead of moving them; the next access to such a page
    /// faults. The default removes all of them.
    fn move_entries(&self, mm: MmId, range: VmRange, to: u64) {
        let _ = to;
        self.clear(mm, range);
    }
    /// Removes from the TLBs of all CPUs every translation in `range` that `clear`, `restrict` or
    /// `move_entries` has changed. When this method returns, no TLB contains such a translation.
    fn flush(&self, mm: MmId, range: VmRange);
    /// Checks whether a CPU has used a translation in `range` since the last call, and clears the
    /// accessed bits of the hardware's entries in `range`. Called for reclaim
    /// ([`Space::reclaim_frame`](crate::Space::reclaim_frame)), with the page-table locks for the
    /// entries held.
    ///
    /// The TLBs need not be flushed: a CPU whose TLB still contains a translation can use it
    /// without setting the accessed bit again, which only makes the page look older. An
    /// implementation for hardware without accessed bits returns false.
    fn accessed(&self, mm: MmId, range: VmRange) -> bool {
        let _ = (mm, range);
        false
    }
    /// Frees hardware page tables that map nothing outside `range`. Nothing is mapped in `range`.
    fn free_tables(&self, mm: MmId, range: VmRange) {
        let _ = (mm, range);
    }
}

/// No hardware MMU: the core's page tables are the only ones.
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
