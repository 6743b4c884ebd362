//! Swap: slots on a device, their reference counts, and the swap cache.
//!
//! Swapping out a page replaces every mapping of the page by a [`Pte::Swap`]. The page's anon_vma
//! and index are not stored, so a VMA may move or merge while its pages are swapped out: at
//! swap-in, a page gets both from the VMA of the faulting access. After a swap-in, the page stays
//! in the swap cache as long as other entries still refer to the slot, so it can be mapped in one
//! process and swapped out in another. A cached page is never modified: a write copies it.
//! Therefore the contents of a slot and of its cached page are always identical. Not implemented:
//! read-ahead. `mm::reclaim` decides whether a page is swapped out; the embedder chooses the order
//! in which pages are tried.
//!
//! # Picture
//! ```text
//! swap_out   Anon ─▶ read-only, data to the device, Swap in every mapping, count = entries, frame freed
//! fault      no cached frame: a new frame with the slot's data; cached while count > 0
//!            cached frame that this VMA may map: maps that frame;  otherwise a copy
//! count 0    the slot is free
//! ```
//!
//! # Invariants
//! S1  a slot's count is the number of entries that name the slot
//! S2  a slot's cached frame is in use, mapped, and marked `SwapCache`; no other frame has that
//!     mark
//!
//! # Locking
//! The lock of the swap map nests inside a page-table lock; the platform is called with that lock
//! held.
//!
//! # Linux
//! `mm/swapfile.c`, `mm/swap_state.c`, `mm/vmscan.c` `pageout`, `do_swap_page`, 6.12 (6.18 replaces
//! the map by a table). A slot whose count drops to 0 is freed at once; Linux may keep the cached
//! page.

use super::entry::Pte;
use super::frame::{LockedFrame, Mark};
use super::gather::READ_ONLY;
use super::rmap_walk::Mapping;
use super::sorted_map::SortedMap;
use crate::Space;
use crate::types::platform::{Environment, Platform};
use crate::types::{Errno, FrameId, SwapId, VmRange};
use alloc::vec::Vec;
use vmarea_sync::SpinLock;

/// Maximum number of reverse-map walks to unmap a page, in case concurrent forks keep copying it.
pub(super) const WALKS: u32 = 64;

/// One entry in Linux's swap map: a count in six bits and two flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "swap_map")]
pub struct SwapMap(pub u8);

impl SwapMap {
    /// The highest count in one entry of the swap map (`SWAP_MAP_MAX`).
    pub const MAX: u8 = 0x3e;
    /// Flag: the page is also in the swap cache (`SWAP_HAS_CACHE`).
    pub const HAS_CACHE: u8 = 0x40;
    /// Flag: the count exceeds [`MAX`](Self::MAX); the rest is stored elsewhere
    /// (`COUNT_CONTINUED`).
    pub const COUNT_CONTINUED: u8 = 0x80;

    fn new(count: u32, cached: bool) -> SwapMap {
        let max = u32::from(Self::MAX);
        let mut cell = count.min(max) as u8;
        if count > max {
            cell |= Self::COUNT_CONTINUED;
        }
        if cached {
            cell |= Self::HAS_CACHE;
        }
        SwapMap(cell)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Number of entries that refer to the slot; plus 1 while a swap-out is writing to the slot.
    count: u32,
    cache: Option<FrameId>,
    /// The cached page has been unmapped. Linux keeps such a page in the cache until memory is
    /// reclaimed. Here the page's frame is freed, and only the fact that `HAS_CACHE` is set is
    /// recorded.
    unmapped_in_cache: bool,
}

#[derive(Debug, Default)]
struct Map {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Maps each frame in the swap cache to its slot.
    cached: SortedMap<FrameId, SwapId>,
}

impl Map {
    fn slot(&mut self, id: SwapId) -> &mut Slot {
        &mut self.slots[id.0 as usize]
    }

