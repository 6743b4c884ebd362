//! Freshly mapped memory whose pages the threads of this process touch.

use std::io;
use std::ptr;

const PAGE: usize = vmarea_linux_sys::PAGE as usize;

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

    /// Makes page `n` writable or read-only; ignores a page number beyond the end.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn set_writable(&self, n: usize, writable: bool) -> io::Result<()> {
        if n >= self.pages {
            return Ok(());
        }
        let access = match writable {
            true => libc::PROT_READ | libc::PROT_WRITE,
            false => libc::PROT_READ,
        };
        let page = (self.base + (n + 1) * PAGE) as *mut libc::c_void;
        // SAFETY: the page is in the mapping, which lives as long as `self` and of which no
        // references exist.
        match unsafe { libc::mprotect(page, PAGE, access) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
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

/// Maps `pages` pages where the kernel puts them and unmaps them again, in two system calls.
///
/// # Errors
/// `ENOMEM`.
pub fn map_and_unmap_pages(pages: usize) -> io::Result<()> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let len = pages * PAGE;
    // SAFETY: a new mapping at an address chosen by the kernel disturbs no other memory.
    let base = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, -1, 0) };
    // SAFETY: the mapping was just created, and nothing uses it.
    if base == libc::MAP_FAILED || unsafe { libc::munmap(base, len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
