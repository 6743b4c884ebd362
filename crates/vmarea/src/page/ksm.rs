//! KSM: merges identical pages, even from different address spaces, into one frame.
//!
//! A merged page has no anon_vma or index. Its frame's reverse map is a list of the entries that
//! map the frame; each change to an entry also updates the list, under the entry's page-table lock.
//! Therefore the list needs no special handling if a VMA is merged, split, forked or given another
//! anon_vma. In Linux, each reverse-map item records an anon_vma and an address, from which the
//! mappings have to be searched for. A write copies the page, and the copy is an ordinary page of
//! its VMA. Not implemented: the daemon that searches for identical pages, and merging with the
//! zero page (`use_zero_pages`).
//!
//! # Invariants
//! K1  the items of a frame are exactly the entries, migrating ones included, that map it for KSM
//!
//! # Locking
//! The lock of the items nests inside a page-table lock.
//!
//! # Linux
//! `mm/ksm.c` `try_to_merge_two_pages`, `replace_page`, `rmap_walk_ksm`, 6.18.

use super::entry::Pte;
use super::frame::{LockedFrame, Mark};
use super::gather::READ_ONLY;
use super::sorted_map::SortedMap;
use super::table::PageTable;
use crate::Space;
use crate::types::platform::{Environment, Platform};
use crate::types::{Errno, FrameId, MmId, VmRange};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use vmarea_sync::SpinLock;

/// One mapping of a KSM page: the address space and the address.
type Item = (MmId, u64);

/// The reverse map of KSM pages.
#[derive(Debug, Default)]
pub(crate) struct Ksm {
    items: SpinLock<SortedMap<FrameId, SortedMap<Item, ()>>>,
    /// Number of entries that map KSM pages; if it is 0, searches for KSM pages can be skipped.
    entries: AtomicUsize,
}

impl Ksm {
    /// Returns the memory for entries of KSM pages that are gone to the allocator.
    pub(crate) fn shrink(&mut self) {
        self.items.lock().shrink();
    }

    /// Records that the entry at `addr` maps the frame.
    pub(super) fn add(&self, frame: FrameId, table: &PageTable, addr: u64) -> Result<(), Errno> {
        let Some(mm) = table.owner() else {
            return Ok(());
        };
        let mut items = self.items.lock();
        if items.get(frame).is_none() {
            items.insert(frame, SortedMap::default())?;
        }
        let Some(of_frame) = items.get_mut(frame) else {
            return Ok(());
        };
        let added = of_frame.insert((mm, addr), ());
        if of_frame.len() == 0 {
            items.remove(frame);
        }
        // ORDERING: Relaxed; exact for a holder of the mm's lock for writing.
        self.entries
            .fetch_add(usize::from(added?), Ordering::Relaxed);
        Ok(())
    }

    /// Records that the entry at `addr` no longer maps the frame.
    pub(super) fn remove(&self, frame: FrameId, table: &PageTable, addr: u64) {
        let Some(mm) = table.owner() else { return };
        let mut items = self.items.lock();
        let Some(of_frame) = items.get_mut(frame) else {
            return;
        };
        if of_frame.remove((mm, addr)).is_some() {
            // ORDERING: Relaxed; as in `add`.
            self.entries.fetch_sub(1, Ordering::Relaxed);
        }
        if of_frame.len() == 0 {
            items.remove(frame);
        }
    }

    /// Records that the frame's entry at `from` has moved to `to`, without allocating memory.
    pub(super) fn moved(&self, frame: FrameId, table: &PageTable, (from, to): (u64, u64)) {
        let Some(mm) = table.owner() else { return };
        if let Some(of_frame) = self.items.lock().get_mut(frame) {
            of_frame.rename((mm, from), (mm, to));
        }
    }

    /// Reserves space in the item list of `to` for all items of `from`, before a migration.
    ///
    /// The caller must free unused space with [`give_up`](Self::give_up).
    pub(super) fn reserve_all(&self, from: FrameId, to: FrameId) -> Result<(), Errno> {
        let mut items = self.items.lock();
        let count = items.get(from).map_or(0, SortedMap::len);
        let mut room = SortedMap::default();
        room.reserve(count)?;
        items.insert(to, room).map(drop)
    }

    /// Frees the space reserved for a frame's items if no entry maps the frame.
    pub(super) fn give_up(&self, frame: FrameId) {
        let mut items = self.items.lock();
        if items.get(frame).is_some_and(|of_frame| of_frame.len() == 0) {
            items.remove(frame);
        }
    }

    /// Returns the frame's item that follows `after`, or the first item if `after` is `None`.
    pub(super) fn next_item(&self, frame: FrameId, after: Option<Item>) -> Option<Item> {
        self.items.lock().get(frame)?.next_key(after)
    }

    /// Returns the entries that map the frame, for validation.
    pub(super) fn items(&self, frame: FrameId) -> Vec<Item> {
        let items = self.items.lock();
        items
            .get(frame)
            .map_or_else(Vec::new, |of_frame| of_frame.keys().collect())
    }

    /// True if no KSM page is mapped anywhere.
    pub(crate) fn is_empty(&self) -> bool {
        // ORDERING: Relaxed; see `add`.
        self.entries.load(Ordering::Relaxed) == 0
    }

