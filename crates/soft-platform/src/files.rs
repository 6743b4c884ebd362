//! Files of the software platform: pages by inode and index, filled with zeros until written.

use super::page::{Page, zeros};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;

/// The page cache of the software platform.
#[derive(Debug, Default)]
pub struct Files {
    pages: BTreeMap<(u64, u64), Box<Page>>,
    /// Size of each file in pages, by inode; a file without an entry has no end.
    sizes: BTreeMap<u64, u64>,
}

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

    /// Removes the pages `first..end`, so that they read as zeros.
    pub fn punch_hole(&mut self, inode: u64, first: u64, end: u64) {
        let hole = (inode, first)..(inode, end);
        self.pages.extract_if(hole, |_, _| true).for_each(drop);
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
