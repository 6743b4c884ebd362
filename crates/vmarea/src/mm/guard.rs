//! The guards of `mmap_lock`: what a thread may do with an address space while it holds the lock.
//!
//! Operations that both guards allow are methods of [`MmapGuard`]; operations that need the lock
//! for writing are methods of [`MmapWriteGuard`].
//!
//! If the address space is divided ([`Writers`]), a guard holds either all parts or one. A guard of
//! one part sees the VMAs of that part only, and its own copy of the state (`parts`). The two have
//! different types, so a call in one part does the same work as in an address space that is not
//! divided.

use super::file_uses::FileUses;
use super::parts::{self, Growth, Part};
use super::{Index, Mm, MmState};
use crate::Space;
use crate::page::{PageTable, PageTables};
use crate::types::platform::{Environment, Standard};
use crate::types::writers::{Token, WriteToken, Writers};
use crate::types::{AnonVmaId, MmId, PAGE_SIZE, VmRange, VmaId};
use crate::vma::merge::CallKind;
use crate::vma::{Vma, VmaBody, VmaView};
use alloc::vec::Vec;
use vmarea_sync::{Key, Nesting, OutOfMemory, WriteGuard};

/// `mmap_lock` of one mm, held for reading or for writing.
///
/// ```
/// # use vmarea::prelude::*;
/// # let space = Space::new(Policy::LINUX, System::default());
/// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
/// # let mm = space.mm_create(layout, Limits::default())?;
/// let at = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
/// space.mprotect(mm, at, PAGE_SIZE, Prot::READ, None)?;
/// space.fault(mm, at + PAGE_SIZE, Access::Write)?;
///
/// let guard = space.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
/// let range = VmRange::new(at, at + 2 * PAGE_SIZE);
/// assert!(guard.is_covered(range));
/// assert_eq!(guard.vmas_in(range).count(), 2);
/// // Like Linux's function, `find_vma` may return a VMA above the address.
/// let first = guard.find_vma(at - 1).expect("the lower one");
/// assert_eq!((first.range.start, guard.vma_lookup(at - 1)), (at, None));
/// let written = guard.vma_lookup(at + PAGE_SIZE).expect("mapped");
/// assert_eq!(Some(guard.chain(written.id)), written.anon_vma.map(|own| vec![own]));
/// # Ok::<(), Errno>(())
/// ```
#[derive(Debug)]
pub struct MmapGuard<'s, E: Environment, T: Token<'s, E::Wait>> {
    pub(crate) space: &'s Space<E>,
    pub(crate) mm: &'s Mm<E>,
    pub(crate) id: MmId,
    /// The kind of call to which merges are attributed in the statistics.
    pub(crate) call: CallKind,
    /// The part, if only one is held.
    only: T::Only<&'s Part>,
    pub(crate) token: T,
    /// Dropped after `token`, so that the platform learns of released files outside of the lock.
    pub(crate) files: FileUses<'s, E>,
}

/// `mmap_lock` of one mm, held for reading.
pub type MmapReadGuard<'s, E = Standard> =
    MmapGuard<'s, E, <<E as Environment>::Writers as Writers>::Read<'s, <E as Environment>::Wait>>;

/// `mmap_lock` of one mm, held for writing.
pub type MmapWriteGuard<'s, E = Standard> =
    MmapGuard<'s, E, <<E as Environment>::Writers as Writers>::Write<'s, <E as Environment>::Wait>>;

/// One part of a divided address space, held for reading.
pub(crate) type PartReadGuard<'s, E> = MmapGuard<
    's,
    E,
    <<E as Environment>::Writers as Writers>::ReadPart<'s, <E as Environment>::Wait>,
>;

/// One part of a divided address space, held for writing.
pub(crate) type PartWriteGuard<'s, E> = MmapGuard<
    's,
    E,
    <<E as Environment>::Writers as Writers>::WritePart<'s, <E as Environment>::Wait>,
>;

