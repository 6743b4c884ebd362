//! Memory split into many mappings that could be one, for tests of repairs.

use std::ops::Range;
use std::ptr;

use super::PAGE;

/// Pages divided into many mappings, with an inaccessible page on either side.
///
/// The mappings are split because every other page is made accessible before the pages in between.
/// Some pages are empty. The memory is unmapped when the value is dropped.
#[derive(Debug)]
pub struct Pieces {
    base: u64,
    pages: u64,
}

impl Pieces {
    /// Maps `pages` pages; the first word of each filled page is the page's number.
    pub fn new(pages: u64) -> Pieces {
        let len = (pages + 2) * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address chosen by the kernel disturbs no other memory.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), len as usize, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let pieces = Pieces {
            base: base as u64 + PAGE,
            pages,
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        for page in (0..pages).step_by(2).chain((1..pages).step_by(2)) {
            let at = pieces.at(page, 0).cast();
            // SAFETY: the page is in the mapping that was just created and that nothing else uses.
            assert_eq!(unsafe { libc::mprotect(at, PAGE as usize, access) }, 0);
            if !Self::is_hole(page) {
                pieces.write(page, 0, page);
            }
        }
        pieces
    }

    /// Returns the address range of the pages.
    pub fn range(&self) -> Range<u64> {
        self.base..self.base + self.pages * PAGE
    }

    /// True if the page is initially empty.
    pub fn is_hole(page: u64) -> bool {
        page % 5 == 4
    }

    fn at(&self, page: u64, word: u64) -> *mut u64 {
        assert!(page < self.pages && word < PAGE / 8);
        (self.base + page * PAGE + word * 8) as *mut u64
    }

    /// Reads one word of a page.
    pub fn read(&self, page: u64, word: u64) -> u64 {
        // SAFETY: the word is in the mapping, which lives as long as `self`.
        unsafe { ptr::read_volatile(self.at(page, word)) }
    }

    /// Writes one word of a page.
    pub fn write(&self, page: u64, word: u64, value: u64) {
        // SAFETY: as in `read`; each thread of a test uses a different word.
        unsafe { ptr::write_volatile(self.at(page, word), value) };
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let (start, len) = (self.base - PAGE, (self.pages + 2) * PAGE);
        // SAFETY: `new` mapped this range, and nothing borrows from it any more.
        unsafe { libc::munmap(start as *mut _, len as usize) };
    }
}