    fn allocate(&mut self, limit: u32) -> Result<SwapId, Errno> {
        if let Some(free) = self.free.pop() {
            return Ok(SwapId(free));
        }
        if self.slots.len() >= limit as usize {
            return Err(Errno::ENOSPC);
        }
        self.slots.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        // Reserves space in the free list, so that freeing the slot cannot fail.
        self.free
            .try_reserve(self.slots.len() + 1)
            .map_err(|_| Errno::ENOMEM)?;
        self.slots.push(Slot::default());
        Ok(SwapId(self.slots.len() as u32 - 1))
    }
}

/// The swap device of a machine, except for its data, which the platform stores.
#[derive(Debug, Default)]
pub(crate) struct Swap {
    map: SpinLock<Map>,
}

/// The result of a swap-cache lookup.
#[derive(Debug)]
pub(crate) enum Cached {
    /// The page is in this frame, whose map count the lookup has incremented for the caller.
    Frame(FrameId),
    /// The page is being migrated from this frame.
    Migrating(FrameId),
    /// The page is not in the cache.
    No,
}

/// Whether entries still refer to a swap slot after one reference has been released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// No entry refers to the slot, so the page belongs only to the caller.
    None,
    /// Other entries still refer to the slot.
    Others,
}

impl Swap {
    /// Returns the memory of the map of slots to the allocator, if no slot is in use.
    pub(crate) fn shrink(&mut self) {
        let mut map = self.map.lock();
        if map.free.len() == map.slots.len() {
            *map = Map::default();
        }
    }

    /// Increments a slot's count.
    pub(super) fn dup(&self, id: SwapId) {
        self.map.lock().slot(id).count += 1;
    }

    /// Decrements a slot's count, and frees the slot if the count becomes 0.
    pub(crate) fn put<E: Environment>(&self, space: &Space<E>, id: SwapId) -> Left {
        let mut map = self.map.lock();
        Self::put_locked(&mut map, space, id)
    }

    fn put_locked<E: Environment>(map: &mut Map, space: &Space<E>, id: SwapId) -> Left {
        let slot = map.slot(id);
        slot.count -= 1;
        if slot.count != 0 {
            return Left::Others;
        }
        let freed = core::mem::take(slot);
        if let Some(frame) = freed.cache {
            map.cached.remove(frame);
            space.frame(frame).unmark(Mark::SwapCache);
        }
        space.platform.swap_free(id);
        map.free.push(id.0);
        Left::None
    }

    /// Looks up the cached frame of a slot.
    pub(crate) fn lookup<E: Environment>(&self, space: &Space<E>, id: SwapId) -> Cached {
        let mut map = self.map.lock();
        let Some(frame) = map.slot(id).cache else {
            return Cached::No;
        };
        let there = space.frame(frame);
        if there.is_migrating() {
            Cached::Migrating(frame)
        } else if there.map_unless_gone() {
            Cached::Frame(frame)
        } else {
            Cached::No
        }
    }

    /// Fills the new `frame` with the data in a slot, and decrements the slot's count.
    ///
    /// Returns `None` and changes nothing if a mapped frame already contains the page.
    ///
    /// # Errors
    /// ENOMEM, or the platform's error if the data cannot be read; nothing has changed.
    pub(crate) fn fill<E: Environment>(
        &self,
        space: &Space<E>,
        id: SwapId,
        frame: FrameId,
    ) -> Result<Option<Left>, Errno> {
        let mut map = self.map.lock();
        let old = map.slot(id).cache;
        if old.is_some_and(|old| space.frame(old).mapcount() != 0) {
            return Ok(None);
        }
        let others = map.slot(id).count > 1;
        if others {
            map.cached.reserve(1)?;
        }
        space.platform.swap_in(frame, id)?;
        if others {
            Self::cache(&mut map, space, id, frame)?;
            if let Some(old) = old {
                map.cached.remove(old);
            }
        }
        Ok(Some(Self::put_locked(&mut map, space, id)))
    }

