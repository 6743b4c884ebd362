//! Memory for one experiment in the child of a probe, and the calls on it.
//!
//! The pages of an experiment have numbers from 0 on; all else in the area is inaccessible.

use super::lists;
use super::syscall::{Answer, call};
use libc::c_int;

/// A page of memory, and the size of a huge page, in bytes.
pub(super) const PAGE: usize = crate::PAGE as usize;
pub(super) const HUGE: usize = 2 << 20;
/// Size of an area in pages, and in bytes.
const PAGES: usize = 2048;
const BYTES: usize = PAGES * PAGE;

pub(super) const READ: c_int = libc::PROT_READ;
pub(super) const WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
/// Private anonymous memory that is not charged, so that `VM_ACCOUNT` makes no difference.
pub(super) const PRIVATE: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
/// Moves a mapping to the given address.
pub(super) const MOVE: c_int = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
/// The same, and leaves an empty mapping behind.
pub(super) const EMPTY: c_int = MOVE | libc::MREMAP_DONTUNMAP;

/// Creates a file in memory.
pub(super) fn memfd(pages: usize, flags: u32) -> Option<usize> {
    let fd = call(
        libc::SYS_memfd_create,
        &[c"probe".as_ptr() as usize, flags as usize],
    )
    .ok()?;
    call(libc::SYS_ftruncate, &[fd, pages * PAGE]).ok()?;
    Some(fd)
}

/// Opens `/dev/zero` to read and write.
pub(super) fn dev_zero() -> Option<usize> {
    let path = c"/dev/zero".as_ptr() as usize;
    let here = libc::AT_FDCWD as usize;
    call(libc::SYS_openat, &[here, path, libc::O_RDWR as usize]).ok()
}

/// Reserved memory, aligned to huge pages.
#[derive(Debug)]
pub(super) struct Area {
    mapped: usize,
    base: usize,
}

impl Area {
    pub(super) fn new() -> Option<Area> {
        let args = [0, BYTES + HUGE, 0, PRIVATE as usize, usize::MAX, 0];
        let mapped = call(libc::SYS_mmap, &args).ok()?;
        let base = mapped.next_multiple_of(HUGE);
        Some(Area { mapped, base })
    }

    /// Unmaps everything that is in the area. What is sealed stays.
    pub(super) fn release(self) {
        let _ = call(libc::SYS_munmap, &[self.mapped, BYTES + HUGE]);
    }

    /// Address of a page.
    pub(super) fn at(&self, page: usize) -> usize {
        self.base + page * PAGE
    }

    /// Maps pages over those of the area.
    pub(super) fn map(&self, page: usize, pages: usize, prot: c_int, flags: c_int) -> Option<()> {
        self.map_file(page, pages, prot, flags, (usize::MAX, 0))
    }

    /// Maps pages of a file, from the page `file.1` on, over those of the area.
    pub(super) fn map_file(
        &self,
        page: usize,
        pages: usize,
        prot: c_int,
        flags: c_int,
        file: (usize, usize),
    ) -> Option<()> {
        let flags = (flags | libc::MAP_FIXED) as usize;
        let (at, len) = (self.at(page), pages * PAGE);
        let args = [at, len, prot as usize, flags, file.0, file.1 * PAGE];
        call(libc::SYS_mmap, &args).ok().map(drop)
    }

    /// Leaves a hole.
    pub(super) fn unmap(&self, page: usize, pages: usize) -> Option<()> {
        let args = [self.at(page), pages * PAGE];
        call(libc::SYS_munmap, &args).ok().map(drop)
    }

    /// Writes to a page, which must be mapped and writable.
    pub(super) fn write(&self, page: usize) {
        // SAFETY: the experiment has mapped this page, and nothing else refers to it.
        unsafe { (self.at(page) as *mut u8).write_volatile(1) };
    }

    pub(super) fn protect(&self, page: usize, pages: usize, prot: c_int) -> Answer {
        let args = [self.at(page), pages * PAGE, prot as usize];
        call(libc::SYS_mprotect, &args)
    }

    pub(super) fn advise(&self, page: usize, pages: usize, advice: c_int) -> Answer {
        let args = [self.at(page), pages * PAGE, advice as usize];
        call(libc::SYS_madvise, &args)
    }

    pub(super) fn lock(&self, page: usize, pages: usize) -> Answer {
        call(libc::SYS_mlock, &[self.at(page), pages * PAGE])
    }

    /// Calls `mremap` with old and new lengths in pages; `to` is the new place.
    pub(super) fn remap(
        &self,
        from: usize,
        [old, new]: [usize; 2],
        flags: c_int,
        to: usize,
    ) -> Answer {
        let (from, to) = (self.at(from), self.at(to));
        let args = [from, old * PAGE, new * PAGE, flags as usize, to];
        call(libc::SYS_mremap, &args)
    }

    /// True if a page is in the same mapping as the page before it.
    pub(super) fn is_joined(&self, page: usize) -> Option<bool> {
        let at = self.at(page);
        lists::mapping_at(at).map(|start| start < at)
    }

    /// True if a page is mapped.
    pub(super) fn is_mapped(&self, page: usize) -> bool {
        lists::mapping_at(self.at(page)).is_some()
    }
}