    /// Returns all frames that have items, for validation.
    pub(super) fn frames(&self) -> Vec<FrameId> {
        self.items.lock().keys().collect()
    }
}

/// An anonymous page that KSM may merge; its frame is locked.
struct Candidate<'a> {
    table: &'a PageTable,
    addr: u64,
    locked: LockedFrame,
}

impl<E: Environment> Space<E> {
    /// Merges two identical pages, each given by its page table and address; returns their common
    /// frame.
    ///
    /// # Errors
    /// As [`ksm_merge`](Self::ksm_merge), except for its checks of the mappings.
    pub(crate) fn ksm_merge_pages(
        &self,
        one: (&PageTable, u64),
        two: (&PageTable, u64),
    ) -> Result<FrameId, Errno> {
        let first = self.ksm_candidate(one)?;
        let second = match self.ksm_candidate(two) {
            Ok(second) => second,
            Err(error) => {
                let (table, addr) = two;
                let same = table.get(addr).frame() == Some(first.locked.0);
                self.frame_unlock(first.locked);
                return Err(if same { Errno::EEXIST } else { error });
            }
        };
        let merged = self.ksm_merge_locked(&first, &second);
        self.frame_unlock(first.locked);
        self.frame_unlock(second.locked);
        merged
    }

    /// Locks and write-protects the page at `addr`.
    fn ksm_candidate<'a>(
        &self,
        (table, addr): (&'a PageTable, u64),
    ) -> Result<Candidate<'a>, Errno> {
        self.page_tables(table).split_huge_at(addr);
        let frame = match table.get(addr) {
            Pte::Anon { frame, .. } | Pte::Ksm { frame } => frame,
            Pte::Migration { .. } => return Err(Errno::EBUSY),
            _ => return Err(Errno::EINVAL),
        };
        let locked = self.frame_lock(frame)?;
        let protected = table.update(addr, |entry| {
            *entry = entry.write_protected();
            self.restrict_flush(table, VmRange::page(addr), READ_ONLY);
        });
        debug_assert!(protected.is_some(), "a huge page was split above");
        Ok(Candidate {
            table,
            addr,
            locked,
        })
    }

    fn ksm_merge_locked(&self, one: &Candidate<'_>, two: &Candidate<'_>) -> Result<FrameId, Errno> {
        if !self.platform.same(one.locked.0, two.locked.0) {
            return Err(Errno::EAGAIN);
        }
        // A KSM frame is kept; an ordinary page is converted to a KSM page, or replaced.
        let (keep, other) = if self.frame(two.locked.0).is_ksm() {
            (two, one)
        } else {
            (one, two)
        };
        let frame = self.ksm_frame(keep)?;
        let replaced = self.ksm_replace(other, frame);
        // Releases the map count that `ksm_frame` took.
        self.frame_unmap(frame);
        replaced.map(|()| frame)
    }

    /// Returns the KSM frame to use for a candidate, and increments the frame's map count.
    ///
    /// The candidate's own frame is used if it is already a KSM frame. It is also used, and becomes
    /// a KSM frame, if no other entry maps it and it is not in the swap cache. Otherwise the page
    /// is copied to a new frame.
    fn ksm_frame(&self, of: &Candidate<'_>) -> Result<FrameId, Errno> {
        let own = of.locked.0;
        let there = self.frame(own);
        if there.is_ksm() {
            there.map();
            return Ok(own);
        }
        if there.mapcount() == 2 && !there.is_swap_cache() {
            let alone = of.table.update(of.addr, |entry| {
                if !is_protected(*entry, own) || there.mapcount() != 2 {
                    return Err(Errno::EAGAIN);
                }
                self.ksm.add(own, of.table, of.addr)?;
                there.mark(Mark::Ksm);
                *entry = Pte::Ksm { frame: own };
                there.map();
                Ok(own)
            });
            return alone.unwrap_or(Err(Errno::EAGAIN));
        }
        let anon_vma = there.mapping().ok_or(Errno::EAGAIN)?;
        let fill = |copy| self.platform.copy(copy, own);
        let copy = self.frame_filled((anon_vma, there.index()), fill)?;
        self.frame(copy).mark(Mark::Ksm);
        self.ksm_replace(of, copy)
            .map(|()| copy)
            .inspect_err(|_| self.frame_unmap(copy))
    }

    /// Makes the entry of a candidate map `frame` instead of the candidate's own frame.
    #[doc(alias = "replace_page")]
    fn ksm_replace(&self, of: &Candidate<'_>, frame: FrameId) -> Result<(), Errno> {
        let own = of.locked.0;
        let replaced = of.table.update(of.addr, |entry| {
            if !is_protected(*entry, own) {
                return Err(Errno::EAGAIN);
            }
            self.ksm.add(frame, of.table, of.addr)?;
            self.entry_clear(of.table, of.addr, *entry);
            self.frame(frame).map();
            *entry = Pte::Ksm { frame };
            Ok(())
        });
        replaced.unwrap_or(Err(Errno::EAGAIN))
    }
}

/// True if the entry still maps the frame and is read-only.
fn is_protected(entry: Pte, frame: FrameId) -> bool {
    let protected = Pte::Anon {
        frame,
        writable: false,
    };
    entry == protected || entry == Pte::Ksm { frame }
}
