//! Swap: slots on a device, how many entries name each, and the cache of pages that are in both places.
//!
//! A page that is swapped out leaves a [`Pte::Swap`] in every mapping; nothing of its anon_vma or index
//! is kept, so that a VMA may move or merge meanwhile: the page takes both from the VMA by which it
//! comes back. While other entries still name the slot it stays in the cache, mapped in one process and
//! swapped in another, and is not written: a write copies. What a slot holds is therefore always what
//! the cached page holds. Deliberately absent: read-ahead, and choosing what to swap out.
//!
//! # Picture
//! ```text
//! swap_out   Anon ─▶ Swap in every mapping, count = entries, bytes to the device, frame freed
//! fault      no cached frame: a new one with the slot's bytes; cached while count > 0
//!            cached frame that this VMA may map: maps it too;  else a copy
//! count 0    the slot is free
//! ```
//!
//! # Invariants
//! S1  a slot's count is the number of entries that name it
//! S2  a slot's cached frame is in use, mapped, and marked `SwapCache`; no other frame is so marked
//!
//! # Locking
//! The swap map's own lock is taken under a page-table lock; the platform is called under it.
//!
//! # Linux
//! `mm/swapfile.c`, `mm/swap_state.c`, `mm/vmscan.c` `pageout`, `do_swap_page`, 6.12 (6.18 replaces the
//! map by a table). A slot whose count is 0 is freed at once, where Linux may keep the cache.

use super::entry::Pte;
use super::frame::{LockedFrame, Mark};
use crate::space::Space;
use crate::types::platform::{Environment, Platform};
use crate::types::{Errno, FrameId, MmId, PAGE_MASK, SwapId, VmFlags};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use vmarea_sync::SpinLock;

/// Attempts at unmapping a page that a fork copies at the same time.
pub(super) const WALKS: u32 = 64;

/// A cell of the swap map as Linux keeps it: a count in six bits and two flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "swap_map")]
pub struct SwapMap(pub u8);

impl SwapMap {
    /// The highest count that one cell holds (`SWAP_MAP_MAX`).
    pub const MAX: u8 = 0x3e;
    /// A frame holds the page as well (`SWAP_HAS_CACHE`).
    pub const HAS_CACHE: u8 = 0x40;
    /// The count goes on elsewhere (`COUNT_CONTINUED`).
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
    /// Entries that name it, one more while a page is being written to it.
    count: u32,
    cache: Option<FrameId>,
}

#[derive(Debug, Default)]
struct Map {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots of the frames that are in the cache.
    cached: BTreeMap<FrameId, SwapId>,
}

impl Map {
    fn slot(&mut self, id: SwapId) -> &mut Slot {
        &mut self.slots[id.0 as usize]
    }

    fn allocate(&mut self) -> Result<SwapId, Errno> {
        if let Some(free) = self.free.pop() {
            return Ok(SwapId(free));
        }
        self.slots.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        // Room for its return, so that freeing cannot fail.
        self.free
            .try_reserve(self.slots.len() + 1)
            .map_err(|_| Errno::ENOMEM)?;
        self.slots.push(Slot::default());
        Ok(SwapId(self.slots.len() as u32 - 1))
    }
}

/// The swap device of a machine, but for its bytes.
#[derive(Debug, Default)]
pub(crate) struct Swap {
    map: SpinLock<Map>,
}

/// A page that was found in the cache.
#[derive(Debug)]
pub(crate) enum Cached {
    /// The frame; the caller has been counted in its map count.
    Frame(FrameId),
    /// It is on its way to another frame.
    Migrating(FrameId),
    /// It is not there.
    No,
}

/// How many still name a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// Nobody: the page is the caller's alone.
    None,
    /// Other entries.
    Others,
}

impl Swap {
    /// One more entry names a slot.
    pub(super) fn dup(&self, id: SwapId) {
        self.map.lock().slot(id).count += 1;
    }

