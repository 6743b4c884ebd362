//! `Huge`: one slot's mapping of a huge page, which consists of 512 small pages.
//!
//! A huge page is a [`Compound`] of 512 ordinary frames. The slots that map the whole compound
//! contribute 1 in total, not 1 each, to the map count of each frame; the compound counts the
//! slots. Splitting one whole mapping into small entries therefore allocates no frames, copies
//! nothing and leaves the other whole mappings intact. Each mapping stores the equivalent small
//! entries, which become the table when the mapping is split, so splitting cannot fail. Once no
//! whole mapping remains, the frames are ordinary frames again. The huge zero page has no frames.
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
//!
//! # Linux
//! `pgtable_trans_huge_deposit`, 6.18: Linux also allocates the table when it maps the huge page.

use super::entry::{ENTRIES, Pte, new_entries};
use crate::types::{Errno, FrameId};
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use vmarea_sync::Key;

/// A set of 512 frames, with the number of slots that map it as a whole.
#[derive(Debug, Default)]
pub(super) struct Compound {
    pub(super) whole: AtomicU32,
}

/// One slot's mapping of a huge page.
#[derive(Debug)]
pub(crate) struct Huge {
    /// The small entries that are equivalent to the mapping, without write permission.
    entries: Vec<Pte>,
    /// The compound that the slot maps, or `None` for the huge zero page.
    pub(super) compound: Option<Key>,
    pub(super) writable: bool,
}

impl Huge {
    /// Creates a mapping of the huge zero page.
    pub(crate) fn zero() -> Result<Huge, Errno> {
        Ok(Huge {
            entries: new_entries(Pte::Zero, ENTRIES)?,
            compound: None,
            writable: false,
        })
    }

    /// Creates a writable mapping of the frames to which `entries` refer.
    pub(super) fn of(entries: Vec<Pte>, compound: Key) -> Huge {
        Huge {
            entries,
            compound: Some(compound),
            writable: true,
        }
    }

    /// Returns another mapping of the same frames, which is read-only.
    pub(super) fn try_clone(&self) -> Result<Huge, Errno> {
        let mut entries = new_entries(Pte::None, ENTRIES)?;
        entries.copy_from_slice(&self.entries);
        Ok(Huge {
            entries,
            compound: self.compound,
            writable: false,
        })
    }

    /// Returns the equivalent small entry for the page at position `at` in the huge page.
    #[inline]
    pub(super) fn entry(&self, at: usize) -> Pte {
        match self.entries[at] {
            Pte::Anon { frame, .. } => Pte::Anon {
                frame,
                writable: self.writable,
            },
            other => other,
        }
    }

    /// Takes the equivalent small entries out of the mapping and leaves it without entries.
    pub(super) fn take_entries(&mut self) -> Vec<Pte> {
        let mut entries = core::mem::take(&mut self.entries);
        if self.writable {
            for entry in &mut entries {
                if let Pte::Anon { writable, .. } = entry {
                    *writable = true;
                }
            }
        }
        entries
    }

    pub(crate) fn write_protect(&mut self) {
        self.writable = false;
    }

    /// Returns the frames in order; the huge zero page has none.
    pub(super) fn frames(&self) -> impl Iterator<Item = FrameId> {
        self.entries.iter().filter_map(|entry| entry.anon_frame())
    }
}
