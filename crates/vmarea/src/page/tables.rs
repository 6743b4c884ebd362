//! Range operations on the page table of one address space.
//!
//! A [`PageTable`] has no access to frames. An operation on a range of entries also has to update
//! the counts of frames, swap slots and pins, and therefore uses the handle in this module, which
//! combines a page table with its machine. Faults, which change one entry, are handled in `fault`.
//! A holder of `mmap_lock` gets the handle from `page_tables()`.

use super::PageTable;
use crate::Space;
use crate::types::platform::{Environment, Standard};

/// Operations on ranges of one page table.
#[derive(Debug)]
pub struct PageTables<'a, E: Environment = Standard> {
    pub(super) space: &'a Space<E>,
    pub(super) table: &'a PageTable,
}

impl<E: Environment> Space<E> {
    /// Returns a handle for a page table of this machine.
    pub(crate) fn page_tables<'a>(&'a self, table: &'a PageTable) -> PageTables<'a, E> {
        PageTables { space: self, table }
    }
}
