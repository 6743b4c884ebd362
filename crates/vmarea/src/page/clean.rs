//! Write-protects the file pages in a range before they are written back.
//!
//! # Linux
//! `mm/rmap.c` `page_vma_mkclean_one`, 6.18.

use super::entry::Pte;
use super::gather::READ_ONLY;
use super::huge::Huge;
use super::slot::{Cover, HugeFate, Visitor};
use super::tables::PageTables;
use crate::types::VmRange;
use crate::types::platform::Environment;

struct Cleaner<'a, E: Environment>(PageTables<'a, E>);

impl<E: Environment> Visitor for Cleaner<'_, E> {
    /// Faults run concurrently, so the hardware is updated under the entry's lock.
    fn page(&mut self, addr: u64, entry: &mut Pte) {
        if *entry == (Pte::File { writable: true }) {
            *entry = entry.write_protected();
            let PageTables { space, table } = self.0;
            space.restrict_flush(table, VmRange::page(addr), READ_ONLY);
        }
    }

    fn huge(&mut self, _: u64, _: &mut Huge, _: Cover) -> HugeFate {
        HugeFate::Keep
    }
}

impl<E: Environment> PageTables<'_, E> {
    /// Write-protects the file pages in `range`, while concurrent faults may map more of them.
    pub(crate) fn clean(self, range: VmRange) {
        self.table.visit(range, &mut Cleaner(self));
    }
}
