//! `Pte`: a page-table entry.
//!
//! An entry that refers to a frame or a swap slot holds one reference to that frame or slot.
//! Entries are therefore copied and dropped through the functions in `references`, which handle
//! every kind.
//!
//! # Linux
//! `include/linux/swapops.h`: swap and migration entries are non-present entries with a type. In
//! Linux, a KSM page has an ordinary entry and a flag on the page; here the entry has its own kind.

use crate::types::{Errno, FrameId, PAGE_SIZE, PMD_SIZE, SwapId};
use alloc::vec::Vec;

/// Number of entries in a page table, which is also the number of small pages in a huge page.
pub(crate) const ENTRIES: usize = (PMD_SIZE / PAGE_SIZE) as usize;

/// Allocates `len` equal entries.
pub(super) fn new_entries(entry: Pte, len: usize) -> Result<Vec<Pte>, Errno> {
    let mut entries = Vec::new();
    let room = entries.try_reserve_exact(len);
    room.map_err(|_| Errno::ENOMEM)?;
    entries.resize(len, entry);
    Ok(entries)
}

/// A page-table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pte {
    /// Nothing is mapped.
    #[default]
    None,
    /// The shared zero page, read-only.
    Zero,
    /// A page of the file that the VMA maps, at the offset given by the entry's address.
    File {
        /// True if the program can write to the page without a fault.
        writable: bool,
    },
    /// An anonymous page.
    Anon {
        /// The frame that contains the page.
        frame: FrameId,
        /// True if the program can write to the page without a fault.
        writable: bool,
    },
    /// A guard page: any access raises SIGSEGV (`MADV_GUARD_INSTALL`).
    Guard,
    /// A KSM page, which replaces identical pages and is read-only.
    Ksm {
        /// The frame that contains the page.
        frame: FrameId,
    },
    /// An anonymous page that has been swapped out.
    Swap {
        /// The swap slot that contains the page.
        slot: SwapId,
    },
    /// A page that is being migrated to another frame; accesses have to wait.
    Migration {
        /// The frame from which the page is being migrated.
        frame: FrameId,
        /// The kind of entry that the migration entry replaced.
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
    /// Returns the frame on which the entry holds a map count.
    pub fn frame(self) -> Option<FrameId> {
        match self {
            Pte::Anon { frame, .. } | Pte::Ksm { frame } | Pte::Migration { frame, .. } => {
                Some(frame)
            }
            Pte::None | Pte::Zero | Pte::File { .. } | Pte::Guard | Pte::Swap { .. } => None,
        }
    }

    /// True if the hardware may hold a translation for the entry.
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

    /// Returns the frame of an anon_vma's page, even if the page is being migrated.
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
