//! `Pte`: a page-table entry and the references that it holds.
//!
//! An entry that names a frame or a swap slot holds one count on that frame or slot. Entries are
//! therefore copied, dropped and moved through the functions in this module, which handle every
//! kind.
//!
//! # Linux
//! `include/linux/swapops.h`: swap and migration entries are non-present entries with a type. In
//! Linux, a KSM page has an ordinary entry and a flag on the page; here the entry has its own kind.

use super::table::PageTable;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{FrameId, PAGE_SIZE, SwapId, VmRange};

/// A page-table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pte {
    /// Nothing is mapped.
    #[default]
    None,
    /// The shared zero page, read-only.
    Zero,
    /// A page of the file that the VMA maps.
    File {
        /// True if the page may be written without a fault.
        writable: bool,
    },
    /// An anonymous page.
    Anon {
        /// The frame that contains the page.
        frame: FrameId,
        /// True if the page may be written without a fault.
        writable: bool,
    },
    /// A guard page: any access is fatal (`MADV_GUARD_INSTALL`).
    Guard,
    /// A page that KSM shares among identical pages, read-only.
    Ksm {
        /// The frame that contains the page.
        frame: FrameId,
    },
    /// An anonymous page that is swapped out.
    Swap {
        /// The swap slot that contains the page.
        slot: SwapId,
    },
    /// A page that is being migrated to another frame; an access has to wait.
    Migration {
        /// The frame that the page migrates from.
        frame: FrameId,
        /// The kind of entry that the migration replaced.
        was: Was,
    },
}

/// The kind of entry that a migration entry replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Was {
    /// An anonymous page, read-only.
    ReadOnly,
    /// An anonymous page, writable.
    Writable,
    /// A KSM page.
    Ksm,
}

const _: () = assert!(size_of::<Pte>() <= 12);

impl Pte {
    /// Returns the frame that the entry holds a map count on.
    pub fn frame(self) -> Option<FrameId> {
        match self {
            Pte::Anon { frame, .. } | Pte::Ksm { frame } | Pte::Migration { frame, .. } => {
                Some(frame)
            }
            Pte::None | Pte::Zero | Pte::File { .. } | Pte::Guard | Pte::Swap { .. } => None,
        }
    }

    /// True if the hardware may have a translation for the entry.
    #[doc(alias = "pte_present")]
    pub(crate) fn is_present(self) -> bool {
        match self {
            Pte::Zero | Pte::File { .. } | Pte::Anon { .. } | Pte::Ksm { .. } => true,
            Pte::None | Pte::Guard | Pte::Swap { .. } | Pte::Migration { .. } => false,
        }
    }

    /// Returns the entry without write permission.
    #[doc(alias = "pte_wrprotect")]
    pub(crate) fn write_protected(self) -> Pte {
        match self {
            Pte::Anon { frame, .. } => Pte::Anon {
                frame,
                writable: false,
            },
            Pte::File { .. } => Pte::File { writable: false },
            Pte::Migration {
                frame,
                was: Was::Writable,
            } => Pte::Migration {
                frame,
                was: Was::ReadOnly,
            },
            other => other,
        }
    }

    /// Returns the frame of an anonymous page that an anon_vma owns, including a migrating page.
    pub(super) fn anon_frame(self) -> Option<FrameId> {
        match self {
            Pte::Anon { frame, .. }
            | Pte::Migration {
                frame,
                was: Was::ReadOnly | Was::Writable,
            } => Some(frame),
            _ => None,
        }
    }
}

impl<E: Environment> Space<E> {
    /// Releases the references that `entry` holds; the entry is removed from `addr` of `table`.
    ///
    /// The caller holds the page-table lock.
    #[inline]
    pub(super) fn entry_drop(&self, table: &PageTable, addr: u64, entry: Pte) {
        if let Some(frame) = self.entry_detach(table, addr, entry) {
            self.frame_unmap(frame);
        }
    }

    /// Releases the references that `entry` holds, except for the map count of a frame.
    ///
    /// Returns that frame; the caller must decrement its map count.
    #[inline]
    pub(super) fn entry_detach(
        &self,
        table: &PageTable,
        addr: u64,
        entry: Pte,
    ) -> Option<FrameId> {
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

    /// Removes an entry from the hardware, and releases the references that it holds.
    ///
    /// The caller holds the page-table lock and overwrites the entry.
    #[inline]
    #[doc(alias = "ptep_clear_flush")]
    pub(crate) fn entry_clear(&self, table: &PageTable, addr: u64, entry: Pte) {
        if entry.is_present() {
            self.clear_flush(table, VmRange::new(addr, addr + PAGE_SIZE));
        }
        self.entry_drop(table, addr, entry);
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
