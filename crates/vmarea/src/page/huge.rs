//! `Huge`: the mapping of a huge page, 512 pages that one slot maps as a whole.
//!
//! A huge page is a [`Compound`] of 512 ordinary frames. While slots map the compound as a whole,
//! all these mappings together contribute one to the map count of each frame, and the compound
//! counts the slots. Splitting one such mapping into small entries therefore allocates no frames,
//! copies nothing and leaves the other mappings intact. After the last whole mapping is gone, the
//! frames are ordinary frames. The huge zero page has no frames.
//!
//! # Picture
//! ```text
//! slot (mm 1) ─┐                        ┌ frame 0    mapcount 1: from the compound
//! slot (mm 2) ─┴─▶ Compound, whole = 2 ─┤ …
//!                                       └ frame 511  mapcount 2: also a small entry in mm 3
//! ```
//!
//! # Invariants
//! H2  `whole` is the number of slots that map the compound; its frames exist while it is nonzero

use super::entry::Pte;
use crate::types::FrameId;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

/// Number of pages in a huge page, and of entries in a table.
pub(crate) const ENTRIES: usize = 512;

/// 512 frames that are mapped together.
#[derive(Debug)]
pub(super) struct Compound {
    pub(super) frames: [FrameId; ENTRIES],
    pub(super) whole: AtomicU32,
}

/// The mapping of a huge page by one slot.
#[derive(Debug)]
pub(crate) struct Huge {
    /// The frames, or `None` for the huge zero page.
    pub(super) pages: Option<Arc<Compound>>,
    pub(super) writable: bool,
}

impl Huge {
    /// A mapping of the huge zero page.
    pub(crate) const ZERO: Huge = Huge {
        pages: None,
        writable: false,
    };

    /// Returns the equivalent small entry for page number `at` of the huge page.
    #[inline]
    pub(super) fn entry(&self, at: usize) -> Pte {
        match &self.pages {
            Some(compound) => Pte::Anon {
                frame: compound.frames[at],
                writable: self.writable,
            },
            None => Pte::Zero,
        }
    }

    pub(crate) fn write_protect(&mut self) {
        self.writable = false;
    }

    /// Returns the frames in order; the slice is empty for the huge zero page.
    pub(super) fn frames(&self) -> &[FrameId] {
        self.pages.as_ref().map_or(&[], |c| &c.frames)
    }

    /// Returns the number of slots that map the huge page as a whole; 0 for the huge zero page.
    pub(super) fn whole(&self) -> u32 {
        // ORDERING: Relaxed; a count, read under a page-table lock.
        self.pages
            .as_ref()
            .map_or(0, |c| c.whole.load(Ordering::Relaxed))
    }
}

/// Returns the identity, the number of whole mappings and the frames of a compound, for validation.
pub(crate) fn compound_key(huge: &Huge) -> Option<(usize, u32, &[FrameId])> {
    let compound = huge.pages.as_ref()?;
    Some((
        Arc::as_ptr(compound) as usize,
        huge.whole(),
        &compound.frames,
    ))
}