    fn cache<E: Environment>(
        map: &mut Map,
        space: &Space<E>,
        id: SwapId,
        frame: FrameId,
    ) -> Result<(), Errno> {
        map.cached.insert(frame, id)?;
        let slot = map.slot(id);
        slot.cache = Some(frame);
        slot.unmapped_in_cache = false;
        space.frame(frame).mark(Mark::SwapCache);
        Ok(())
    }

    /// Removes a frame that is no longer mapped from the swap cache.
    #[cold]
    pub(super) fn forget_frame<E: Environment>(&self, space: &Space<E>, frame: FrameId) {
        if !space.frame(frame).is_swap_cache() {
            return;
        }
        let mut map = self.map.lock();
        if let Some(id) = map.cached.remove(frame) {
            let slot = map.slot(id);
            if slot.cache == Some(frame) {
                slot.cache = None;
                slot.unmapped_in_cache = true;
            }
        }
    }

    /// Returns the number of entries that refer to a cached frame's slot; 0 if there is no slot.
    #[doc(alias = "page_swapcount")]
    pub(super) fn count_of_frame(&self, frame: FrameId) -> u32 {
        let mut map = self.map.lock();
        match map.cached.get(frame).copied() {
            Some(id) => map.slot(id).count,
            None => 0,
        }
    }

    /// Returns the swap-map entry for a slot.
    fn look(&self, id: SwapId) -> SwapMap {
        let mut map = self.map.lock();
        let slot = map.slot(id);
        SwapMap::new(slot.count, slot.cache.is_some() || slot.unmapped_in_cache)
    }

    /// Returns the slot of `frame`, or allocates one; adds 1 to the slot's count for the swap-out.
    fn take<E: Environment>(&self, space: &Space<E>, frame: FrameId) -> Result<SwapId, Errno> {
        let mut map = self.map.lock();
        let id = match map.cached.get(frame).copied() {
            Some(id) => id,
            None => {
                map.cached.reserve(1)?;
                let id = map.allocate(space.system.swap_slots)?;
                Self::cache(&mut map, space, id, frame)?;
                id
            }
        };
        map.slot(id).count += 1;
        Ok(id)
    }

    /// If no entry maps a locked frame, removes the frame from the swap cache and returns true.
    fn uncache_unmapped<E: Environment>(
        &self,
        space: &Space<E>,
        id: SwapId,
        frame: FrameId,
    ) -> bool {
        let mut map = self.map.lock();
        let alone = space.frame(frame).mapcount() == 1;
        if alone && map.slot(id).cache == Some(frame) {
            map.slot(id).cache = None;
            map.cached.remove(frame);
            space.frame(frame).unmark(Mark::SwapCache);
        }
        alone
    }

    /// Transfers the swap-cache entry of frame `from` to frame `to`.
    pub(super) fn migrate<E: Environment>(&self, space: &Space<E>, from: FrameId, to: FrameId) {
        let mut map = self.map.lock();
        if let Some(id) = map.cached.get(from).copied() {
            map.cached.rename(from, to);
            map.slot(id).cache = Some(to);
            space.frame(from).unmark(Mark::SwapCache);
            space.frame(to).mark(Mark::SwapCache);
        }
    }

    /// Returns the slots in use with their counts and cached frames, for validation.
    pub(crate) fn in_use(&self) -> Vec<(SwapId, u32, Option<FrameId>)> {
        let map = self.map.lock();
        let all = map.slots.iter().enumerate();
        all.filter(|(_, slot)| slot.count != 0)
            .map(|(at, slot)| (SwapId(at as u32), slot.count, slot.cache))
            .collect()
    }
}

impl<E: Environment> Space<E> {
    /// Returns the swap-map entry for a slot to which a page-table entry refers.
    ///
    /// [`swap_out`](Self::swap_out) has an example.
    pub fn swap_map(&self, id: SwapId) -> SwapMap {
        self.swap.look(id)
    }

    /// Returns the number of swap slots in use.
    pub fn swap_slots_in_use(&self) -> usize {
        self.swap.in_use().len()
    }

