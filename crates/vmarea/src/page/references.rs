//! Releases the references of removed page-table entries, and takes references for copies.

use super::entry::{Pte, Was};
use super::table::PageTable;
use crate::Space;
use crate::types::platform::Environment;
use crate::types::{Errno, FrameId, VmRange};

impl<E: Environment> Space<E> {
    /// Releases the references that `entry` holds; the entry is being removed at `addr` in `table`.
    ///
    /// The caller must hold the page-table lock.
    #[inline]
    pub(super) fn entry_drop(&self, table: &PageTable, addr: u64, entry: Pte) {
        if let Some(frame) = self.entry_detach(table, addr, entry) {
            self.frame_unmap(frame);
        }
    }

    /// Releases the references that `entry` holds, except its map count on a frame.
    ///
    /// Returns the frame, if any; the caller must decrement the frame's map count.
    #[inline]
    pub(super) fn entry_detach(&self, table: &PageTable, addr: u64, entry: Pte) -> Option<FrameId> {
        match entry {
            Pte::None | Pte::Zero | Pte::File { .. } | Pte::Guard => None,
            Pte::Anon { frame, .. } => Some(frame),
            Pte::Ksm { .. } | Pte::Swap { .. } | Pte::Migration { .. } => {
                self.entry_detach_rare(table, addr, entry)
            }
        }
    }

    #[cold]
    fn entry_detach_rare(&self, table: &PageTable, addr: u64, entry: Pte) -> Option<FrameId> {
        if let Pte::Swap { slot } = entry {
            self.swap.put(self, slot);
        }
        if let Pte::Ksm { frame }
        | Pte::Migration {
            frame,
            was: Was::Ksm,
        } = entry
        {
            self.ksm.remove(frame, table, addr);
        }
        entry.frame()
    }

    /// Removes an entry from the hardware and releases the references that the entry holds.
    ///
    /// The caller must hold the page-table lock and overwrite the entry.
    #[inline]
    #[doc(alias = "ptep_clear_flush")]
    pub(crate) fn entry_clear(&self, table: &PageTable, addr: u64, entry: Pte) {
        if entry.is_present() {
            self.clear_flush(table, VmRange::page(addr));
        }
        self.entry_drop(table, addr, entry);
    }

    /// Takes the references for a copy of `entry`, which will be installed at `addr` in `table`.
    ///
    /// The caller must hold the page-table lock for the original entry.
    #[inline]
    pub(super) fn entry_dup(&self, table: &PageTable, addr: u64, entry: Pte) -> Result<(), Errno> {
        match entry {
            Pte::None | Pte::Zero | Pte::File { .. } | Pte::Guard => {}
            Pte::Anon { frame, .. } => self.frame(frame).map(),
            Pte::Ksm { .. } | Pte::Swap { .. } | Pte::Migration { .. } => {
                return self.entry_dup_rare(table, addr, entry);
            }
        }
        Ok(())
    }

    #[cold]
    fn entry_dup_rare(&self, table: &PageTable, addr: u64, entry: Pte) -> Result<(), Errno> {
        if let Pte::Swap { slot } = entry {
            self.swap.dup(slot);
        }
        if let Pte::Ksm { frame }
        | Pte::Migration {
            frame,
            was: Was::Ksm,
        } = entry
        {
            self.ksm.add(frame, table, addr)?;
        }
        if let Some(frame) = entry.frame() {
            self.frame(frame).map();
        }
        Ok(())
    }
}
