//! Updates the mappings of a file that is truncated, hole-punched or written back.
//!
//! Any process can change the file with `truncate`, `fallocate` or `MADV_REMOVE`, even if it does
//! not map the file. The embedder changes the file and calls [`Space::unmap_mapping`], which
//! removes the changed pages from every mapping, so that the next access faults.
//!
//! An embedder that writes files back marks a page as dirty when [`Mmu::set_entry`] maps it as
//! writable. For writeback, the embedder clears the mark, calls [`Space::clean_mapping`], and then
//! writes the page back. The next write to the page faults, and marks it as dirty again.
//!
//! [`Mmu::set_entry`]: crate::types::mmu::Mmu::set_entry
//!
//! # Linux
//! `mm/memory.c` `unmap_mapping_pages`, `mm/truncate.c`, `mm/rmap.c` `folio_mkclean`, 6.18. Truncating a file removes private
//! copies as well; punching a hole keeps them.

use crate::Space;
use crate::mm::MmapReadGuard;
use crate::page::range::Zap;
use crate::types::platform::Environment;
use crate::types::{MmId, PAGE_SHIFT, VmRange};
use crate::vma::VmaView;

/// Whether private copies are removed together with the pages of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// Private copies are removed (`even_cows`), because the file has been truncated.
    Go,
    /// Private copies are kept, because a hole has been punched in the file.
    Stay,
}

impl<E: Environment> Space<E> {
    /// Removes pages `first` up to `end` (exclusive) of a changed file from all mappings.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::syscall::file_change::Copies;
    /// use vmarea::types::{File, FileId, FileKind};
    ///
    /// let file = File::read_write(FileId(1), 7, FileKind::Regular);
    /// let request = MmapRequest {
    ///     flags: MapFlags::PRIVATE,
    ///     file: Some(file),
    ///     ..MmapRequest::anonymous(2 * PAGE_SIZE)
    /// };
    /// let at = space.mmap(mm, &request)?;
    /// space.fault(mm, at, Access::Write)?;
    /// // A hole in the file leaves the private copy of page 0 alone; a truncation does not.
    /// space.unmap_mapping(file.inode, 0, 2, Copies::Stay);
    /// assert_eq!(space.frames_in_use(), 1);
    /// space.unmap_mapping(file.inode, 0, 2, Copies::Go);
    /// assert_eq!(space.frames_in_use(), 0);
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "unmap_mapping_pages")]
    pub fn unmap_mapping(&self, inode: u64, first: u64, end: u64, copies: Copies) {
        for mm in self.mms.keys().map(MmId) {
            if let Some(r) = self.mmap_read_lock(mm) {
                r.unmap_mapping(inode, first, end, copies);
            }
        }
    }

    /// Write-protects pages `first` up to `end` (exclusive) of a file in all mappings.
    ///
    /// When this method returns, no TLB contains a write permission to these pages that was granted
    /// before the call.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::page::Pte;
    /// use vmarea::types::{File, FileId, FileKind};
    ///
    /// let request = MmapRequest {
    ///     flags: MapFlags::SHARED,
    ///     file: Some(File::read_write(FileId(1), 7, FileKind::Regular)),
    ///     ..MmapRequest::anonymous(PAGE_SIZE)
    /// };
    /// let at = space.mmap(mm, &request)?;
    /// let entry = || space.with_mapped(mm, at, |page| page.entry);
    /// space.fault(mm, at, Access::Write)?;
    /// assert_eq!(entry()?, Pte::File { writable: true });
    /// // Page 0 of the file is about to be written back.
    /// space.clean_mapping(7, 0, 1);
    /// assert_eq!(entry()?, Pte::File { writable: false });
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "folio_mkclean")]
    pub fn clean_mapping(&self, inode: u64, first: u64, end: u64) {
        for mm in self.mms.keys().map(MmId) {
            if let Some(r) = self.mmap_read_lock(mm) {
                for range in r.parts_of(inode, first, end) {
                    r.page_tables().clean(range);
                }
            }
        }
    }
}

impl<E: Environment> MmapReadGuard<'_, E> {
    fn unmap_mapping(&self, inode: u64, first: u64, end: u64, copies: Copies) {
        let zap = match copies {
            Copies::Go => Zap::KeepGuards,
            Copies::Stay => Zap::FilePages,
        };
        for range in self.parts_of(inode, first, end) {
            self.page_tables().zap(range, zap);
        }
    }

    /// Returns the address ranges that map the file's pages `first` up to `end` (exclusive).
    fn parts_of(&self, inode: u64, first: u64, end: u64) -> impl Iterator<Item = VmRange> + '_ {
        let maps = move |v: &VmaView| v.body.file.is_some_and(|f| f.inode == inode);
        self.vmas()
            .filter(move |v| maps(v) && !v.is_anonymous())
            .filter_map(move |v| part(&v, first, end))
    }
}

/// Returns the address range at which a VMA maps the file's pages `first` up to `end` (exclusive).
fn part(vma: &VmaView, first: u64, end: u64) -> Option<VmRange> {
    let begin = vma.pgoff().0;
    let last = begin.saturating_add(vma.range.pages());
    let (from, to) = (first.max(begin), end.min(last));
    let addr = |index: u64| vma.range.start + ((index - begin) << PAGE_SHIFT);
    (from < to).then(|| VmRange::new(addr(from), addr(to)))
}
