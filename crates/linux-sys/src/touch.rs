//! Freshly mapped memory whose pages the threads of this process touch.

use std::io;
use std::ptr;

const PAGE: usize = super::PAGE as usize;

/// Private anonymous memory without huge pages and without adjacent VMAs that it could merge with.
///
/// Unmapped when dropped.
#[derive(Debug)]
pub struct Untouched {
    base: usize,
    pages: usize,
}

impl Untouched {
    /// Maps `pages` pages.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(pages: usize) -> io::Result<Untouched> {
        let len = (pages + 2) * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address chosen by the kernel disturbs no other memory.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = Untouched {
            base: base.addr(),
            pages,
        };
        let middle = base.wrapping_byte_add(PAGE);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range is in the mapping that was just created and that nothing else uses.
        let made = unsafe {
            libc::madvise(base, len, libc::MADV_NOHUGEPAGE);
            libc::mprotect(middle, pages * PAGE, access)
        };
        if made == 0 {
            Ok(memory)
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Writes a byte to page `n`; ignores a page number beyond the end.
    #[inline]
    pub fn touch(&self, n: usize) {
        if n < self.pages {
            let byte = (self.base + (n + 1) * PAGE) as *mut u8;
            // SAFETY: the byte is in the mapping, which lives as long as `self`; all writes are
            // equal.
            unsafe { ptr::write_volatile(byte, 1) };
        }
    }
}

impl Drop for Untouched {
    fn drop(&mut self) {
        // SAFETY: `self` owns the mapping, and nothing can touch it any more.
        unsafe { libc::munmap(self.base as *mut libc::c_void, (self.pages + 2) * PAGE) };
    }
}

/// Maps a page and unmaps it again.
///
/// # Errors
/// `ENOMEM`.
pub fn map_and_unmap() -> io::Result<()> {
    Untouched::new(1).map(drop)
}
