//! `Gather`: holds the map counts of removed entries until no TLB can contain the entries.
//!
//! A frame whose map count drops to 1 may be written to in place by the process that still maps it;
//! a frame whose map count drops to 0 is freed. Both the write and the freeing must wait until no
//! CPU can access the frame through a stale TLB entry. Therefore a gather holds the map counts of
//! the entries that a range operation removes, and decrements them together after a single flush.
//! Without an MMU, a gather decrements each map count immediately.
//!
//! # Locking
//! Entries are added under their page-table lock. The flush of a full batch happens under that
//! lock as well; the last flush happens without it, when the gather is dropped.
//!
//! # Linux
//! `mm/mmu_gather.c`. As in Linux, if no memory is left for a batch, each page is flushed at once.

use super::entry::Pte;
use super::huge::Huge;
use super::table::PageTable;
use crate::Space;
use crate::types::mmu::Mmu;
use crate::types::platform::Environment;
use crate::types::{FrameId, PMD_SIZE, VmFlags, VmRange};
use alloc::vec::Vec;

/// The permissions that remain after write protection.
pub(super) const READ_ONLY: VmFlags = VmFlags::READ.union(VmFlags::EXEC);

/// Maximum number of frames in a batch.
const BATCH: usize = 512;

/// The removed entries of one page table. Dropping the gather flushes and releases them.
pub(super) struct Gather<'a, E: Environment> {
    pub(super) space: &'a Space<E>,
    table: &'a PageTable,
    /// Frames whose map counts have yet to be decremented.
    frames: Vec<FrameId>,
    /// The smallest range that contains all addresses cleared since the last flush.
    cleared: Option<VmRange>,
}

impl<'a, E: Environment> Gather<'a, E> {
    pub(super) fn new(space: &'a Space<E>, table: &'a PageTable) -> Self {
        Gather {
            space,
            table,
            frames: Vec::new(),
            cleared: None,
        }
    }

    /// Takes over the references of `entry`, which is being removed at `addr`.
    #[inline]
    pub(super) fn entry(&mut self, addr: u64, entry: Pte) {
        if E::Mmu::PRESENT {
            self.keep(addr, entry);
        } else {
            self.space.entry_drop(self.table, addr, entry);
        }
    }

    fn keep(&mut self, addr: u64, entry: Pte) {
        if entry.is_present() {
            self.clear(VmRange::page(addr));
        }
        let Some(frame) = self.space.entry_detach(self.table, addr, entry) else {
            return;
        };
        let full = self.frames.len() == BATCH;
        if full || self.frames.try_reserve(1).is_err() {
            self.flush();
        }
        match self.frames.len() < self.frames.capacity() {
            true => self.frames.push(frame),
            false => self.space.frame_unmap(frame),
        }
    }

    /// Releases the huge page that is being removed at `addr`.
    pub(super) fn huge(&mut self, addr: u64, huge: &mut Huge) {
        if E::Mmu::PRESENT {
            self.clear(VmRange::new(addr, addr + PMD_SIZE));
            self.flush();
        }
        self.space.huge_drop(huge);
    }

    fn clear(&mut self, range: VmRange) {
        let Some(mm) = self.table.owner() else { return };
        self.space.mmu.clear(mm, range);
        self.cleared = Some(match self.cleared {
            Some(old) => VmRange::new(old.start.min(range.start), old.end.max(range.end)),
            None => range,
        });
    }

    fn flush(&mut self) {
        if let (Some(mm), Some(range)) = (self.table.owner(), self.cleared.take()) {
            self.space.mmu.flush(mm, range);
        }
        for frame in self.frames.drain(..) {
            self.space.frame_unmap(frame);
        }
    }
}

impl<E: Environment> Drop for Gather<'_, E> {
    #[inline]
    fn drop(&mut self) {
        if E::Mmu::PRESENT {
            self.flush();
        }
    }
}

impl<E: Environment> Space<E> {
    /// Removes the translations in `range` from the hardware, including from all TLBs.
    ///
    /// The caller must hold the page-table lock or prevent faults in `range`.
    #[inline]
    pub(crate) fn clear_flush(&self, table: &PageTable, range: VmRange) {
        if E::Mmu::PRESENT
            && let Some(mm) = table.owner()
        {
            self.mmu.clear(mm, range);
            self.mmu.flush(mm, range);
        }
    }

    /// Restricts the hardware's entries in `range` to the permissions in `allowed`. TLBs may contain
    /// more until the caller calls [`flush`](Self::flush).
    #[inline]
    pub(super) fn restrict(&self, table: &PageTable, range: VmRange, allowed: VmFlags) {
        if E::Mmu::PRESENT
            && let Some(mm) = table.owner()
        {
            self.mmu.restrict(mm, range, allowed);
        }
    }

    /// Removes the translations in `range` that have changed from all TLBs.
    #[inline]
    pub(super) fn flush(&self, table: &PageTable, range: VmRange) {
        if E::Mmu::PRESENT
            && !range.is_empty()
            && let Some(mm) = table.owner()
        {
            self.mmu.flush(mm, range);
        }
    }

    /// Restricts the hardware's translations in `range`, including those in TLBs, to the
    /// permissions in `allowed`. The locking rules are those of [`clear_flush`](Self::clear_flush).
    #[inline]
    pub(super) fn restrict_flush(&self, table: &PageTable, range: VmRange, allowed: VmFlags) {
        if E::Mmu::PRESENT
            && let Some(mm) = table.owner()
        {
            self.mmu.restrict(mm, range, allowed);
            self.mmu.flush(mm, range);
        }
    }
}
