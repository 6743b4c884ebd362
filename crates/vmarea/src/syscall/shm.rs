//! `shmat` and `shmdt`: System V shared memory, with segments managed by the embedder.
//!
//! A segment is a file of kind [`SysvShm`](crate::types::FileKind::SysvShm), or of kind
//! [`Hugetlb`](crate::types::FileKind::Hugetlb) for `SHM_HUGETLB`. Each attachment opens the file
//! anew, with a [`FileId`](crate::types::FileId) of its own, so two attachments never merge.
//!
//! # Errors
//! `shmat`: EINVAL for a misaligned address without `SHM_RND`, `SHM_REMAP` without an address, and
//! a range that is already mapped; otherwise the errors of `mmap`. `shmdt`: EINVAL if no segment
//! was attached at the address.
//!
//! # Linux
//! `ipc/shm.c` `do_shmat`, `ksys_shmdt`, 6.18. `shmdt` recognizes an attachment by its page offset:
//! parts that were moved elsewhere remain mapped, and so do sealed parts; neither is an error.

use super::mmap::{MmapRequest, Placement};
use crate::Space;
use crate::refused::Rule;
use crate::types::call_flags::{MapFlags, Prot};
use crate::types::platform::Environment;
use crate::types::{Errno, File, FileKind, MmId, PAGE_MASK, PAGE_SIZE, VmRange, page_align};
use crate::vma::{MappedFile, VmaView};

bitflags::bitflags! {
    /// Flags of `shmat`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct ShmFlags: u32 {
        /// Attach the segment read-only.
        const RDONLY = 0o10000;
        /// Round the address down to a page boundary.
        const RND = 0o20000;
        /// Replace existing mappings in the range.
        const REMAP = 0o40000;
        /// Make the mapping executable.
        const EXEC = 0o100000;
    }
}

/// The arguments of `shmat`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ShmatRequest {
    /// The segment, newly opened; treated as not writable if [`ShmFlags::RDONLY`] is set.
    pub segment: File,
    /// Size of the segment in bytes.
    pub len: u64,
    /// Address at which to attach the segment; 0 lets the core choose.
    pub addr: u64,
    /// Flags of the attachment.
    pub flags: ShmFlags,
    /// How the address is chosen if `addr` is 0.
    pub placement: Placement,
}

impl<E: Environment> Space<E> {
    /// Attaches a segment, and returns its address.
    ///
    /// # Errors
    /// See the [module](crate::syscall::shm).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::syscall::mmap::Placement;
    /// use vmarea::syscall::shm::{ShmFlags, ShmatRequest};
    /// use vmarea::types::{File, FileId, FileKind};
    ///
    /// let request = ShmatRequest {
    ///     segment: File::read_write(FileId(1), 7, FileKind::SysvShm),
    ///     len: 2 * PAGE_SIZE,
    ///     addr: 0,
    ///     flags: ShmFlags::RDONLY,
    ///     placement: Placement::Search,
    /// };
    /// let at = space.shmat(mm, &request)?;
    /// assert_eq!(space.fault(mm, at, Access::Write)?, Faulted::NoAccess);
    /// space.shmdt(mm, at, |inode| (inode == 7).then_some(2 * PAGE_SIZE))?;
    /// assert_eq!(space.maps(mm).count(), 0);
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "do_shmat")]
    pub fn shmat(&self, mm: MmId, request: &ShmatRequest) -> Result<u64, Errno> {
        let ShmatRequest {
            segment,
            len,
            mut addr,
            flags,
            placement,
        } = *request;
        let replaces = flags.contains(ShmFlags::REMAP);
        if addr & !PAGE_MASK != 0 {
            if !flags.contains(ShmFlags::RND) {
                return Err(self.refuse(Errno::EINVAL, Rule::AlignedAddress));
            }
            addr &= PAGE_MASK;
        }
        // With `SHM_REMAP`, a missing address is refused, and so is one that rounds down to 0.
        if addr == 0 && replaces {
            return Err(self.refuse(Errno::EINVAL, Rule::AddressToReplace));
        }
        let mut bits = Prot::READ;
        if !flags.contains(ShmFlags::RDONLY) {
            bits |= Prot::WRITE;
        }
        if flags.contains(ShmFlags::EXEC) {
            bits |= Prot::EXEC;
        }
        let fixed = if request.addr == 0 {
            MapFlags::empty()
        } else {
            MapFlags::FIXED
        };
        let file = File {
            writable: !flags.contains(ShmFlags::RDONLY),
            ..segment
        };
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        if addr != 0 && !replaces {
            let range = VmRange::of_len(addr, len)
                .ok_or_else(|| self.refuse(Errno::EINVAL, Rule::EndFits))?;
            if w.intersection(range).is_some() {
                return Err(w.refuse_occupied(Errno::EINVAL, range));
            }
        }
        let mapping = MmapRequest {
            addr,
            len,
            prot: bits,
            flags: MapFlags::SHARED | fixed,
            file: Some(file),
            placement,
            ..MmapRequest::default()
        };
        let (range, populate) = w.mmap_at_page(&mapping, 0)?;
        drop(w);
        if populate {
            self.mm_populate(mm, range);
        }
        Ok(range.start)
    }

    /// Detaches the segment attached at `addr`, except for parts that have been moved away.
    ///
    /// `size` takes an inode number and returns the size of that segment in bytes, or `None` if the
    /// file is not a segment.
    ///
    /// # Errors
    /// See the [module](crate::syscall::shm). [`shmat`](Self::shmat) has an example of both calls.
    #[doc(alias = "ksys_shmdt")]
    pub fn shmdt(
        &self,
        mm: MmId,
        addr: u64,
        size: impl Fn(u64) -> Option<u64>,
    ) -> Result<(), Errno> {
        if addr & !PAGE_MASK != 0 {
            return Err(self.refuse(Errno::EINVAL, Rule::AlignedAddress));
        }
        let segment_of = |vma: &VmaView| {
            let file = attached_at(vma, addr)?;
            Some((file, size(file.inode)?))
        };
        let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
        let mut at = addr;
        let ((file, size), first) = loop {
            let vma = w
                .find_vma(at)
                .ok_or_else(|| self.refuse(Errno::EINVAL, Rule::Attached))?;
            match segment_of(&vma) {
                Some(segment) => break (segment, vma.range),
                None => at = vma.range.end,
            }
        };
        // A sealed VMA remains mapped.
        let _ = w.unmap_range(first);
        at = first.end;
        let size = page_align(size).unwrap_or(u64::MAX);
        while let Some(vma) = w.find_vma(at).filter(|v| v.range.end - addr <= size) {
            at = vma.range.end;
            if segment_of(&vma).is_some_and(|(f, _)| { f.id } == { file.id }) {
                let _ = w.unmap_range(vma.range);
            }
        }
        Ok(())
    }
}

/// Returns the file of `vma` if `vma` may belong to a segment that was attached at `addr`.
///
/// The page offset of `vma` must be equal to its distance from `addr` in pages.
fn attached_at(vma: &VmaView, addr: u64) -> Option<MappedFile> {
    let page = vma.range.start.wrapping_sub(addr) / PAGE_SIZE;
    let may_be = |kind| matches!(kind, FileKind::SysvShm | FileKind::Hugetlb);
    vma.body
        .file
        .filter(|f| may_be(f.kind) && page == vma.pgoff().0)
}