    /// Swaps out the page in `frame`; first splits any huge page that contains the frame.
    ///
    /// # Errors
    /// As [`swap_out`](Self::swap_out), except for its checks of the mapping. Returns the
    /// platform's error if the platform cannot store the page; the page then stays mapped.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let system = System { swap: true, ..System::default() };
    /// # let space = Space::new(Policy::LINUX, system);
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    /// space.fault(mm, at, Access::Write)?;
    /// space.fork(mm)?;
    /// let frame = space.with_mapped(mm, at, |page| page.entry.frame())?.expect("present");
    /// let slot = space.swap_out_frame(frame)?;
    /// assert_eq!(space.swap_map(slot).0, 2, "the entries of both processes refer to the slot");
    /// assert_eq!(space.swap_out_frame(frame), Err(Errno::EINVAL), "it is not in use any more");
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "pageout")]
    pub fn swap_out_frame(&self, frame: FrameId) -> Result<SwapId, Errno> {
        if !self.system.swap {
            return Err(Errno::EINVAL);
        }
        let locked = self.frame_lock(frame)?;
        self.swap_out_locked(locked, &mut |_| Some(()))
    }

    /// Swaps out the page in a locked frame, then unlocks the frame.
    ///
    /// `allow` is called before each mapping is replaced. If it returns `None`, the mapping stays;
    /// otherwise the value it returns is held until the mapping has been replaced.
    ///
    /// # Errors
    /// EAGAIN if a mapping stays, or the page was mapped again during the call; ENOSPC if the device
    /// is full; ENOMEM.
    #[doc(alias = "try_to_unmap")]
    pub(crate) fn swap_out_locked<G>(
        &self,
        locked: LockedFrame,
        allow: &mut dyn FnMut(Mapping) -> Option<G>,
    ) -> Result<SwapId, Errno> {
        let frame = locked.0;
        let slot = match self.swap.take(self, frame) {
            Ok(slot) => slot,
            Err(error) => {
                self.frame_unlock(locked);
                return Err(error);
            }
        };
        // A write to a locked frame that is mapped read-only copies the page, so the bytes are stable.
        self.rmap_change(frame, &mut |table, mapping, entry| {
            let old = core::mem::replace(entry, entry.write_protected());
            if *entry != old {
                self.restrict_flush(table, VmRange::page(mapping.addr), READ_ONLY);
            }
        });
        if let Err(error) = self.platform.swap_out(slot, frame) {
            self.swap.put(self, slot);
            self.frame_unlock(locked);
            return Err(error);
        }
        let mut refused = false;
        // A concurrent fork may copy an entry to an address that the walk has already passed.
        for _ in 0..WALKS {
            self.rmap_change(frame, &mut |table, mapping, entry| {
                let Some(_allowed) = allow(mapping) else {
                    refused = true;
                    return;
                };
                let old = core::mem::replace(entry, Pte::Swap { slot });
                self.swap.dup(slot);
                self.entry_clear(table, mapping.addr, old);
            });
            if refused || self.frame(frame).mapcount() == 1 {
                break;
            }
        }
        let out = self.swap.uncache_unmapped(self, slot, frame);
        self.finish_swap_out(locked, slot, out)
    }

    fn finish_swap_out(
        &self,
        locked: LockedFrame,
        slot: SwapId,
        out: bool,
    ) -> Result<SwapId, Errno> {
        self.frame_unlock(locked);
        let left = self.swap.put(self, slot);
        match (out, left) {
            (true, Left::Others) => Ok(slot),
            // Every mapping of the page was removed during the call, a mapping stays, or the page
            // was mapped again.
            (true, Left::None) | (false, _) => Err(Errno::EAGAIN),
        }
    }

    /// True if the only entry that maps a frame may be made writable, given the frame's flags.
    #[cold]
    pub(crate) fn may_reuse_marked(&self, frame: FrameId) -> bool {
        let there = self.frame(frame);
        if there.is_ksm() || there.is_migrating() {
            return false;
        }
        // A slot that still exists has entries that need the page's content unchanged.
        !there.is_swap_cache()
    }
}