    /// One entry less names a slot; the last frees it.
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
        if let Some(frame) = slot.cache.take() {
            map.cached.remove(&frame);
            space.frame(frame).unmark(Mark::SwapCache);
        }
        space.platform.swap_free(id);
        map.free.push(id.0);
        Left::None
    }

    /// The frame that has the page of a slot, if one has.
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

    /// `frame`, new and mapped once, takes the bytes of a slot in place of one entry. `None`, and
    /// nothing done, where another frame has them already.
    pub(crate) fn fill<E: Environment>(
        &self,
        space: &Space<E>,
        id: SwapId,
        frame: FrameId,
    ) -> Option<Left> {
        let mut map = self.map.lock();
        let old = map.slot(id).cache;
        if old.is_some_and(|old| space.frame(old).mapcount() != 0) {
            return None;
        }
        space.platform.swap_in(frame, id);
        if map.slot(id).count > 1 {
            if let Some(old) = old {
                map.cached.remove(&old);
            }
            Self::cache(&mut map, space, id, frame);
        }
        Some(Self::put_locked(&mut map, space, id))
    }

    fn cache<E: Environment>(map: &mut Map, space: &Space<E>, id: SwapId, frame: FrameId) {
        map.slot(id).cache = Some(frame);
        map.cached.insert(frame, id);
        space.frame(frame).mark(Mark::SwapCache);
    }

    /// A marked frame is no longer mapped.
    #[cold]
    pub(super) fn forget_frame<E: Environment>(&self, space: &Space<E>, frame: FrameId) {
        if !space.frame(frame).is_swap_cache() {
            return;
        }
        let mut map = self.map.lock();
        if let Some(id) = map.cached.remove(&frame) {
            let slot = map.slot(id);
            if slot.cache == Some(frame) {
                slot.cache = None;
            }
        }
    }

    /// Entries that name the slot of a frame in the cache.
    #[doc(alias = "page_swapcount")]
    pub(super) fn count_of_frame(&self, frame: FrameId) -> u32 {
        let mut map = self.map.lock();
        match map.cached.get(&frame).copied() {
            Some(id) => map.slot(id).count,
            None => 0,
        }
    }

    /// Entries that name a slot, and the frame that has its page as well.
    pub(crate) fn look(&self, id: SwapId) -> (u32, Option<FrameId>) {
        let mut map = self.map.lock();
        let slot = map.slot(id);
        (slot.count, slot.cache)
    }

    /// A slot for `frame`, with one count for who writes it: the one that it has, or a new one.
    fn take<E: Environment>(&self, space: &Space<E>, frame: FrameId) -> Result<SwapId, Errno> {
        let mut map = self.map.lock();
        let id = match map.cached.get(&frame).copied() {
            Some(id) => id,
            None => {
                let id = map.allocate()?;
                Self::cache(&mut map, space, id, frame);
                id
            }
        };
        map.slot(id).count += 1;
        Ok(id)
    }

    /// The cache lets go of a frame that nothing but its pin maps.
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
            map.cached.remove(&frame);
            space.frame(frame).unmark(Mark::SwapCache);
        }
        alone
    }

    /// The page of a cached frame is in another frame from now on.
    pub(super) fn migrate<E: Environment>(&self, space: &Space<E>, from: FrameId, to: FrameId) {
        let mut map = self.map.lock();
        if let Some(id) = map.cached.remove(&from) {
            space.frame(from).unmark(Mark::SwapCache);
            Self::cache(&mut map, space, id, to);
        }
    }

    /// Slots in use, with their counts and frames; for validation.
    pub(crate) fn in_use(&self) -> Vec<(SwapId, u32, Option<FrameId>)> {
        let map = self.map.lock();
        let all = map.slots.iter().enumerate();
        all.filter(|(_, slot)| slot.count != 0)
            .map(|(at, slot)| (SwapId(at as u32), slot.count, slot.cache))
            .collect()
    }
}

impl<E: Environment> Space<E> {
    /// The cell of the swap map for a slot that an entry names.
    pub fn swap_map(&self, id: SwapId) -> SwapMap {
        let (count, cache) = self.swap.look(id);
        SwapMap::new(count, cache.is_some())
    }

    /// Slots of the swap device in use.
    pub fn swap_slots_in_use(&self) -> usize {
        self.swap.in_use().len()
    }

    /// Swaps out the anonymous page at `addr`, in every process that maps it.
    ///
    /// # Errors
    /// ESRCH without such an address space; EINVAL where no anonymous page is mapped there, and where
    /// the system has no swap; EPERM for a locked mapping; EBUSY where another swaps, migrates or
    /// merges the page; EAGAIN where it was mapped again meanwhile; ENOMEM.
    pub fn swap_out(&self, mm: MmId, addr: u64) -> Result<SwapId, Errno> {
        let frame = {
            let r = self.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
            let vma = r.vma_lookup(addr).ok_or(Errno::EINVAL)?;
            if vma.body.flags.contains(VmFlags::LOCKED) {
                return Err(Errno::EPERM);
            }
            match r.pages().get(addr & PAGE_MASK) {
                Pte::Migration { .. } => return Err(Errno::EBUSY),
                entry => entry.frame().ok_or(Errno::EINVAL)?,
            }
        };
        self.swap_out_frame(frame)
    }

    /// Swaps out the page in `frame`. A huge page that it is part of is cut; see
    /// [`swap_out`](Self::swap_out), but for what locked mappings say.
    #[doc(alias = "pageout")]
    pub fn swap_out_frame(&self, frame: FrameId) -> Result<SwapId, Errno> {
        if !self.system.swap {
            return Err(Errno::EINVAL);
        }
        let locked = self.frame_lock(frame)?;
        let slot = match self.swap.take(self, frame) {
            Ok(slot) => slot,
            Err(error) => {
                self.frame_unlock(locked);
                return Err(error);
            }
        };
        // A fork that is under way may copy an entry behind the walk's back.
        for _ in 0..WALKS {
            self.rmap_change(frame, &mut |table, mapping, entry| {
                let old = core::mem::replace(entry, Pte::Swap { slot });
                self.swap.dup(slot);
                self.entry_drop(table, mapping.addr, old);
            });
            if self.frame(frame).mapcount() == 1 {
                break;
            }
        }
        self.platform.swap_out(slot, frame);
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
            // Everything that mapped the page has gone meanwhile, or came back.
            (true, Left::None) | (false, _) => Err(Errno::EAGAIN),
        }
    }

    /// May the only entry that maps a marked frame be made writable? A page in the swap cache leaves it.
    #[cold]
    pub(crate) fn may_reuse_marked(&self, frame: FrameId) -> bool {
        let there = self.frame(frame);
        if there.is_ksm() || there.is_migrating() {
            return false;
        }
        // A slot that still exists has entries; in each of them the page must stay as it is.
        !there.is_swap_cache()
    }
}
