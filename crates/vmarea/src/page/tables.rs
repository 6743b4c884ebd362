//! Range operations on the page table of one address space.
//!
//! A [`PageTable`] has no access to frames. An operation on a range of entries also has to update
//! the counts of frames, swap slots and pins. Such an operation therefore uses the handle in this
//! module, which combines a page table with the machine to which the table belongs. Faults, which
//! change a single entry, are handled in `fault`. A guard of `mmap_lock` provides the handle
//! through `page_tables()`.

use super::PageTable;
use crate::Space;
use crate::types::platform::{Environment, Standard};

/// A handle for operations on ranges of one page table.
///
/// [`shared_pages`](Self::shared_pages) has an example.
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
