//! `remap_file_pages`: makes a shared file mapping map different pages of its file.
//!
//! # Errors
//! EINVAL for a nonzero protection, a range that is empty or wraps, or a range that is not
//! completely mapped shared from one file; otherwise the errors of `mmap`.
//!
//! # Linux
//! `mm/mmap.c` `remap_file_pages`, 6.18: since 4.0 this call is an `mmap` over the range.

use super::mmap::MmapRequest;
use crate::Space;
use crate::mm::MmapWriteGuard;
use crate::refused::Rule;
use crate::types::call_flags::{MapFlags, Prot};
use crate::types::platform::Environment;
use crate::types::{Errno, File, MmId, PAGE_MASK, PAGE_SHIFT, VmFlags, VmRange};
use crate::vma::{MappedFile, VmaView};

impl<E: Environment> Space<E> {
    /// Makes `[addr, addr + len)` map different pages of the same file, starting at page offset
    /// `pgoff`.
    ///
    /// # Errors
    /// See the [module](crate::syscall::remap_file_pages).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::types::{File, FileId, FileKind, Pgoff};
    ///
    /// let request = MmapRequest {
    ///     flags: MapFlags::SHARED,
    ///     file: Some(File::read_write(FileId(1), 7, FileKind::Shmem)),
    ///     ..MmapRequest::anonymous(2 * PAGE_SIZE)
    /// };
    /// let at = space.mmap(mm, &request)?;
    /// // The first page now shows page 9 of the file.
    /// space.remap_file_pages(mm, at, PAGE_SIZE, Prot::empty(), 9, MapFlags::empty())?;
    /// assert!(space.maps(mm).map(|vma| vma.pgoff()).eq([Pgoff(9), Pgoff(1)]));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn remap_file_pages(
        &self,
        mm: MmId,
        addr: u64,
        len: u64,
        prot: Prot,
        pgoff: u64,
        flags: MapFlags,
    ) -> Result<(), Errno> {
        let (start, len) = (addr & PAGE_MASK, len & PAGE_MASK);
        let range = VmRange::of_len(start, len).filter(|r| !r.is_empty());
        let range = range.ok_or_else(|| {
            let rule = if len == 0 {
                Rule::SomeLength
            } else {
                Rule::EndFits
            };
            self.refuse(Errno::EINVAL, rule)
        })?;
        let wraps = pgoff.checked_add(len >> PAGE_SHIFT).is_none();
        if !prot.is_empty() {
            return Err(self.refuse(Errno::EINVAL, Rule::KnownProtection));
        }
        if wraps {
            return Err(self.refuse(Errno::EINVAL, Rule::OffsetFits));
        }
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        let (vma, file) = w.shared_file_at(range)?;
        let request = MmapRequest {
            addr: start,
            len,
            prot: protection(vma.body.flags),
            flags: again(vma.body.flags, flags),
            file: Some(file),
            ..MmapRequest::default()
        };
        let (range, populate) = w.mmap_at_page(&request, pgoff)?;
        drop(w);
        if populate {
            self.mm_populate(mm, range);
        }
        Ok(())
    }
}

impl<E: Environment> MmapWriteGuard<'_, E> {
    /// Returns the first VMA in a range, and the file that is mapped there.
    ///
    /// Returns EINVAL unless the whole range is a shared mapping of a single file.
    fn shared_file_at(&self, range: VmRange) -> Result<(VmaView, File), Errno> {
        let first = self
            .vma_lookup(range.start)
            .ok_or_else(|| self.refuse_unmapped(Errno::EINVAL, range.start))?;
        let refused = || self.space.refuse(Errno::EINVAL, Rule::OneSharedFile);
        let file = first.body.file.ok_or_else(refused)?;
        if !first.body.flags.contains(VmFlags::SHARED) {
            return Err(refused());
        }
        let mut last = first;
        while last.range.end < range.end {
            let next = self.find(last.range.end).ok_or_else(refused)?;
            let goes_on = next.range.start == last.range.end
                && next.body.file.map(|f| f.id) == Some(file.id)
                && next.body.flags == first.body.flags;
            if !goes_on {
                return Err(refused());
            }
            last = next;
        }
        Ok((first, opened(file, first.body.flags)))
    }
}

/// Reconstructs the open file behind a shared mapping, as far as the VMA flags reveal it.
fn opened(file: MappedFile, flags: VmFlags) -> File {
    File {
        id: file.id,
        inode: file.inode,
        kind: file.kind,
        readable: true,
        writable: true,
        noexec: !flags.contains(VmFlags::MAYEXEC),
        append_only: false,
        write_sealed: false,
    }
}

fn protection(flags: VmFlags) -> Prot {
    [
        (VmFlags::READ, Prot::READ),
        (VmFlags::WRITE, Prot::WRITE),
        (VmFlags::EXEC, Prot::EXEC),
    ]
    .into_iter()
    .filter(|(flag, _)| flags.contains(*flag))
    .fold(Prot::empty(), |all, (_, bit)| all | bit)
}

fn again(vma: VmFlags, asked: MapFlags) -> MapFlags {
    let mut flags = asked & MapFlags::NONBLOCK;
    flags |= MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
    if vma.contains(VmFlags::LOCKED) {
        flags |= MapFlags::LOCKED;
    }
    flags
}
