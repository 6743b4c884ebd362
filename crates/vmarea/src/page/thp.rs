//! Huge pages: 512 pages that one slot maps as a whole.
//!
//! A huge page is a [`Compound`] of 512 ordinary frames. While whole slots map it, each frame counts
//! one mapping for all of them, and the compound counts the slots. Making small entries of one such
//! mapping therefore needs no memory for frames, copies nothing and leaves other mappings whole; when
//! the last whole mapping has gone the frames are ordinary ones. The huge page of zeros has no frames.
//!
//! # Picture
//! ```text
//! slot (mm 1) ─┐                        ┌ frame 0    mapcount 1: the compound's
//! slot (mm 2) ─┴─▶ Compound, whole = 2 ─┤ …
//!                                       └ frame 511  mapcount 2: a small entry in mm 3 as well
//! ```
//!
//! # Invariants
//! H2  `whole` is the number of slots that map the compound; its frames exist while it is not 0
//!
//! # Linux
//! `mm/huge_memory.c` 6.18. Its huge page stays one folio after `split_huge_pmd` and is swapped or
//! migrated as one; here splitting the last mapping splits the page, and what swaps, migrates or merges
//! one page splits first.

use super::entry::Pte;
use super::slot::{ENTRIES, HugeFate};
use super::table::PageTable;
use super::tables::PageTables;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, Errno, FrameId, PAGE_SIZE, PMD_SIZE, Pgoff};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// 512 frames that are mapped together.
#[derive(Debug)]
pub(super) struct Compound {
    pub(super) frames: [FrameId; ENTRIES],
    whole: AtomicU32,
}

/// A slot's mapping of a huge page.
#[derive(Debug)]
pub(crate) struct Huge {
    /// `None` for the huge page of zeros.
    pages: Option<Arc<Compound>>,
    writable: bool,
}

impl Huge {
    /// The huge page of zeros.
    pub(crate) const ZERO: Huge = Huge {
        pages: None,
        writable: false,
    };

    /// What a small entry at place `at` would be.
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

    /// Its frames, in order; none for the huge page of zeros.
    pub(super) fn frames(&self) -> &[FrameId] {
        self.pages.as_ref().map_or(&[], |c| &c.frames)
    }

    /// Slots that map it whole; 0 for the huge page of zeros.
    pub(super) fn whole(&self) -> u32 {
        // ORDERING: Relaxed; a count, read under a page-table lock.
        self.pages
            .as_ref()
            .map_or(0, |c| c.whole.load(Ordering::Relaxed))
    }
}

/// Counts of what happened to huge pages.
#[derive(Debug, Default)]
pub(crate) struct HugeCounters {
    made: AtomicU64,
    zero: AtomicU64,
    collapsed: AtomicU64,
    splits: AtomicU64,
    moved_whole: AtomicU64,
}

/// What happened to huge pages, in all address spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HugeCounts {
    /// Brought by a write.
    pub made: u64,
    /// Mappings of the huge page of zeros, brought by a read.
    pub zero: u64,
    /// Made of small pages by `MADV_COLLAPSE`.
    pub collapsed: u64,
    /// Mappings cut into small entries.
    pub splits: u64,
    /// Mappings that `mremap` moved whole.
    pub moved_whole: u64,
}

/// One of the counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HugeEvent {
    Made,
    Zero,
    Collapsed,
    Split,
    MovedWhole,
}

impl HugeCounters {
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
    /// What happened to huge pages so far.
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

    /// A huge page of `anon_vma` whose first page has `index`, mapped by one slot; `fill` puts bytes
    /// into each of its frames.
    pub(crate) fn huge_alloc(
        &self,
        anon_vma: AnonVmaId,
        index: Pgoff,
        mut fill: impl FnMut(usize, FrameId),
    ) -> Result<Huge, Errno> {
        let mut frames = alloc::vec::Vec::new();
        frames
            .try_reserve_exact(ENTRIES)
            .map_err(|_| Errno::ENOMEM)?;
        for at in 0..ENTRIES {
            match self.frame_alloc(anon_vma, Pgoff(index.0.wrapping_add(at as u64))) {
                Ok(frame) => frames.push(frame),
                Err(error) => {
                    frames.iter().for_each(|f| self.frame_abandon(*f));
                    return Err(error);
                }
            }
        }
        for (at, frame) in frames.iter().enumerate() {
            fill(at, *frame);
        }
        let frames = frames.try_into().expect("as many as a table has entries");
        Ok(Huge {
            pages: Some(Arc::new(Compound {
                frames,
                whole: AtomicU32::new(1),
            })),
            writable: true,
        })
    }

    /// A slot's mapping ends.
    pub(crate) fn huge_drop(&self, huge: &mut Huge) {
        if let Some(compound) = huge.pages.take() {
            self.whole_drop(&compound);
        }
    }

