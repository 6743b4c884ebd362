//! Operations on huge pages: allocation, duplication, splitting and release, and counts of these
//! events.
//!
//! # Linux
//! `mm/huge_memory.c` 6.18. Linux keeps a huge page as one folio after `split_huge_pmd`, and swaps
//! or migrates it as one. Here, splitting the last mapping splits the huge page, and swapping,
//! migrating or merging a single page splits the mappings of its huge page first.

use super::entry::{ENTRIES, Pte, new_entries};
use super::huge::{Compound, Huge};
use super::slot::HugeFate;
use super::table::PageTable;
use super::tables::PageTables;
use crate::Space;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, Errno, FrameId, PAGE_SIZE, PMD_SIZE, Pgoff, VmRange};
use core::sync::atomic::{AtomicU64, Ordering};
use vmarea_sync::{Key, Slots};

/// The compounds of all huge pages, and counters of huge-page events.
#[derive(Debug, Default)]
pub(crate) struct HugeState {
    compounds: Slots<Compound>,
    made: AtomicU64,
    zero: AtomicU64,
    collapsed: AtomicU64,
    splits: AtomicU64,
    moved_whole: AtomicU64,
}

/// Counts of huge-page events in all address spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HugeCounts {
    /// Number of huge pages allocated by write faults.
    pub made: u64,
    /// Number of times that read faults mapped the huge zero page.
    pub zero: u64,
    /// Number of huge pages into which `MADV_COLLAPSE` collapsed small pages.
    pub collapsed: u64,
    /// Number of huge mappings split into small entries.
    pub splits: u64,
    /// Number of huge mappings moved as a whole by `mremap`.
    pub moved_whole: u64,
}

/// The huge-page events that are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HugeEvent {
    Made,
    Zero,
    Collapsed,
    Split,
    MovedWhole,
}

impl HugeState {
    /// Returns the memory of compounds that are gone to the allocator.
    pub(crate) fn shrink(&mut self) {
        self.compounds.shrink(|_| ());
    }

    fn of(&self, event: HugeEvent) -> &AtomicU64 {
        match event {
            HugeEvent::Made => &self.made,
            HugeEvent::Zero => &self.zero,
            HugeEvent::Collapsed => &self.collapsed,
            HugeEvent::Split => &self.splits,
            HugeEvent::MovedWhole => &self.moved_whole,
        }
    }

    pub(crate) fn count(&self, event: HugeEvent) {
        // ORDERING: Relaxed; statistics.
        self.of(event).fetch_add(1, Ordering::Relaxed);
    }
}

impl<E: Environment> Space<E> {
    /// Returns the current counts of huge-page events.
    pub fn huge_counts(&self) -> HugeCounts {
        // ORDERING: Relaxed; statistics.
        let get = |event| self.huge.of(event).load(Ordering::Relaxed);
        HugeCounts {
            made: get(HugeEvent::Made),
            zero: get(HugeEvent::Zero),
            collapsed: get(HugeEvent::Collapsed),
            splits: get(HugeEvent::Split),
            moved_whole: get(HugeEvent::MovedWhole),
        }
    }

    /// Allocates a huge page owned by `anon_vma`, at page offset `index`, for one slot to map.
    ///
    /// `fill` is called for each frame, and writes the frame's content.
    ///
    /// # Errors
    /// ENOMEM, or the error of `fill`; nothing is allocated.
    pub(crate) fn huge_alloc(
        &self,
        anon_vma: AnonVmaId,
        index: Pgoff,
        mut fill: impl FnMut(usize, FrameId) -> Result<(), Errno>,
    ) -> Result<Huge, Errno> {
        let mut entries = new_entries(Pte::None, ENTRIES)?;
        let compound = self.huge.compounds.insert()?;
        for at in 0..ENTRIES {
            let page = (anon_vma, Pgoff(index.0.wrapping_add(at as u64)));
            match self.frame_filled(page, |frame| fill(at, frame)) {
                Ok(frame) => {
                    let writable = false;
                    entries[at] = Pte::Anon { frame, writable };
                }
                Err(error) => {
                    let made = entries.iter().filter_map(|entry| entry.anon_frame());
                    made.for_each(|frame| self.frame_unmap(frame));
                    self.huge.compounds.remove(compound);
                    return Err(error);
                }
            }
        }
        // ORDERING: Relaxed; no other thread knows the compound yet.
        self.compound(compound).whole.store(1, Ordering::Relaxed);
        Ok(Huge::of(entries, compound))
    }

    fn compound(&self, key: Key) -> &Compound {
        self.huge.compounds.get(key).expect("mapped by a slot")
    }

    /// Returns the number of slots that map the huge page as a whole; 0 for the huge zero page.
    pub(super) fn huge_whole(&self, huge: &Huge) -> u32 {
        huge.compound.map_or(0, |key| self.compound_whole(key))
    }