impl<E: Environment> Space<E> {
    /// Takes an address space's `mmap_lock` for writing; `None` if the mm no longer exists.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let guard = space.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
    /// // All other calls in this address space wait until the guard is dropped.
    /// assert_eq!(guard.state().map_count, 0);
    /// drop(guard);
    /// space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn mmap_write_lock(&self, id: MmId) -> Option<MmapWriteGuard<'_, E>> {
        self.write_all(id, Nesting::First)
    }

    /// Takes `mmap_lock` of a fork's child for writing, while the parent's `mmap_lock` is held.
    pub(crate) fn mmap_write_lock_nested(&self, id: MmId) -> Option<MmapWriteGuard<'_, E>> {
        self.write_all(id, Nesting::Nested)
    }

    /// Takes an address space's `mmap_lock` for reading; `None` if the mm no longer exists.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
    /// space.fault(mm, at, Access::Write)?;
    /// // While the guard exists, no call changes the mappings.
    /// let guard = space.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
    /// let vma = guard.vma_lookup(at).expect("mapped");
    /// assert_eq!(guard.state().total_vm, vma.range.pages());
    /// assert!(guard.pages().get(at).frame().is_some());
    /// assert!(guard.pages().get(at + PAGE_SIZE).frame().is_none());
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn mmap_read_lock(&self, id: MmId) -> Option<MmapReadGuard<'_, E>> {
        self.read_all(id, Nesting::First)
    }

    /// Takes a second `mmap_lock` for reading; the mm that is already locked must have a lower id.
    pub(crate) fn mmap_read_lock_nested(&self, id: MmId) -> Option<MmapReadGuard<'_, E>> {
        self.read_all(id, Nesting::Nested)
    }

    /// Takes the part that a call needs if it changes only mappings in `range`; `None` if the range,
    /// with the neighbours that the call may read, is not in one part, or this part has not enough
    /// room.
    #[inline(always)]
    pub(crate) fn write_part_around(
        &self,
        id: MmId,
        range: VmRange,
        growth: Growth,
    ) -> Option<PartWriteGuard<'_, E>> {
        self.write_part(id, self.part_around(range)?, growth)
    }

    /// Returns the part that contains a range and the addresses that a call on this range may read:
    /// the neighbours, and above the range the guard gap of a stack.
    #[inline]
    pub(crate) fn part_around(&self, range: VmRange) -> Option<usize> {
        if E::Writers::PARTS == 0 {
            return None;
        }
        let below = range.start.saturating_sub(1);
        let gap = self.system.stack_guard_gap + PAGE_SIZE;
        let last = range.end.saturating_add(gap - 1);
        E::Writers::part_of_both(below, last)
    }

    /// Takes one part for writing; `None` if the part is not in use or has no room, if a VMA
    /// crosses or touches its ends, or if the mm no longer exists.
    #[inline(always)]
    pub(crate) fn write_part(
        &self,
        id: MmId,
        part: usize,
        growth: Growth,
    ) -> Option<PartWriteGuard<'_, E>> {
        let mm = self.mms.get(id.0).filter(|_| id.0.is_valid())?;
        let mut token = E::Writers::write_part(&mm.mmap_lock, part)?;
        self.mms.get(id.0)?;
        let own = &mm.parts.as_ref()[part];
        let state = own.state.get_mut(token.whole_mut());
        state.counted = true;
        if own.crossings() > 0 || !state.take_room(growth) {
            return None;
        }
        Some(self.guard(mm, id, token))
    }

    /// Takes the part with the VMA at `addr`, if no VMA crosses or touches the ends of this part.
    pub(crate) fn read_part_at(&self, id: MmId, addr: u64) -> Option<PartReadGuard<'_, E>> {
        if E::Writers::PARTS == 0 {
            return None;
        }
        let mm = self.mms.get(id.0).filter(|_| id.0.is_valid())?;
        let token = E::Writers::read_part(&mm.mmap_lock, E::Writers::part_of(addr))?;
        let r = self.guard(mm, id, token);
        self.mms.get(id.0)?;
        let alone = r.only_part().is_some_and(|own| own.crossings() == 0);
        (alone && r.index().get(addr).is_some()).then_some(r)
    }

    #[inline]
    fn guard<'s, T: Token<'s, E::Wait>>(
        &'s self,
        mm: &'s Mm<E>,
        id: MmId,
        token: T,
    ) -> MmapGuard<'s, E, T> {
        MmapGuard {
            space: self,
            mm,
            id,
            call: CallKind::Other,
            only: token.map_only(|part| &mm.parts.as_ref()[part]),
            token,
            files: FileUses::none(self),
        }
    }

    fn write_all(&self, id: MmId, nesting: Nesting) -> Option<MmapWriteGuard<'_, E>> {
        let mm = self.mms.get(id.0).filter(|_| id.0.is_valid())?;
        let mut token = E::Writers::write_all(&mm.mmap_lock, nesting);
        // The address space may have ended, and its slot been reused, during the wait.
        self.mms.get(id.0)?;
        settle(mm, &mut token, false);
        Some(self.guard(mm, id, token))
    }

    fn read_all(&self, id: MmId, nesting: Nesting) -> Option<MmapReadGuard<'_, E>> {
        let mm = self.mms.get(id.0).filter(|_| id.0.is_valid())?;
        let token = match E::Writers::PARTS {
            0 => E::Writers::read_all(&mm.mmap_lock, nesting),
            _ => {
                let mut token = E::Writers::write_all(&mm.mmap_lock, nesting);
                self.mms.get(id.0)?;
                settle(mm, &mut token, true);
                renew(self, mm, &mut token);
                E::Writers::downgrade(token)
            }
        };
        self.mms.get(id.0)?;
        Some(self.guard(mm, id, token))
    }
}

