//! `Frame`: what is known of a page frame that holds an anonymous page.
//!
//! # Invariants
//! F1  `mapcount` is the number of page-table entries that map the frame, one more where a huge page
//!     that it is part of is mapped as a whole, and one more for who has locked it; 0 only where it is
//!     pinned and nothing maps it any more
//! F2  `mapping` is an anon_vma on which every VMA that maps the frame hangs, and in each of them
//!     `index` leads to the page's address; a KSM frame has its own reverse map instead
//!
//! # Linux
//! `struct folio`: `mapping`, `index`, `_mapcount`, the flags `PG_locked` and `PG_swapcache`, 6.18.
//! Always one page: a huge page is 512 of them that are mapped together (see `thp`). A migration entry
//! keeps its count here, where Linux drops it.

use super::table::scattered;
use crate::space::Space;
use crate::types::platform::{Environment, Platform};
use crate::types::{AnonVmaId, Errno, FrameId, PAGE_SIZE, PMD_SIZE, Pgoff};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A slot for a frame. Changed under the page-table lock of an entry that maps it.
#[derive(Debug, Default)]
pub struct Frame {
    mapping: AtomicU64,
    index: AtomicU64,
    mapcount: AtomicU32,
    state: AtomicU32,
}

/// One bit of a frame's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Mark {
    /// It is being swapped out, migrated or merged (`PG_locked`).
    Locked = 1,
    /// It is in the swap cache.
    SwapCache = 2,
    /// KSM shares it.
    Ksm = 4,
    /// Its entries are migration entries.
    Migrating = 8,
    /// Nothing maps it any more; whoever has pinned it gives it back.
    Unmapped = 16,
}

/// What one pin adds to a frame's state: the bits above the marks count them.
const PIN: u32 = 1 << 8;

impl Frame {
    /// The anon_vma that the page belongs to.
    pub fn mapping(&self) -> Option<AnonVmaId> {
        // ORDERING: Acquire, pairs with the Release in `set_mapping`.
        AnonVmaId::from_bits(self.mapping.load(Ordering::Acquire))
    }

    /// The page's place in its anon_vma.
    pub fn index(&self) -> Pgoff {
        // ORDERING: Acquire, pairs with the Release in `set_mapping`.
        Pgoff(self.index.load(Ordering::Acquire))
    }

    /// Page-table entries that map it.
    pub fn mapcount(&self) -> u32 {
        // ORDERING: Relaxed; a count, read under a page-table lock where it must be exact.
        self.mapcount.load(Ordering::Relaxed)
    }

    /// One entry maps it, whoever has locked it.
    pub(super) fn single_mapping(&self) -> bool {
        self.mapcount() == 1 || self.mapcount() == 2 && self.is(Mark::Locked)
    }

    /// KSM shares it.
    pub fn is_ksm(&self) -> bool {
        self.is(Mark::Ksm)
    }

    /// It is on its way to another frame.
    pub fn is_migrating(&self) -> bool {
        self.is(Mark::Migrating)
    }

    /// It is in the swap cache.
    pub fn is_swap_cache(&self) -> bool {
        self.is(Mark::SwapCache)
    }

    /// The page belongs to `anon_vma` from now on, at `index`.
    #[doc(alias = "folio_move_anon_rmap")]
    pub(crate) fn set_mapping(&self, anon_vma: AnonVmaId, index: Pgoff) {
        // ORDERING: Release, pairs with the Acquire in `mapping` and `index`.
        self.index.store(index.0, Ordering::Release);
        self.mapping.store(anon_vma.to_bits(), Ordering::Release);
    }

    /// One more entry maps it.
    pub(crate) fn map(&self) {
        // ORDERING: Relaxed; see `mapcount`.
        self.mapcount.fetch_add(1, Ordering::Relaxed);
    }

