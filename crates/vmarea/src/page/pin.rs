//! Pinned pages: those that a device or another kernel reads and writes by their frames, for as long as it
//! likes.
//!
//! Whoever pins a page is not told when it takes another frame, owner or index. So a pinned page keeps its
//! frame: it is not swapped out, migrated or merged by KSM, and a fork copies it at once. And it keeps its
//! owner and index: a merge or a page-offset update that would have to change them is refused. It does
//! move with `mremap`, as it is. Making a page the process's own first is `fault/pin.rs`.
//!
//! # Locking
//! A page is pinned under the page-table lock of the entry that maps it. Pins are counted beside the marks
//! of a frame in one word, so that a frame is pinned or locked for a change, and never both.
//!
//! # Linux
//! `mm/gup.c`: `pin_user_pages` with `FOLL_WRITE | FOLL_LONGTERM`, 6.18. There `mremap` changes the page
//! offset of unfaulted memory alone, so that nobody needs to ask.

use super::entry::Pte;
use super::table::PageTable;
use super::tables::PageTables;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{Errno, FrameId, VmRange};
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;

/// A pinned page. To be given back by [`Space::unpin_page`]; one that is dropped stays pinned for ever.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "the page stays pinned until this is given back"]
pub struct PagePin(FrameId);

impl PagePin {
    /// The frame that stays where it is, also after the page was unmapped.
    pub fn frame(&self) -> FrameId {
        self.0
    }
}

impl<E: Environment> Space<E> {
    /// Pins the page that lies at `addr`, where it is the process's own; EFAULT where it is a file's.
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
        // ORDERING: Relaxed; whoever must see it holds the mm's lock for writing, after us.
        self.pins
            .fetch_add(u64::from(pinned.is_some()), Ordering::Relaxed);
        Ok(pinned)
    }

    /// Lets go of a page. The last to do so gives back a frame that nothing maps any more.
    pub fn unpin_page(&self, pin: PagePin) {
        let PagePin(frame) = pin;
        // ORDERING: Relaxed; too high for a moment is harmless.
        if self.frame(frame).unpin() {
            self.frame_free_unmapped(frame);
        }
        self.pins.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<E: Environment> PageTables<'_, E> {
    /// Pinned pages of a range. The mm's lock, held for writing, keeps it true.
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