/// Adds to the state of the whole what each part has counted, with the statistics if they are
/// needed now.
#[inline]
fn settle<'s, E: Environment>(
    mm: &'s Mm<E>,
    token: &mut impl Token<'s, E::Wait>,
    with_stats: bool,
) {
    if E::Writers::PARTS == 0 {
        return;
    }
    let Some((whole, parts)) = token.all_mut() else {
        return;
    };
    let whole = mm.state.get_mut(whole);
    for (part, guard) in mm.parts.as_ref().iter().zip(parts) {
        if let Some(guard) = guard {
            let part = part.state.get_mut(guard);
            part.settle(whole);
            if with_stats {
                part.settle_stats(whole);
            }
        }
    }
}

/// Gives each part in use a new copy of the state of the whole, if all parts are held for writing.
fn renew<'s, E: Environment>(space: &Space<E>, mm: &'s Mm<E>, token: &mut impl Token<'s, E::Wait>) {
    let Some((whole, parts)) = token.all_mut() else {
        return;
    };
    let active = parts.iter().flatten().count() as u32;
    if active == 0 {
        return;
    }
    let whole = mm.state.get(&*whole);
    let room = parts::room(whole, &space.system, active);
    for (part, guard) in mm.parts.as_ref().iter().zip(parts) {
        if let Some(guard) = guard {
            part.state.get_mut(guard).renew(whole, &room);
        }
    }
}

impl<'s, E: Environment, T: Token<'s, E::Wait>> Drop for MmapGuard<'s, E, T> {
    #[inline]
    fn drop(&mut self) {
        self.files.settle();
        if T::Seen::PARTS > 0 {
            renew(self.space, self.mm, &mut self.token);
        }
    }
}

