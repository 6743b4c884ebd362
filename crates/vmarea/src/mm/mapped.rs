//! Queries for the embedder: the mappings of an address space, and the page at an address.

use crate::Space;
use crate::page::Pte;
use crate::types::mmu::{MappedPage, Translation};
use crate::types::platform::Environment;
use crate::types::{Errno, MmId, Pgoff, VmFlags};
use crate::vma::VmaView;

/// What is mapped at one address, for an embedder to enter in a processor's page table.
///
/// ```
/// # use vmarea::prelude::*;
/// # let space = Space::new(Policy::LINUX, System::default());
/// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
/// # let mm = space.mm_create(layout, Limits::default())?;
/// use vmarea::types::mmu::MappedPage;
///
/// let at = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
/// assert_eq!(space.with_mapped(mm, at, Mapped::translation)?, None);
/// space.fault(mm, at, Access::Read)?;
/// let to = space.with_mapped(mm, at, Mapped::translation)?.expect("mapped");
/// // After a read, the hardware may map the zero page, but only for reading.
/// assert_eq!((to.page, to.writable), (MappedPage::Zero, false));
///
/// // The same, while `mmap_lock` is held for other reasons as well.
/// let guard = space.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
/// let vma = guard.vma_lookup(at).expect("mapped");
/// assert_eq!(Mapped::of(&vma, at, guard.pages().get(at)).translation(), Some(to));
/// # Ok::<(), Errno>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The page-table entry.
    pub entry: Pte,
    /// The file's inode number and the page index in the file, if the VMA maps a file.
    pub file: Option<(u64, u64)>,
    /// The VMA's flags, which include its protection; empty if no VMA contains the address.
    pub flags: VmFlags,
}

impl Mapped {
    /// Describes what `entry` maps at `addr` in `vma`.
    pub fn of(vma: &VmaView, addr: u64, entry: Pte) -> Mapped {
        Mapped {
            entry,
            file: file_page(vma, addr),
            flags: vma.body.flags,
        }
    }

    /// Returns the translation that the hardware may hold; `None` if the entry maps no page.
    pub fn translation(self) -> Option<Translation> {
        translation(self.entry, self.flags, || self.file)
    }
}

/// Returns the inode and the page index of the file page that `vma` maps at `addr`.
pub(crate) fn file_page(vma: &VmaView, addr: u64) -> Option<(u64, u64)> {
    vma.body.file.map(|file| (file.inode, vma.pgoff_at(addr).0))
}

/// Returns the translation of an entry; `file` returns the inode and the page index of a file page.
#[inline]
pub(crate) fn translation(
    entry: Pte,
    flags: VmFlags,
    file: impl FnOnce() -> Option<(u64, u64)>,
) -> Option<Translation> {
    let (page, writable) = match entry {
        Pte::Zero => (MappedPage::Zero, false),
        Pte::Anon { frame, writable } => (MappedPage::Frame(frame), writable),
        Pte::Ksm { frame } => (MappedPage::Frame(frame), false),
        Pte::File { writable } => {
            let (inode, index) = file()?;
            let index = Pgoff(index);
            (MappedPage::File { inode, index }, writable)
        }
        Pte::None | Pte::Guard | Pte::Swap { .. } | Pte::Migration { .. } => return None,
    };
    Some(Translation {
        page,
        writable: writable && flags.contains(VmFlags::WRITE),
        flags,
    })
}

impl<E: Environment> Space<E> {
    /// Calls `f` with what is mapped at `addr`. After a fault, for example, `f` can enter the page
    /// in a processor's page table.
    ///
    /// During the call, `mmap_lock` (for reading) and the page-table lock for the address are held.
    /// Therefore `f` must not call back into the address space.
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
    /// let addr = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
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
        Ok(r.pages().peek(addr, |entry| {
            f(vma.map_or_else(
                || Mapped {
                    entry,
                    file: None,
                    flags: VmFlags::empty(),
                },
                |vma| Mapped::of(&vma, addr, entry),
            ))
        }))
    }

    /// Returns the mappings of an address space in address order, like `/proc/PID/maps`; yields
    /// nothing if the address space does not exist.
    ///
    /// Each step of the iterator takes `mmap_lock` separately, so the address space may change
    /// between steps. For a consistent list, call [`vmas`](crate::mm::MmapGuard::vmas) on a guard.
    ///
    /// ```
    /// use vmarea::prelude::*;
    ///
    /// let space = Space::new(Policy::LINUX, System::default());
    /// let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// let mm = space.mm_create(layout, Limits::default())?;
    /// let addr = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
    /// space.mprotect(mm, addr, PAGE_SIZE, Prot::READ, None)?;
    /// let ends: Vec<u64> = space.maps(mm).map(|vma| vma.range.end - addr).collect();
    /// assert_eq!(ends, [PAGE_SIZE, 4 * PAGE_SIZE]);
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
