//! Files of the software platform: pages by inode and index, zeros where nothing was written.

use super::memory::{Page, zeros};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;

/// The page cache.
#[derive(Debug, Default)]
pub struct Files {
    pages: BTreeMap<(u64, u64), Box<Page>>,
    /// Size in pages by inode; a file that is not here has no end.
    sizes: BTreeMap<u64, u64>,
}

impl Files {
    /// A page of a file, which is made where it was not there.
    pub fn page(&mut self, inode: u64, index: u64) -> &mut Page {
        self.pages.entry((inode, index)).or_insert_with(zeros)
    }

    /// Sets the size of a file in pages; what lay beyond is gone.
    pub fn resize(&mut self, inode: u64, pages: u64) {
        self.sizes.insert(inode, pages);
        let beyond = (inode, pages)..(inode + 1, 0);
        self.pages.extract_if(beyond, |_, _| true).for_each(drop);
    }

    /// Pages become zeros.
    pub fn punch_hole(&mut self, inode: u64, first: u64, end: u64) {
        let hole = (inode, first)..(inode, end);
        self.pages.extract_if(hole, |_, _| true).for_each(drop);
    }

    /// True where the page was ever used.
    pub fn is_cached(&self, inode: u64, index: u64) -> bool {
        self.pages.contains_key(&(inode, index))
    }

    /// True where the file has such a page.
    pub fn holds(&self, inode: u64, index: u64) -> bool {
        self.sizes.get(&inode).is_none_or(|&pages| index < pages)
    }
}