impl<'s, E: Environment, T: Token<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Returns the counters, layout and limits.
    #[inline]
    pub fn state(&self) -> &MmState {
        match self.only_part() {
            None => self.mm.state.get(self.token.whole()),
            Some(own) => &own.state.get(self.token.whole()).state,
        }
    }

    /// Returns the part that this guard holds, if it does not hold all.
    #[inline]
    pub(super) fn only_part(&self) -> Option<&'s Part> {
        T::only(self.only)
    }

    /// Returns the addresses of the part that this guard holds, if it does not hold all.
    pub(crate) fn only_bounds(&self) -> Option<VmRange> {
        T::only(self.token.map_only(E::Writers::bounds))
    }

    /// Returns the index of the VMAs that this guard holds.
    #[inline]
    pub(crate) fn index(&self) -> Index<'s, T::Seen> {
        match self.only_part() {
            None => Index::new(&self.mm.tree, self.mm.parts.as_ref(), self.active()),
            Some(own) => Index::new(&own.tree, &[], 0),
        }
    }

    #[inline]
    fn active(&self) -> u64 {
        E::Writers::active(&self.mm.mmap_lock)
    }

    /// Returns the body of a VMA.
    #[inline]
    pub(crate) fn body(&self, id: VmaId) -> &VmaBody {
        let vma = self.space.vma(id);
        let part = T::Seen::part_of(vma.start());
        vma.body.get(self.token.part(part))
    }

    /// Returns the current state of a VMA.
    #[inline(always)]
    pub(crate) fn view(&self, id: VmaId) -> VmaView {
        let vma = self.space.vma(id);
        let part = T::Seen::part_of(vma.start());
        vma.view(id, vma.body.get(self.token.part(part)))
    }

    /// Returns every VMA, in address order.
    pub fn vmas(&self) -> impl Iterator<Item = VmaView> + '_ {
        self.vmas_in(VmRange::new(0, u64::MAX))
    }

    /// Returns the VMAs that overlap `range`, in address order.
    pub fn vmas_in(&self, range: VmRange) -> impl Iterator<Item = VmaView> + '_ {
        let mut at = range.start;
        core::iter::from_fn(move || {
            let vma = self.find(at).filter(|v| v.range.start < range.end)?;
            at = vma.range.end;
            Some(vma)
        })
    }

    /// Returns the anon_vmas of a VMA in this address space, oldest first, beginning with the root.
    ///
    /// The list is empty for a VMA in another address space and for a VMA that no longer exists.
    #[doc(alias = "anon_vma_chain")]
    pub fn chain(&self, vma: VmaId) -> Vec<AnonVmaId> {
        let ours = self.space.vmas.get(vma.0);
        let ours = ours.filter(|vma| vma.is_of(self.id));
        ours.map_or_else(Vec::new, |vma| {
            vma.chain.lock().iter().map(|link| link.anon_vma).collect()
        })
    }

    /// Returns the page table.
    pub fn pages(&self) -> &PageTable {
        &self.mm.pages
    }

    /// Returns a handle to query and modify ranges of the page table.
    pub fn page_tables(&self) -> PageTables<'s, E> {
        self.space.page_tables(&self.mm.pages)
    }
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Returns the counters, layout and limits for modification.
    #[inline]
    pub(crate) fn state_mut(&mut self) -> &mut MmState {
        match self.only_part() {
            None => self.mm.state.get_mut(self.token.whole_mut()),
            Some(own) => &mut own.state.get_mut(self.token.whole_mut()).state,
        }
    }

    /// Takes more room in the only part; false if the call could exceed the limits.
    pub(crate) fn take_room(&mut self, growth: Growth) -> bool {
        let own = self.only_part();
        own.is_some_and(|own| own.state.get_mut(self.token.whole_mut()).take_room(growth))
    }

    /// Returns the guard of the lock that owns a VMA that starts at `addr`.
    #[inline]
    pub(crate) fn guard_at(&mut self, addr: u64) -> &mut WriteGuard<'s, E::Wait> {
        self.token.part_mut(T::Seen::part_of(addr))
    }

    /// Waits until no fault holds the VMA's lock, then write-locks the VMA until this guard is
    /// dropped.
    ///
    /// This method must be called before the VMA's range, body or pages change.
    #[doc(alias = "vma_start_write")]
    #[inline]
    pub(crate) fn start_write(&mut self, id: VmaId) {
        let vma = self.space.vma(id);
        vma.body.start_write(self.guard_at(vma.start()));
    }

    /// Returns a VMA's body (everything but range, page offset and anon_vma) for modification.
    pub(crate) fn body_mut(&mut self, id: VmaId) -> &mut VmaBody {
        let vma = self.space.vma(id);
        let guard = self.guard_at(vma.start());
        vma.body.start_write(guard);
        vma.body.get_mut(guard)
    }

    /// Puts the part that contains `addr` to use, so that a VMA can start there.
    #[inline]
    pub(crate) fn put_to_use(&mut self, addr: u64) {
        if T::Seen::PARTS > 0 {
            self.guard_at(addr);
        }
    }

    /// Reserves memory in the index for `changes` insertions, also for a VMA that starts at `addr`.
    #[inline]
    pub(crate) fn reserve_in_index(
        &mut self,
        changes: usize,
        addr: u64,
    ) -> Result<(), OutOfMemory> {
        self.put_to_use(addr);
        self.index().reserve(changes)
    }

    /// Makes the lock of another part the owner of a VMA whose start is about to move there.
    #[inline]
    pub(crate) fn rehome(&mut self, vma: &Vma<E>, from: u64, to: u64) {
        if T::Seen::part_of(from) == T::Seen::part_of(to) {
            return;
        }
        vma.body.detach(self.guard_at(from));
        vma.body.release(self.guard_at(from));
        vma.body.claim(self.guard_at(to));
        vma.body.attach(self.guard_at(to));
    }

    /// Takes a slot for a VMA that starts at `addr`, from the lane of its part.
    #[inline]
    pub(crate) fn vma_slot(&self, addr: u64) -> Result<Key, OutOfMemory> {
        match E::Writers::PARTS {
            0 => self.space.vmas.insert(),
            _ => self.space.vmas.insert_in(self.lane(addr)),
        }
    }

    /// Frees the slot of a VMA that started at `addr`.
    #[inline]
    pub(crate) fn free_vma_slot(&self, id: VmaId, addr: u64) {
        match E::Writers::PARTS {
            0 => self.space.vmas.remove(id.0),
            _ => self.space.vmas.remove_in(id.0, self.lane(addr)),
        };
    }

    /// Returns the lane of slots for VMAs that start in the part with `addr`. The same part of
    /// another address space has another lane, because exact placement fills the same part in each. Nearby parts
    /// of address spaces with adjacent numbers have different lanes, too.
    #[inline]
    fn lane(&self, addr: u64) -> usize {
        let only = T::only(self.token.map_only(|part| part));
        let part = only.unwrap_or_else(|| E::Writers::part_of(addr));
        part + 11 * self.id.0.index() as usize
    }

    /// Puts all parts out of use, at the end of the address space.
    pub(crate) fn forget_parts(&mut self) {
        if let Some((_, parts)) = self.token.all_mut() {
            for (part, guard) in self.mm.parts.as_ref().iter().zip(parts) {
                if let Some(guard) = guard {
                    *part.state.get_mut(guard) = parts::PartState::default();
                }
            }
        }
        self.token.deactivate();
    }
}
