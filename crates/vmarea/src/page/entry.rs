//! `Pte`: what one page-table entry says, and what it holds on to.
//!
//! An entry that names a frame or a swap slot counts in it. Copying, dropping or moving an entry
//! therefore goes through here, so that each kind is dealt with in one place.
//!
//! # Linux
//! `include/linux/swapops.h`: swap and migration entries are non-present entries with a type. A KSM
//! page is there an ordinary entry with a mark on its page; here the entry says so.

use super::table::PageTable;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{FrameId, SwapId};

/// A page-table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pte {
    /// Nothing.
    #[default]
    None,
    /// The shared page of zeros, read-only.
    Zero,
    /// A page of the file behind the mapping.
    File {
        /// May be written without a fault.
        writable: bool,
    },
    /// An anonymous page.
    Anon {
        /// Where it is.
        frame: FrameId,
        /// May be written without a fault.
        writable: bool,
    },
    /// A guard: access is fatal (`MADV_GUARD_INSTALL`).
    Guard,
    /// A page that KSM shares among equals, read-only.
    Ksm {
        /// Where it is.
        frame: FrameId,
    },
    /// An anonymous page that is on the swap device.
    Swap {
        /// Where there.
        slot: SwapId,
    },
    /// A page on its way to another frame; who wants it waits.
    Migration {
        /// Where it was.
        frame: FrameId,
        /// The entry that it was before.
        was: Was,
    },
}

/// What an entry was before its page began to migrate.
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
    /// The frame that it counts in.
    pub fn frame(self) -> Option<FrameId> {
        match self {
            Pte::Anon { frame, .. } | Pte::Ksm { frame } | Pte::Migration { frame, .. } => {
                Some(frame)
            }
            Pte::None | Pte::Zero | Pte::File { .. } | Pte::Guard | Pte::Swap { .. } => None,
        }
    }

    /// Without the right to write.
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

    /// The frame of an anonymous page that has its place by an anon_vma, migrating or not.
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
    /// The entry at `addr` of `table` is overwritten: what it held is given back. Under its lock.
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

    /// A copy of `entry` appears at `addr` of `table`: it counts too. Under the lock of the entry that
    /// is copied.
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
