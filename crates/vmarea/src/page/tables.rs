//! One address space's page table, together with the machine that its entries belong to.
//!
//! A [`PageTable`] knows nothing of frames. What changes a range of entries has to count frames, swap
//! slots and pins as well, and so is done through this handle; a fault, which changes one entry, is in
//! `fault`. A holder of `mmap_lock` gets it from `page_tables()`.

use super::PageTable;
use crate::mm::{MmapReadGuard, MmapWriteGuard};
use crate::space::Space;
use crate::types::platform::{Environment, Standard};

/// Operations on ranges of one page table.
#[derive(Debug)]
pub struct PageTables<'a, E: Environment = Standard> {
    pub(super) space: &'a Space<E>,
    pub(super) table: &'a PageTable,
}

impl<E: Environment> Space<E> {
    /// Of a table of this machine.
    pub(crate) fn page_tables<'a>(&'a self, table: &'a PageTable) -> PageTables<'a, E> {
        PageTables { space: self, table }
    }
}

impl<'s, E: Environment> MmapWriteGuard<'s, E> {
    /// The page table, to look at ranges of it or change them.
    pub fn page_tables(&self) -> PageTables<'s, E> {
        self.space.page_tables(&self.mm.pages)
    }
}

impl<'s, E: Environment> MmapReadGuard<'s, E> {
    /// The page table, to look at ranges of it or change them.
    pub fn page_tables(&self) -> PageTables<'s, E> {
        self.space.page_tables(&self.mm.pages)
    }
}
