//! KSM: one frame for equal pages, in any address space.
//!
//! A page that is merged loses its anon_vma and index: the frame's reverse map is a list of the
//! entries that map it, kept with each entry under its page-table lock. It therefore needs no care
//! when VMAs merge, split, take another anon_vma or fork; Linux keeps an anon_vma and an address in
//! each item and has to search from there. A write copies, and the copy is an ordinary page of its VMA.
//! Deliberately absent: the daemon that looks for equal pages, and merging with the page of zeros
//! (`use_zero_pages`).
//!
//! # Invariants
//! K1  the items of a frame are exactly the entries that map it as a KSM page, migrating ones included
//!
//! # Locking
//! The lock of the items is taken under a page-table lock.
//!
//! # Linux
//! `mm/ksm.c` `try_to_merge_two_pages`, `replace_page`, `rmap_walk_ksm`, 6.18.

use super::entry::Pte;
use super::frame::{LockedFrame, Mark};
use super::table::PageTable;
use crate::mm::MmapReadGuard;
use crate::space::Space;
use crate::types::platform::{Environment, Platform};
use crate::types::{Errno, FrameId, MmId, PAGE_MASK, VmFlags};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use vmarea_sync::SpinLock;

/// Where a KSM page is mapped: whose, and at which address.
type Item = (MmId, u64);

/// The reverse map of KSM pages.
#[derive(Debug, Default)]
pub(crate) struct Ksm {
    items: SpinLock<BTreeMap<FrameId, BTreeSet<Item>>>,
    /// Entries that map a KSM page, so that nobody looks for them where none is.
    entries: AtomicUsize,
}

impl Ksm {
    /// An entry maps the frame.
    pub(super) fn add(&self, frame: FrameId, table: &PageTable, addr: u64) {
        let Some(mm) = table.owner() else { return };
        if self
            .items
            .lock()
            .entry(frame)
            .or_default()
            .insert((mm, addr))
        {
            // ORDERING: Relaxed; exact for who holds the mm's lock for writing.
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An entry maps the frame no more.
    pub(super) fn remove(&self, frame: FrameId, table: &PageTable, addr: u64) {
        let Some(mm) = table.owner() else { return };
        let mut items = self.items.lock();
        let Some(of_frame) = items.get_mut(&frame) else {
            return;
        };
        if of_frame.remove(&(mm, addr)) {
            // ORDERING: Relaxed; as in `add`.
            self.entries.fetch_sub(1, Ordering::Relaxed);
        }
        if of_frame.is_empty() {
            items.remove(&frame);
        }
    }

    /// The entries that map the frame.
    pub(crate) fn items(&self, frame: FrameId) -> Vec<Item> {
        let items = self.items.lock();
        items
            .get(&frame)
            .map_or_else(Vec::new, |set| set.iter().copied().collect())
    }

    /// True where no KSM page is mapped anywhere.
    pub(crate) fn is_empty(&self) -> bool {
        // ORDERING: Relaxed; see `add`.
        self.entries.load(Ordering::Relaxed) == 0
    }

    /// Frames with items, for validation.
    pub(crate) fn frames(&self) -> Vec<FrameId> {
        self.items.lock().keys().copied().collect()
    }
}

/// An anonymous page that may be merged, with its frame held.
struct Candidate<'a> {
    table: &'a PageTable,
    addr: u64,
    locked: LockedFrame,
}

impl<E: Environment> Space<E> {
    /// Makes one page of two equal ones, in `MADV_MERGEABLE` mappings. Gives the frame that both map.
    ///
    /// # Errors
    /// ESRCH without such an address space; EINVAL where no anonymous page is mapped in a mergeable
    /// mapping, or both are the same; EEXIST where both map one frame already; EBUSY where another
    /// swaps, migrates or merges one of them; EAGAIN where they differ, or one was written to meanwhile.
    pub fn ksm_merge(&self, one: (MmId, u64), two: (MmId, u64)) -> Result<FrameId, Errno> {
        let (one, two) = ((one.0, one.1 & PAGE_MASK), (two.0, two.1 & PAGE_MASK));
        if one == two {
            return Err(Errno::EINVAL);
        }
        // The lower id first, as everywhere where two are locked; one lock where they are the same.
        let lower = self.mmap_read_lock(one.0.min(two.0)).ok_or(Errno::ESRCH)?;
        let higher = (one.0 != two.0)
            .then(|| {
                self.mmap_read_lock_nested(one.0.max(two.0))
                    .ok_or(Errno::ESRCH)
            })
            .transpose()?;
        let of = |mm: MmId| match &higher {
            Some(higher) if higher.id == mm => higher,
            _ => &lower,
        };
        let first = self.ksm_candidate(of(one.0), one.1)?;
        let second = match self.ksm_candidate(of(two.0), two.1) {
            Ok(second) => second,
            Err(error) => {
                let same = of(two.0).pages().get(two.1).frame() == Some(first.locked.0);
                self.frame_unlock(first.locked);
                return Err(if same { Errno::EEXIST } else { error });
            }
        };
        let merged = self.ksm_merge_locked(&first, &second);
        self.frame_unlock(first.locked);
        self.frame_unlock(second.locked);
        merged
    }

