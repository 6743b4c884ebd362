//! Queries by an embedder: the mappings of an address space, and the page at an address.

use crate::Space;
use crate::page::Pte;
use crate::types::platform::Environment;
use crate::types::{Errno, MmId, VmFlags};
use crate::vma::VmaView;

/// What is mapped at an address, as a processor's page table has to show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The page-table entry.
    pub entry: Pte,
    /// Inode and page index in the file, if the VMA maps a file.
    pub file: Option<(u64, u64)>,
    /// The VMA's flags, which include its protection; empty if no VMA contains the address.
    pub flags: VmFlags,
}

impl<E: Environment> Space<E> {
    /// Calls `f` with what is mapped at `addr`, for example after a fault, to enter it in a
    /// processor's page table.
    ///
    /// `mmap_lock` is held for reading, and the page-table lock of the address is held, so `f` must
    /// not call back into the address space.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist.
    ///
    /// ```
    /// use vmarea::page::Pte;
    /// use vmarea::prelude::*;
    ///
    /// let space = Space::new(Policy::LINUX, System::default());
    /// let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// let mm = space.mm_create(layout, Limits::default())?;
    /// let addr = space.mmap(mm, &MmapRequest::anonymous(0x4000))?;
    /// assert_eq!(space.fault(mm, addr, Access::Write)?, Faulted::Done);
    /// let (entry, flags) = space.with_mapped(mm, addr, |page| (page.entry, page.flags))?;
    /// assert!(matches!(entry, Pte::Anon { writable: true, .. }));
    /// assert!(flags.contains(VmFlags::WRITE) && !flags.contains(VmFlags::EXEC));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn with_mapped<R>(
        &self,
        mm: MmId,
        addr: u64,
        f: impl FnOnce(Mapped) -> R,
    ) -> Result<R, Errno> {
        let r = self.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
        let vma = r.vma_lookup(addr);
        let file = vma.and_then(|v| Some((v.body.file?.inode, v.pgoff_at(addr).0)));
        let flags = vma.map_or(VmFlags::empty(), |v| v.body.flags);
        Ok(r.pages()
            .peek(addr, |entry| f(Mapped { entry, file, flags })))
    }

    /// Returns the mappings of an address space in address order, like `/proc/PID/maps`; returns
    /// none if the address space does not exist.
    ///
    /// Each step of the iterator takes `mmap_lock` separately, so calls may change the address
    /// space in between. For a consistent list, use [`vmas`](crate::mm::MmapGuard::vmas) of a
    /// guard.
    ///
    /// ```
    /// use vmarea::prelude::*;
    ///
    /// let space = Space::new(Policy::LINUX, System::default());
    /// let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// let mm = space.mm_create(layout, Limits::default())?;
    /// let addr = space.mmap(mm, &MmapRequest::anonymous(0x4000))?;
    /// space.mprotect(mm, addr, 0x1000, Prot::READ, None)?;
    /// let ends: Vec<u64> = space.maps(mm).map(|vma| vma.range.end - addr).collect();
    /// assert_eq!(ends, [0x1000, 0x4000]);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn maps(&self, mm: MmId) -> impl Iterator<Item = VmaView> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            let vma = self.mmap_read_lock(mm)?.find(at)?;
            at = vma.range.end;
            Some(vma)
        })
    }
}