    pub(super) fn compound_whole(&self, key: Key) -> u32 {
        // ORDERING: Relaxed; a count, read under a page-table lock.
        self.compound(key).whole.load(Ordering::Relaxed)
    }

    /// Releases one slot's mapping of a huge page.
    pub(crate) fn huge_drop(&self, huge: &mut Huge) {
        let Some(key) = huge.compound.take() else {
            return;
        };
        // ORDERING: AcqRel: the thread that releases the last count sees all changes to the frames.
        if self.compound(key).whole.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.huge.compounds.remove(key);
            huge.frames().for_each(|frame| self.frame_unmap(frame));
        }
    }

    /// Returns another mapping of the huge page, and write-protects both mappings.
    pub(super) fn huge_dup(&self, huge: &mut Huge) -> Result<Huge, Errno> {
        let copy = huge.try_clone()?;
        huge.write_protect();
        if let Some(key) = huge.compound {
            // ORDERING: Relaxed; the slot that is copied already holds a count.
            self.compound(key).whole.fetch_add(1, Ordering::Relaxed);
        }
        Ok(copy)
    }

    /// Splits the mapping `huge` into small entries.
    #[doc(alias = "__split_huge_pmd")]
    pub(crate) fn huge_split(&self, huge: &mut Huge) -> HugeFate {
        self.huge.count(HugeEvent::Split);
        huge.frames().for_each(|frame| self.frame(frame).map());
        self.huge_drop(huge);
        HugeFate::Split(huge.take_entries())
    }

    /// True if only one slot maps the huge page and no small entry maps any of its pages.
    pub(super) fn huge_is_single(&self, huge: &Huge) -> bool {
        let single = |frame: FrameId| self.frame(frame).mapcount() == 1;
        self.huge_whole(huge) <= 1 && huge.frames().all(single)
    }

    /// Makes `anon_vma` own all pages in `huge`, with consecutive page offsets from `index`.
    pub(super) fn huge_set_mapping(&self, huge: &Huge, anon_vma: AnonVmaId, index: Pgoff) {
        for (at, frame) in huge.frames().enumerate() {
            self.frame(frame)
                .set_mapping(anon_vma, Pgoff(index.0.wrapping_add(at as u64)));
        }
    }

    /// Handles a write to a read-only huge page: reuses it if it is unshared, otherwise splits it.
    ///
    /// Returns true if the huge page is now owned by `anon_vma` and writable, false if it was
    /// split, and `None` if no huge page maps `addr`.
    #[doc(alias = "do_huge_pmd_wp_page")]
    pub(crate) fn huge_reuse_or_split(
        &self,
        table: &PageTable,
        addr: u64,
        anon_vma: AnonVmaId,
        index: Pgoff,
    ) -> Option<bool> {
        table.update_huge(addr, |huge| {
            if self.huge_whole(huge) == 1 && self.huge_is_single(huge) {
                self.huge_set_mapping(huge, anon_vma, index);
                huge.writable = true;
                (true, HugeFate::Keep)
            } else {
                (false, self.huge_split(huge))
            }
        })
    }

    /// Replaces the huge zero page at `addr` by `huge`; returns `huge` on failure.
    #[doc(alias = "do_huge_zero_wp_pmd")]
    pub(crate) fn huge_replace_zero(
        &self,
        table: &PageTable,
        addr: u64,
        huge: Huge,
    ) -> Result<(), Huge> {
        let mut new = Some(huge);
        table.update_huge(addr, |there| {
            if there.compound.is_none()
                && let Some(new) = new.take()
            {
                self.clear_flush(table, VmRange::new(addr, addr + PMD_SIZE));
                *there = new;
            }
            ((), HugeFate::Keep)
        });
        new.map_or(Ok(()), Err)
    }
}

impl<E: Environment> PageTables<'_, E> {
    /// Splits the huge mapping that contains `addr`, if any, into small entries.
    #[doc(alias = "split_huge_pmd")]
    pub(crate) fn split_huge_at(&self, addr: u64) {
        if self.table.huge_pages() != 0 {
            self.table
                .update_huge(addr, |huge| ((), self.space.huge_split(huge)));
        }
    }

    /// Splits a huge mapping that straddles `addr`, because a VMA will begin or end at `addr`.
    #[doc(alias = "vma_adjust_trans_huge")]
    pub(crate) fn split_huge_across(&self, addr: u64) {
        if !addr.is_multiple_of(PMD_SIZE) {
            self.split_huge_at(addr);
        }
    }
}

/// Returns the start of the aligned 2 MiB block that contains `addr`.
pub(crate) fn huge_start(addr: u64) -> u64 {
    addr & !(PMD_SIZE - 1)
}

/// Returns the address of the page at index `at` in the huge page at `start`.
pub(crate) fn huge_page_addr(start: u64, at: usize) -> u64 {
    start + at as u64 * PAGE_SIZE
}
