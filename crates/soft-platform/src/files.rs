//! Files of the software platform: pages by inode and index, filled with zeros until written.

use super::page::{Page, zeros};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use vmarea::types::{Errno, PAGE_SIZE};

/// The page cache of the software platform.
#[derive(Debug, Default)]
pub struct Files {
    pages: BTreeMap<(u64, u64), Box<Page>>,
    /// Size of each file in pages, by inode; a file without an entry has no end.
    sizes: BTreeMap<u64, u64>,
    /// Largest size in bytes that the file system permits, by inode; no entry: [`LARGEST`].
    largest: BTreeMap<u64, u64>,
}

/// The largest size of a file of tmpfs, and of every file that has no smaller limit.
#[doc(alias = "MAX_LFS_FILESIZE")]
const LARGEST: u64 = i64::MAX as u64;

impl Files {
    /// Returns a page of a file, and creates it if it does not exist.
    pub fn page(&mut self, inode: u64, index: u64) -> &mut Page {
        self.pages.entry((inode, index)).or_insert_with(zeros)
    }

    /// Sets the size of a file in pages, and removes the pages beyond the new size.
    pub fn resize(&mut self, inode: u64, pages: u64) {
        self.sizes.insert(inode, pages);
        let beyond = (inode, pages)..(inode + 1, 0);
        self.pages.extract_if(beyond, |_, _| true).for_each(drop);
    }

    /// Forgets a file, which nothing uses any more.
    pub fn remove(&mut self, inode: u64) {
        self.resize(inode, 0);
        self.sizes.remove(&inode);
    }

    /// Sets the largest size of a file in bytes (`s_maxbytes` of its file system).
    pub fn limit(&mut self, inode: u64, bytes: u64) {
        self.largest.insert(inode, bytes);
    }

    /// Removes the pages `first..end`, so that they read as zeros.
    ///
    /// # Errors
    /// EFBIG if the hole ends beyond the largest size of the file (`vfs_fallocate`).
    pub fn punch_hole(&mut self, inode: u64, first: u64, end: u64) -> Result<(), Errno> {
        let largest = self.largest.get(&inode).unwrap_or(&LARGEST);
        if end > largest / PAGE_SIZE {
            return Err(Errno::EFBIG);
        }
        let hole = (inode, first)..(inode, end);
        self.pages.extract_if(hole, |_, _| true).for_each(drop);
        Ok(())
    }

    /// True if the page exists in the page cache.
    pub fn is_cached(&self, inode: u64, index: u64) -> bool {
        self.pages.contains_key(&(inode, index))
    }

    /// True if the page lies within the size of the file.
    pub fn holds(&self, inode: u64, index: u64) -> bool {
        self.sizes.get(&inode).is_none_or(|&pages| index < pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_beyond_the_largest_size_is_refused() {
        let mut files = Files::default();
        files.limit(1, 8 * PAGE_SIZE);
        assert_eq!(files.punch_hole(1, 7, 8), Ok(()));
        assert_eq!(files.punch_hole(1, 7, 9), Err(Errno::EFBIG));
        assert_eq!(files.punch_hole(1, 0, 1 << 60), Err(Errno::EFBIG));
        let last = LARGEST / PAGE_SIZE;
        assert_eq!(files.punch_hole(2, 0, last), Ok(()));
        assert_eq!(files.punch_hole(2, last, last + 1), Err(Errno::EFBIG));
    }
}
