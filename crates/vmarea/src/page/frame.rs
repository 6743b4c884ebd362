//! `Frame`: the state of a page frame that contains an anonymous page.
//!
//! # Invariants
//! F1  `mapcount` is the number of page-table entries that map the frame, plus one if the frame is
//!     part of a huge page that is mapped as a whole, plus one for a holder of the frame lock; it
//!     is 0 only if the frame is pinned and no longer mapped
//! F2  `mapping` is an anon_vma to which every VMA that maps the frame is linked, and in each of
//!     those VMAs `index` yields the page's address; a KSM frame has its own reverse map instead
//!
//! # Linux
//! `struct folio`: `mapping`, `index`, `_mapcount`, the flags `PG_locked` and `PG_swapcache`, 6.18.
//! A frame is always a single page: a huge page consists of 512 frames that are mapped together
//! (see `thp`). A migration entry keeps its map count on the frame; Linux drops the count.

use super::table::scattered;
use crate::Space;
use crate::types::platform::{Environment, Platform};
use crate::types::{AnonVmaId, Errno, FrameId, PAGE_SIZE, PMD_SIZE, Pgoff};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The state of one frame, modified under the page-table lock of an entry that maps the frame.
#[derive(Debug, Default)]
pub struct Frame {
    mapping: AtomicU64,
    index: AtomicU64,
    mapcount: AtomicU32,
    state: AtomicU32,
}

/// One bit in a frame's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Mark {
    /// The frame is locked, for swap-out, migration or a KSM merge (`PG_locked`).
    Locked = 1,
    /// The frame is in the swap cache.
    SwapCache = 2,
    /// The frame is shared by KSM.
    Ksm = 4,
    /// All entries that map the frame are migration entries.
    Migrating = 8,
    /// Nothing maps the frame any more; removing the last pin frees the frame.
    Unmapped = 16,
}

/// The value that one pin adds to a frame's state: the bits above the flags hold the pin count.
const PIN: u32 = 1 << 8;

impl Frame {
    /// Returns the anon_vma that owns the page.
    pub fn mapping(&self) -> Option<AnonVmaId> {
        // ORDERING: Acquire, pairs with the Release in `set_mapping`.
        AnonVmaId::from_bits(self.mapping.load(Ordering::Acquire))
    }

    /// Returns the page's index: its page offset in the anon_vma.
    pub fn index(&self) -> Pgoff {
        // ORDERING: Acquire, pairs with the Release in `set_mapping`.
        Pgoff(self.index.load(Ordering::Acquire))
    }

    /// Returns the map count: the number of page-table entries that map the frame (see F1).
    pub fn mapcount(&self) -> u32 {
        // ORDERING: Relaxed; a count, read under a page-table lock where it must be exact.
        self.mapcount.load(Ordering::Relaxed)
    }

    /// True if exactly one page-table entry maps the frame, not counting the one that a frame lock
    /// holds.
    pub(super) fn single_mapping(&self) -> bool {
        self.mapcount() == 1 || self.mapcount() == 2 && self.is(Mark::Locked)
    }

    /// True if KSM shares the frame.
    pub fn is_ksm(&self) -> bool {
        self.is(Mark::Ksm)
    }

    /// True if the page is being migrated to another frame.
    pub fn is_migrating(&self) -> bool {
        self.is(Mark::Migrating)
    }

    /// True if the frame is in the swap cache.
    pub fn is_swap_cache(&self) -> bool {
        self.is(Mark::SwapCache)
    }

    /// Makes `anon_vma` the owner of the page, at page offset `index`.
    #[doc(alias = "folio_move_anon_rmap")]
    pub(crate) fn set_mapping(&self, anon_vma: AnonVmaId, index: Pgoff) {
        // ORDERING: Release, pairs with the Acquire in `mapping` and `index`.
        self.index.store(index.0, Ordering::Release);
        self.mapping.store(anon_vma.to_bits(), Ordering::Release);
    }

    /// Increments the map count.
    pub(crate) fn map(&self) {
        // ORDERING: Relaxed; see `mapcount`.
        self.mapcount.fetch_add(1, Ordering::Relaxed);
    }

    /// Increments the map count unless it is 0; returns false if it is 0.
    ///
    /// For callers that have found the frame by a lookup, not in an entry that maps it.
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

    /// True if any flag is set or the frame is pinned.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.state() != 0
    }

    #[inline]
    fn state(&self) -> u32 {
        // ORDERING: Acquire, pairs with the AcqRel in `mark` and `unmark`.
        self.state.load(Ordering::Acquire)
    }

    /// Sets a flag; returns false if it was already set.
    pub(super) fn mark(&self, mark: Mark) -> bool {
        // ORDERING: AcqRel: setting `Locked` makes the changes of the last lock holder visible; the
        // Release half makes writes before the flag visible to readers that see the flag.
        self.state.fetch_or(mark as u32, Ordering::AcqRel) & mark as u32 == 0
    }

    /// True if the frame is pinned.
    pub fn is_pinned(&self) -> bool {
        self.state() >= PIN
    }

    /// Increments the pin count; returns false and changes nothing if the frame is locked.
    pub(super) fn pin(&self) -> bool {
        let more = |state: u32| {
            let locked = state & Mark::Locked as u32 != 0;
            state.checked_add(PIN).filter(|_| !locked)
        };
        // ORDERING: Acquire, pairs with the AcqRel in `unmark`: a new pin sees the changes that
        // were made to the frame while it was locked.
        self.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Removes one pin; returns true if this was the last pin and no entry maps the frame.
    pub(super) fn unpin(&self) -> bool {
        // ORDERING: AcqRel: the last unpin sees all changes that the other pin holders made.
        let was = self.state.fetch_sub(PIN, Ordering::AcqRel);
        was / PIN == 1 && was & Mark::Unmapped as u32 != 0
    }

    /// Records that the last mapping was removed; returns true if a pin keeps the frame allocated.
    fn outlives_its_entries(&self) -> bool {
        // ORDERING: AcqRel, as in `unpin`: the later of the two operations sees the earlier one.
        self.state.fetch_or(Mark::Unmapped as u32, Ordering::AcqRel) >= PIN
    }

    pub(super) fn unmark(&self, mark: Mark) {
        // ORDERING: AcqRel, as in `mark`.
        self.state.fetch_and(!(mark as u32), Ordering::AcqRel);
    }
}

