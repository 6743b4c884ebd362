//! The references that page-table entries hold: dropped when an entry goes, taken for a copy of it.

use super::entry::{Pte, Was};
use super::table::PageTable;
use crate::space::Space;
use crate::types::platform::Environment;

impl<E: Environment> Space<E> {
    /// Releases the references that `entry` holds; the entry is removed from `addr` of `table`.
    ///
    /// The caller holds the page-table lock.
    #[inline]
    pub(crate) fn entry_drop(&self, table: &PageTable, addr: u64, entry: Pte) {
        match entry {
            Pte::None | Pte::Zero | Pte::File { .. } | Pte::Guard => {}
            Pte::Anon { frame, .. } => self.frame_unmap(frame),
            Pte::Ksm { .. } | Pte::Swap { .. } | Pte::Migration { .. } => {
                self.entry_drop_rare(table, addr, entry);
            }
        }
    }

    #[cold]
    fn entry_drop_rare(&self, table: &PageTable, addr: u64, entry: Pte) {
        match entry {
            Pte::Swap { slot } => {
                self.swap.put(self, slot);
            }
            Pte::Ksm { frame }
            | Pte::Migration {
                frame,
                was: Was::Ksm,
            } => {
                self.ksm.remove(frame, table, addr);
                self.frame_unmap(frame);
            }
            other => {
                if let Some(frame) = other.frame() {
                    self.frame_unmap(frame);
                }
            }
        }
    }

    /// Takes the references that a copy of `entry` needs, which is installed at `addr` of `table`.
    ///
    /// The caller holds the page-table lock of the entry that is copied.
    #[inline]
    pub(super) fn entry_dup(&self, table: &PageTable, addr: u64, entry: Pte) {
        match entry {
            Pte::None | Pte::Zero | Pte::File { .. } | Pte::Guard => {}
            Pte::Anon { frame, .. } => self.frame(frame).map(),
            Pte::Ksm { .. } | Pte::Swap { .. } | Pte::Migration { .. } => {
                self.entry_dup_rare(table, addr, entry);
            }
        }
    }

    #[cold]
    fn entry_dup_rare(&self, table: &PageTable, addr: u64, entry: Pte) {
        if let Pte::Swap { slot } = entry {
            self.swap.dup(slot);
        }
        if let Pte::Ksm { frame }
        | Pte::Migration {
            frame,
            was: Was::Ksm,
        } = entry
        {
            self.ksm.add(frame, table, addr);
        }
        if let Some(frame) = entry.frame() {
            self.frame(frame).map();
        }
    }
}
