//! Pinned pages, whose frames a device or another kernel accesses for an unlimited time.
//!
//! The user of a pinned page is not notified if the page gets another frame, anon_vma or index. A
//! pinned page therefore keeps its frame: it is not swapped out, migrated or merged by KSM, and a
//! fork copies it immediately. A pinned page also keeps its anon_vma and index: a VMA merge or page
//! offset update that would change them is refused. `mremap` leaves the frame, anon_vma and index
//! of a pinned page unchanged. Before a page is pinned, `fault/pin.rs` makes it exclusive to the
//! process.
//!
//! # Locking
//! A page is pinned under the page-table lock of the entry that maps it. The pin count and the
//! flags of a frame share one word, so that a frame cannot be both pinned and locked for a change.
//!
//! # Linux
//! `mm/gup.c`: `pin_user_pages` with `FOLL_WRITE | FOLL_LONGTERM`, 6.18. Linux's `mremap` changes
//! the page offset only for unfaulted memory, so it does not need to check for pins.

use super::entry::Pte;
use super::table::PageTable;
use super::tables::PageTables;
use crate::Space;
use crate::types::platform::Environment;
use crate::types::{Errno, FrameId, VmRange};
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;

/// A pinned page, to be passed to [`Space::unpin_page`]; if dropped, it stays pinned forever.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "the page stays pinned until this is given back"]
pub struct PagePin(FrameId);

impl PagePin {
    /// Returns the pinned frame, which remains allocated even after the page is unmapped.
    pub fn frame(&self) -> FrameId {
        self.0
    }
}

impl<E: Environment> Space<E> {
    /// Pins the page at `addr`; returns `None` if the page is locked, read-only or not anonymous.
    ///
    /// # Errors
    /// EFAULT if a page of a file is mapped at `addr`.
    pub(crate) fn pin_present(
        &self,
        table: &PageTable,
        addr: u64,
    ) -> Result<Option<PagePin>, Errno> {
        let pinned = table.peek(addr, |entry| match entry {
            Pte::Anon {
                frame,
                writable: true,
            } => Ok(self.frame(frame).pin().then_some(PagePin(frame))),
            Pte::File { .. } => Err(Errno::EFAULT),
            _ => Ok(None),
        })?;
        // ORDERING: Relaxed; a thread that needs the count takes the mm's lock for writing later.
        self.pins
            .fetch_add(u64::from(pinned.is_some()), Ordering::Relaxed);
        Ok(pinned)
    }

    /// Removes a pin. Removing the last pin frees the frame if it is no longer mapped.
    ///
    /// [`pin_page`](Self::pin_page) has an example.
    pub fn unpin_page(&self, pin: PagePin) {
        let PagePin(frame) = pin;
        // ORDERING: Relaxed; a count that is briefly too high is harmless.
        if self.frame(frame).unpin() {
            self.frame_free_unmapped(frame);
        }
        self.pins.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<E: Environment> PageTables<'_, E> {
    /// Returns the number of pinned pages in a range.
    ///
    /// The number cannot change while the caller holds `mmap_lock` for writing.
    pub(crate) fn pinned_pages(&self, range: VmRange) -> u64 {
        let space = self.space;
        // ORDERING: Relaxed; see `pin_present`.
        if space.pins.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut count = 0;
        self.table.for_each(range, |_, entry| {
            let pinned = entry.anon_frame().map(|f| space.frame(f).is_pinned());
            count += u64::from(pinned == Some(true));
            ControlFlow::Continue(())
        });
        count
    }
}