    /// As [`map`](Self::map), unless the last entry has gone. For who found the frame in a table and
    /// not in an entry.
    #[doc(alias = "folio_try_get")]
    pub(super) fn map_unless_gone(&self) -> bool {
        // ORDERING: Acquire, pairs with the AcqRel in `frame_unmap`.
        self.mapcount
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |n| {
                (n != 0).then_some(n + 1)
            })
            .is_ok()
    }

    pub(super) fn is(&self, mark: Mark) -> bool {
        self.is_marked() && self.state() & mark as u32 != 0
    }

    /// Anything is special about it.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.state() != 0
    }

    #[inline]
    fn state(&self) -> u32 {
        // ORDERING: Acquire, pairs with the AcqRel in `mark` and `unmark`.
        self.state.load(Ordering::Acquire)
    }

    /// Sets a mark; false if it was set.
    pub(super) fn mark(&self, mark: Mark) -> bool {
        // ORDERING: AcqRel: who sets `Locked` sees what its last holder did; others see what came
        // before the mark.
        self.state.fetch_or(mark as u32, Ordering::AcqRel) & mark as u32 == 0
    }

    /// Somebody has pinned it.
    pub fn is_pinned(&self) -> bool {
        self.state() >= PIN
    }

    /// One pin more; false, and nothing done, where it is locked for a change.
    pub(super) fn pin(&self) -> bool {
        let more = |state: u32| {
            let locked = state & Mark::Locked as u32 != 0;
            state.checked_add(PIN).filter(|_| !locked)
        };
        // ORDERING: Acquire, pairs with the AcqRel in `unmark`: who pins sees what was done to the
        // frame while it was locked.
        self.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, more)
            .is_ok()
    }

    /// One pin less; true where it was the last, and nothing maps the frame any more.
    pub(super) fn unpin(&self) -> bool {
        // ORDERING: AcqRel: the last one sees all that the others did with the frame.
        let was = self.state.fetch_sub(PIN, Ordering::AcqRel);
        was / PIN == 1 && was & Mark::Unmapped as u32 != 0
    }

    /// The last entry has gone; true where pins keep the frame.
    fn outlives_its_entries(&self) -> bool {
        // ORDERING: AcqRel, as in `unpin`: one of the two sees the other.
        self.state.fetch_or(Mark::Unmapped as u32, Ordering::AcqRel) >= PIN
    }

    pub(super) fn unmark(&self, mark: Mark) {
        // ORDERING: AcqRel, as in `mark`.
        self.state.fetch_and(!(mark as u32), Ordering::AcqRel);
    }
}

/// A frame that cannot go away, and that nobody else swaps out, migrates or merges, until it is let go.
#[derive(Debug)]
#[must_use]
pub(super) struct LockedFrame(pub(super) FrameId);

/// Where frames come from and go to: the pages of one page table share a place, other parts of an
/// address space have others, so that threads who fault there do not meet.
fn lane(index: Pgoff) -> usize {
    scattered(index.0 >> (PMD_SIZE / PAGE_SIZE).trailing_zeros())
}

impl<E: Environment> Space<E> {
    /// The frame that an entry names.
    pub(crate) fn frame(&self, id: FrameId) -> &Frame {
        self.frames.get(id.0).expect("frame in use")
    }

    /// A frame of `anon_vma`, mapped once.
    pub(crate) fn frame_alloc(&self, anon_vma: AnonVmaId, index: Pgoff) -> Result<FrameId, Errno> {
        crate::mutant::allocate()?;
        let id = FrameId(self.frames.insert_in(lane(index))?);
        let frame = self.frame(id);
        frame.set_mapping(anon_vma, index);
        // ORDERING: Relaxed; nobody else knows the frame yet.
        frame.mapcount.store(1, Ordering::Relaxed);
        frame.state.store(0, Ordering::Relaxed);
        Ok(id)
    }

    /// A frame of [`frame_alloc`](Self::frame_alloc) is not needed and was never filled.
    pub(crate) fn frame_abandon(&self, id: FrameId) {
        self.frame_free(id);
    }

    fn frame_free(&self, id: FrameId) {
        let lane = lane(self.frame(id).index());
        self.frames.remove_in(id.0, lane);
    }

    /// One entry less maps the frame; the last gives it back.
    #[inline]
    pub(crate) fn frame_unmap(&self, id: FrameId) {
        let frame = self.frame(id);
        // ORDERING: AcqRel: the last one sees all that the others did with the frame.
        if frame.mapcount.fetch_sub(1, Ordering::AcqRel) == 1 {
            if frame.is_marked() {
                self.swap.forget_frame(self, id);
                if frame.outlives_its_entries() {
                    return;
                }
            }
            self.frame_free_unmapped(id);
        }
    }

    /// Gives back a frame that nothing maps and nobody has pinned.
    pub(super) fn frame_free_unmapped(&self, id: FrameId) {
        self.platform.free(id);
        self.frame_free(id);
    }

    /// Takes hold of a frame. EBUSY where another does or has pinned it, EINVAL where the frame is not in
    /// use.
    #[doc(alias = "folio_trylock")]
    pub(super) fn frame_lock(&self, id: FrameId) -> Result<LockedFrame, Errno> {
        let frame = self.frames.get(id.0).ok_or(Errno::EINVAL)?;
        if !frame.map_unless_gone() {
            return Err(Errno::EINVAL);
        }
        if let Some(other) = self.frames.key_at(id.0.index()).filter(|key| *key != id.0) {
            // The slot has begun another life in between, and we were counted in that.
            self.frame_unmap(FrameId(other));
            return Err(Errno::EINVAL);
        }
        if !frame.mark(Mark::Locked) {
            self.frame_unmap(id);
            return Err(Errno::EBUSY);
        }
        let locked = LockedFrame(id);
        if frame.is_pinned() {
            self.frame_unlock(locked);
            return Err(Errno::EBUSY);
        }
        Ok(locked)
    }

    /// Lets go of a frame; it goes away where nothing maps it any more.
    pub(super) fn frame_unlock(&self, locked: LockedFrame) {
        self.frame(locked.0).unmark(Mark::Locked);
        self.frame_unmap(locked.0);
    }

    /// Frames in use.
    pub fn frames_in_use(&self) -> usize {
        self.frames.len()
    }
}