/// A locked frame. It cannot be freed, and no other thread can swap out, migrate or merge it.
#[derive(Debug)]
#[must_use]
pub(crate) struct LockedFrame(pub(super) FrameId);

/// Returns the frame allocator's lane that serves a page.
///
/// All 512 pages in an aligned 2 MiB block use the same lane. Other pages in the address space
/// mostly use other lanes, so that threads that fault in different places rarely contend.
fn lane(index: Pgoff) -> usize {
    scattered(index.0 >> (PMD_SIZE / PAGE_SIZE).trailing_zeros())
}

impl<E: Environment> Space<E> {
    /// Returns the frame to which a page-table entry refers.
    pub(crate) fn frame(&self, id: FrameId) -> &Frame {
        self.frames.get(id.0).expect("frame in use")
    }

    /// Allocates a frame for a page of `anon_vma`, with a map count of 1.
    pub(crate) fn frame_alloc(&self, anon_vma: AnonVmaId, index: Pgoff) -> Result<FrameId, Errno> {
        let id = FrameId(self.frames.insert_in(lane(index))?);
        let frame = self.frame(id);
        frame.set_mapping(anon_vma, index);
        // ORDERING: Relaxed; no other thread has access to the frame yet.
        frame.mapcount.store(1, Ordering::Relaxed);
        frame.state.store(0, Ordering::Relaxed);
        Ok(id)
    }

    /// Allocates a frame like [`frame_alloc`](Self::frame_alloc), and calls `fill` to fill it.
    ///
    /// # Errors
    /// ENOMEM, or the error of `fill`; no frame is allocated.
    #[inline]
    pub(crate) fn frame_filled(
        &self,
        (anon_vma, index): (AnonVmaId, Pgoff),
        fill: impl FnOnce(FrameId) -> Result<(), Errno>,
    ) -> Result<FrameId, Errno> {
        let id = self.frame_alloc(anon_vma, index)?;
        match fill(id) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.frame_abandon(id);
                Err(error)
            }
        }
    }

    /// Frees a frame from [`frame_alloc`](Self::frame_alloc) that has not been mapped.
    pub(crate) fn frame_abandon(&self, id: FrameId) {
        self.frame_free(id);
    }

    fn frame_free(&self, id: FrameId) {
        let lane = lane(self.frame(id).index());
        self.frames.remove_in(id.0, lane);
    }

    /// Decrements the map count. If the count becomes 0, frees the frame unless it is pinned.
    #[inline]
    pub(crate) fn frame_unmap(&self, id: FrameId) {
        let frame = self.frame(id);
        // ORDERING: AcqRel: the thread that releases the last count sees all changes to the frame.
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

    /// Frees a frame that is neither mapped nor pinned any more.
    pub(super) fn frame_free_unmapped(&self, id: FrameId) {
        self.platform.free(id);
        self.frame_free(id);
    }

    /// Locks a frame.
    ///
    /// # Errors
    /// EBUSY if the frame is already locked or is pinned; EINVAL if the frame is not in use.
    #[doc(alias = "folio_trylock")]
    pub(crate) fn frame_lock(&self, id: FrameId) -> Result<LockedFrame, Errno> {
        let frame = self.frames.get(id.0).ok_or(Errno::EINVAL)?;
        if !frame.map_unless_gone() {
            return Err(Errno::EINVAL);
        }
        if let Some(other) = self.frames.key_at(id.0.index()).filter(|key| *key != id.0) {
            // The slot was reused for another frame, and the map count was taken on that frame.
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

    /// Unlocks a frame, and frees it if it is no longer mapped.
    pub(crate) fn frame_unlock(&self, locked: LockedFrame) {
        self.frame(locked.0).unmark(Mark::Locked);
        self.frame_unmap(locked.0);
    }

    /// Returns the map count of a frame; `None` if the frame is not in use.
    ///
    /// [`rmap_walk`](Self::rmap_walk) has an example.
    pub fn frame_mapcount(&self, id: FrameId) -> Option<u32> {
        self.frames.get(id.0).map(Frame::mapcount)
    }

    /// Returns the frame in use whose [`index`](FrameId::index) is `index`. To visit all frames,
    /// call this for each index below [`frame_bound`](Self::frame_bound).
    ///
    /// [`reclaim_frame`](Self::reclaim_frame) has an example.
    pub fn frame_at(&self, index: usize) -> Option<FrameId> {
        self.frames.key_at(u32::try_from(index).ok()?).map(FrameId)
    }

    /// Returns the number of frames in use.
    pub fn frames_in_use(&self) -> usize {
        self.frames.len()
    }
}