    /// The page at `addr`, held and write-protected.
    fn ksm_candidate<'a>(
        &self,
        r: &'a MmapReadGuard<'_, E>,
        addr: u64,
    ) -> Result<Candidate<'a>, Errno> {
        let vma = r.vma_lookup(addr).ok_or(Errno::EINVAL)?;
        if !vma.body.flags.contains(VmFlags::MERGEABLE) {
            return Err(Errno::EINVAL);
        }
        let table = r.pages();
        self.page_tables(table).split_huge_at(addr);
        let frame = match table.get(addr) {
            Pte::Anon { frame, .. } | Pte::Ksm { frame } => frame,
            Pte::Migration { .. } => return Err(Errno::EBUSY),
            _ => return Err(Errno::EINVAL),
        };
        let locked = self.frame_lock(frame)?;
        table.update(addr, |entry| *entry = entry.write_protected());
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
        // A KSM page stays; an ordinary one becomes one, or gives way.
        let (keep, other) = if self.frame(two.locked.0).is_ksm() {
            (two, one)
        } else {
            (one, two)
        };
        let frame = self.ksm_frame(keep)?;
        let replaced = self.ksm_replace(other, frame);
        // The count that `ksm_frame` took for us.
        self.frame_unmap(frame);
        replaced.map(|()| frame)
    }

    /// The KSM frame for a candidate, counted once more: its own, if it maps it alone, or a copy.
    fn ksm_frame(&self, of: &Candidate<'_>) -> Result<FrameId, Errno> {
        let own = of.locked.0;
        let there = self.frame(own);
        if there.is_ksm() {
            there.map();
            return Ok(own);
        }
        if there.mapcount() == 2 && !there.is_swap_cache() {
            let alone = of.table.update(of.addr, |entry| {
                let ours = is_protected(*entry, own) && there.mapcount() == 2;
                if ours {
                    there.mark(Mark::Ksm);
                    self.ksm.add(own, of.table, of.addr);
                    *entry = Pte::Ksm { frame: own };
                    there.map();
                }
                ours
            });
            return if alone == Some(true) {
                Ok(own)
            } else {
                Err(Errno::EAGAIN)
            };
        }
        let anon_vma = there.mapping().ok_or(Errno::EAGAIN)?;
        let copy = self.frame_alloc(anon_vma, there.index())?;
        self.platform.copy(copy, own);
        self.frame(copy).mark(Mark::Ksm);
        self.ksm_replace(of, copy)
            .map(|()| copy)
            .inspect_err(|_| self.frame_unmap(copy))
    }

    /// The entry of a candidate maps `frame` instead of its own.
    #[doc(alias = "replace_page")]
    fn ksm_replace(&self, of: &Candidate<'_>, frame: FrameId) -> Result<(), Errno> {
        let own = of.locked.0;
        let replaced = of.table.update(of.addr, |entry| {
            let ours = is_protected(*entry, own);
            if ours {
                self.entry_drop(of.table, of.addr, *entry);
                self.frame(frame).map();
                self.ksm.add(frame, of.table, of.addr);
                *entry = Pte::Ksm { frame };
            }
            ours
        });
        if replaced == Some(true) {
            Ok(())
        } else {
            Err(Errno::EAGAIN)
        }
    }
}

/// Does the entry still map the frame, read-only?
fn is_protected(entry: Pte, frame: FrameId) -> bool {
    let protected = Pte::Anon {
        frame,
        writable: false,
    };
    entry == protected || entry == Pte::Ksm { frame }
}