    fn whole_drop(&self, compound: &Compound) {
        // ORDERING: AcqRel: the last one sees all that the others did with the frames.
        if compound.whole.fetch_sub(1, Ordering::AcqRel) == 1 {
            for frame in compound.frames {
                self.frame_unmap(frame);
            }
        }
    }

    /// Another slot maps the same, both without the right to write.
    pub(super) fn huge_dup(&self, huge: &mut Huge) -> Huge {
        huge.write_protect();
        if let Some(compound) = &huge.pages {
            // ORDERING: Relaxed; the slot that is copied holds one already.
            compound.whole.fetch_add(1, Ordering::Relaxed);
        }
        Huge {
            pages: huge.pages.clone(),
            writable: false,
        }
    }

    /// Small entries for the pages of `huge`, which ends.
    #[doc(alias = "__split_huge_pmd")]
    pub(crate) fn huge_split(&self, huge: &mut Huge) -> HugeFate {
        self.huge.count(HugeEvent::Split);
        let mut entries = Box::new([Pte::Zero; ENTRIES]);
        if let Some(compound) = huge.pages.take() {
            for (entry, frame) in entries.iter_mut().zip(compound.frames) {
                self.frame(frame).map();
                *entry = Pte::Anon {
                    frame,
                    writable: huge.writable,
                };
            }
            self.whole_drop(&compound);
        }
        HugeFate::Split(entries)
    }

    /// One slot maps it, and no small entry any of its pages.
    pub(super) fn huge_is_single(&self, huge: &Huge) -> bool {
        let single = |frame: &FrameId| self.frame(*frame).mapcount() == 1;
        huge.whole() <= 1 && huge.frames().iter().all(single)
    }

    /// The pages belong to `anon_vma`, the first of them at `index`.
    pub(super) fn huge_set_mapping(&self, huge: &Huge, anon_vma: AnonVmaId, index: Pgoff) {
        for (at, frame) in huge.frames().iter().enumerate() {
            self.frame(*frame)
                .set_mapping(anon_vma, Pgoff(index.0.wrapping_add(at as u64)));
        }
    }

    /// A write to a huge page that may only be read: true where the VMA has it alone, and may write to
    /// it from now on as a page of `anon_vma`; else it is cut. `None` where none lies there.
    #[doc(alias = "do_huge_pmd_wp_page")]
    pub(crate) fn huge_reuse_or_split(
        &self,
        table: &PageTable,
        addr: u64,
        anon_vma: AnonVmaId,
        index: Pgoff,
    ) -> Option<bool> {
        table.update_huge(addr, |huge| {
            if huge.whole() == 1 && self.huge_is_single(huge) {
                self.huge_set_mapping(huge, anon_vma, index);
                huge.writable = true;
                (true, HugeFate::Keep)
            } else {
                (false, self.huge_split(huge))
            }
        })
    }

    /// The huge page of zeros at `addr` becomes `huge`. Gives it back where something else lies there.
    #[doc(alias = "do_huge_zero_wp_pmd")]
    pub(crate) fn huge_replace_zero(
        &self,
        table: &PageTable,
        addr: u64,
        huge: Huge,
    ) -> Result<(), Huge> {
        let mut new = Some(huge);
        table.update_huge(addr, |there| {
            if there.pages.is_none()
                && let Some(new) = new.take()
            {
                *there = new;
            }
            ((), HugeFate::Keep)
        });
        new.map_or(Ok(()), Err)
    }
}

impl<E: Environment> PageTables<'_, E> {
    /// Cuts the huge page that holds `addr`, if there is one.
    #[doc(alias = "split_huge_pmd")]
    pub(crate) fn split_huge_at(&self, addr: u64) {
        if self.table.huge_pages() != 0 {
            self.table
                .update_huge(addr, |huge| ((), self.space.huge_split(huge)));
        }
    }

    /// A VMA begins or ends at `addr`: no huge page may lie across.
    #[doc(alias = "vma_adjust_trans_huge")]
    pub(crate) fn split_huge_across(&self, addr: u64) {
        if !addr.is_multiple_of(PMD_SIZE) {
            self.split_huge_at(addr);
        }
    }
}

/// First address of the huge page that holds `addr`.
pub(crate) fn huge_start(addr: u64) -> u64 {
    addr & !(PMD_SIZE - 1)
}

/// Address of page `at` of the huge page at `start`.
pub(crate) fn huge_page_addr(start: u64, at: usize) -> u64 {
    start + at as u64 * PAGE_SIZE
}

/// Whole huge mappings that stand behind a frame's map count, for validation.
pub(crate) fn compound_key(huge: &Huge) -> Option<(usize, u32, &[FrameId])> {
    let compound = huge.pages.as_ref()?;
    Some((
        Arc::as_ptr(compound) as usize,
        huge.whole(),
        &compound.frames,
    ))
}
