//! Carries out a merge plan, completely or not at all.
//!
//! Every step that can fail comes first: cloning the chain for the target, and reserving memory in
//! the tree. Then the ranges change, and VMAs that have been merged into others are removed.
//!
//! # Linux
//! `mm/vma.c` 6.18: `commit_merge`, `dup_anon_vma`, `vma_complete`, `anon_vma_merge`.

use super::MmapGuard;
use crate::lookup::Change;
use crate::page::{Kept, Owner};
use crate::policy::AdjustLock;
use crate::rmap::root_locks::AnonVmaRootLocks;
use crate::types::platform::Environment;
use crate::types::writers::{WriteToken, Writers};
use crate::types::{AnonVmaId, Errno, FrameId, PageOffsets, Pgoff, VmFlags, VmRange, VmaId};
use crate::vma::chain::Left;
use crate::vma::merge::{GivenUp, Plan};
use crate::vma::{Vma, VmaView};
use alloc::vec::Vec;
use smallvec::SmallVec;
use vmarea_range_tree::Entry;

/// Page ranges that change owner, each with the old and the new owner; at most one range per VMA.
pub(crate) type Changes = SmallVec<[(VmRange, (Owner, Owner)); 3]>;

/// The VMAs that a plan removes.
type Removed<'s, E> = [Option<(VmaId, &'s Vma<E>)>; 2];

/// Other VMAs in the new bounds of a VMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Others {
    /// There are none.
    None,
    /// The VMA takes their place in the map; they are detached. Their intervals in the interval
    /// trees ended at or below `limit`, and so can the VMA's.
    Absorbed { limit: u64 },
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Carries out the plan. The target gets `flags`, plus the sticky flags of every merged VMA.
    ///
    /// # Errors
    /// The reason why the merge had to be given up; nothing has changed then.
    pub(crate) fn commit(&mut self, plan: &Plan, mut flags: VmFlags) -> Result<VmaId, GivenUp> {
        let space = self.space;
        let target = space.vma(plan.target);
        let removed = plan.remove.map(|id| id.map(|id| (id, space.vma(id))));
        let sticky = space.policy.sticky();
        for vma in removed
            .iter()
            .flatten()
            .map(|(_, vma)| *vma)
            .chain([target])
        {
            let guard = self.guard_at(vma.start());
            vma.body.start_write(guard);
            flags |= vma.body.get_mut(guard).flags & sticky;
        }
        if let Some((id, range)) = plan.shrink {
            self.start_write(id);
            self.put_to_use(range.start);
        }
        let mut spare = self.reserve_for(plan).map_err(|_| GivenUp::Memory)?;
        // Held until the end, so that a walk of the reverse map sees all pages either before or
        // after the merge.
        let mut changes = Changes::new();
        let mut root_locks = match self.lock_only_root(plan, target, &removed) {
            Some(root_locks) => root_locks,
            None => {
                // Computed before any change: if the target gets another anon_vma, its pages must
                // change too.
                changes = self.changes(plan);
                self.root_locks_of(plan)
            }
        };
        if !changes.is_empty() || !spare.is_empty() {
            let changed = self.change_pages(&changes, &mut spare);
            self.give_back(spare);
            changed?;
        }
        let left = match self.give_anon_vma(plan, &mut root_locks) {
            Ok(left) => left,
            Err(_) => {
                for (range, owners) in &changes {
                    self.page_tables().give_back_locked(*range, *owners);
                }
                return Err(GivenUp::Memory);
            }
        };
        if let Some(left) = left {
            space.unlink_left(&left, &mut root_locks);
        }
        if let Some((id, range)) = plan.shrink {
            let offsets = space.vma(id).offsets();
            self.set_range_held(id, (range, offsets), &mut root_locks);
        }
        self.take_in(plan, removed, &mut root_locks);
        target.body.get_mut(self.guard_at(target.start())).flags = flags;
        Ok(plan.target)
    }

    /// Reserves memory in the index, and the frames that copies of shared pages will need.
    #[inline(always)]
    fn reserve_for(&mut self, plan: &Plan) -> Result<Vec<FrameId>, Errno> {
        if T::Seen::PARTS > 0 {
            // A VMA whose start moves to another part is inserted there.
            self.reserve_in_index(2, plan.range.start)?;
        }
        if plan.copies == 0 {
            return Ok(Vec::new());
        }
        let survivor = plan.anon_from.and_then(|id| self.space.vma(id).anon_vma());
        self.spare_frames(survivor, plan.copies)
    }

    /// Gives the target its new bounds, and removes the VMAs that the plan removes.
    #[inline(always)]
    fn take_in(
        &mut self,
        plan: &Plan,
        removed: Removed<'s, E>,
        root_locks: &mut AnonVmaRootLocks<'s, E>,
    ) {
        let whole = (plan.range, plan.offsets);
        if self.space.lookup_observer.is_some() || plan.remove == [None; 2] {
            // The observer of lookups must see each change separately.
            for id in plan.remove.into_iter().flatten() {
                self.forget_held(id, root_locks);
            }
            self.set_range_held(plan.target, whole, root_locks);
        } else {
            let (mut limit, mut gone) = (0, 0);
            for (_, vma) in removed.into_iter().flatten() {
                limit = vma.rmap_limit().max(limit);
                vma.body.detach(self.guard_at(vma.start()));
                gone += 1;
            }
            self.state_mut().map_count -= gone;
            let others = Others::Absorbed { limit };
            self.set_range_among(plan.target, whole, others, root_locks);
            for vma in removed.into_iter().flatten() {
                self.release_vma_held(vma, root_locks);
            }
        }
    }

    /// Transfers pages to their new owners. If one page cannot be transferred, transfers all pages
    /// back.
    fn change_pages(&self, changes: &Changes, spare: &mut Vec<FrameId>) -> Result<(), Kept> {
        let tables = self.page_tables();
        for (at, (range, owners)) in changes.iter().enumerate() {
            if let Err(kept) = tables.reown_locked(*range, *owners, spare) {
                for (range, owners) in &changes[..at] {
                    tables.give_back_locked(*range, *owners);
                }
                return Err(kept);
            }
        }
        Ok(())
    }

    /// Locks the root that a plan affects, if all its VMAs with an anon_vma have the same one, and
    /// page offsets that fit the target's, so that no page changes. This is nearly always so.
    fn lock_only_root(
        &self,
        plan: &Plan,
        target: &Vma<E>,
        removed: &Removed<'s, E>,
    ) -> Option<AnonVmaRootLocks<'s, E>> {
        let space = self.space;
        let mut only = None;
        let mut is_alike = |vma: &Vma<E>| {
            let Some(anon_vma) = vma.anon_vma() else {
                return true;
            };
            let first = *only.get_or_insert(anon_vma);
            first == anon_vma && vma.offsets() == plan.offsets
        };
        let mut alone = true;
        let [one, other] = removed.map(|vma| vma.map(|(_, vma)| vma));
        let shrinks = plan.shrink.map(|(id, _)| space.vma(id));
        let is_removed = |id| plan.remove.contains(&Some(id));
        let holder = plan
            .anon_from
            .filter(|id| *id != plan.target && !is_removed(*id));
        let holder = holder.map(|id| space.vma(id));
        if !is_alike(target) {
            return None;
        }
        for vma in [one, other, shrinks, holder] {
            let Some(vma) = vma else { continue };
            alone = false;
            if !is_alike(vma) {
                return None;
            }
        }
        let stays = target.start() == plan.range.start && target.offsets() == plan.offsets;
        let mut root_locks = AnonVmaRootLocks::none();
        if let Some(only) = only.filter(|_| !alone || !stays) {
            root_locks.of(space, only);
        }
        Some(root_locks)
    }

    /// Locks the anon_vma roots that a plan affects. If the plan only moves the target's end, locks
    /// none: `set_range_held` decides later whether to lock.
    fn root_locks_of(&self, plan: &Plan) -> AnonVmaRootLocks<'s, E> {
        let space = self.space;
        let holder = plan.anon_from.filter(|id| *id != plan.target);
        let target = space.vma(plan.target);
        let [one, other] = plan.remove;
        let alone = [one, other, plan.shrink.map(|(id, _)| id), holder];
        let stays = target.start() == plan.range.start && target.offsets() == plan.offsets;
        if stays && alone == [None; 4] {
            return AnonVmaRootLocks::none();
        }
        let all = alone.into_iter().flatten().chain([plan.target]);
        space.lock_anon_vma_roots(all.filter_map(|id| space.vma(id).anon_vma()))
    }

    /// Gives the target a copy of the chain of the VMA whose anon_vma survives. Returns the
    /// target's old chain if the target had a different anon_vma; the old chain must be unlinked
    /// after the pages have changed.
    #[doc(alias = "dup_anon_vma")]
    fn give_anon_vma(
        &mut self,
        plan: &Plan,
        root_locks: &mut AnonVmaRootLocks<'s, E>,
    ) -> Result<Option<Left>, Errno> {
        let space = self.space;
        let holder = plan.anon_from.filter(|id| *id != plan.target);
        let Some(holder) = holder.map(|id| space.vma(id)) else {
            return Ok(None);
        };
        let Some(survivor) = holder.anon_vma() else {
            return Ok(None);
        };
        let target = space.vma(plan.target);
        match target.anon_vma() {
            Some(own) if own == survivor => Ok(None),
            None => space
                .anon_vma_clone((plan.target, target), holder, survivor, root_locks)
                .map(|()| None),
            // The pages of the target change as well.
            Some(_) => space
                .anon_vma_adopt((plan.target, target), holder, survivor, root_locks)
                .map(Some),
        }
    }

    /// Allocates the frames that copies of shared pages will need, before anything is changed.
    pub(crate) fn spare_frames(
        &self,
        anon_vma: Option<AnonVmaId>,
        count: u64,
    ) -> Result<Vec<FrameId>, Errno> {
        let mut frames = Vec::new();
        let Some(anon_vma) = anon_vma.filter(|_| count > 0) else {
            return Ok(frames);
        };
        frames
            .try_reserve(count as usize)
            .map_err(|_| Errno::ENOMEM)?;
        for _ in 0..count {
            match self.space.frame_alloc(anon_vma, Pgoff(0)) {
                Ok(frame) => frames.push(frame),
                Err(error) => {
                    self.give_back(frames);
                    return Err(error);
                }
            }
        }
        Ok(frames)
    }

    /// Frees spare frames that were not used.
    pub(crate) fn give_back(&self, spare: Vec<FrameId>) {
        spare
            .into_iter()
            .for_each(|frame| self.space.frame_abandon(frame));
    }

    /// Copies the pages of `vma` that another process also maps, as a write to each page would.
    pub(crate) fn unshare(&self, vma: &VmaView) -> Result<(), Errno> {
        let Some(own) = vma.anon_vma else {
            return Ok(());
        };
        let count = self.shared_pages(own, vma.range);
        let mut spare = self.spare_frames(Some(own), count)?;
        let owner = (own, vma.offsets.anon_pgoff_at(vma.range.start));
        let tables = self.page_tables();
        let changed = tables.reown(vma.range, (owner, owner), &mut spare);
        self.give_back(spare);
        changed.map_err(|_| Errno::ENOMEM)
    }

    /// Returns the ranges whose pages get a different anon_vma or page offset under the plan, each
    /// with its old and its new owner.
    pub(crate) fn changes(&self, plan: &Plan) -> Changes {
        let mut changes = SmallVec::new();
        let holder = plan.anon_from.map(|id| self.space.vma(id));
        let Some(survivor) = holder.and_then(Vma::anon_vma) else {
            return changes;
        };
        for id in plan.givers().into_iter().chain([plan.target]) {
            let vma = self.space.vma(id);
            let Some(was) = vma.anon_vma() else { continue };
            let range = VmRange::new(vma.start(), vma.end());
            let taken = range.clip(plan.range);
            let becomes = plan.offsets.anon_pgoff_at(taken.start);
            let is = vma.offsets().anon_pgoff_at(taken.start);
            if is != becomes || was != survivor {
                changes.push((taken, ((was, is), (survivor, becomes))));
            }
        }
        changes
    }

    /// Changes the bounds of a VMA, and updates the tree and the reverse map.
    pub(crate) fn set_range(&mut self, id: VmaId, range: VmRange, offsets: PageOffsets) {
        self.set_range_held(id, (range, offsets), &mut AnonVmaRootLocks::none());
    }

    /// Like [`set_range`](Self::set_range), but uses the anon_vma roots that the caller has locked,
    /// if any. If the caller has locked none, locks the VMA's root. However, no lock is taken if
    /// only the VMA's end moves, the new end is within the VMA's span in the interval trees, and
    /// the policy does not require the lock.
    #[doc(alias = "vma_adjust")]
    pub(crate) fn set_range_held(
        &mut self,
        id: VmaId,
        place: (VmRange, PageOffsets),
        root_locks: &mut AnonVmaRootLocks<'s, E>,
    ) {
        self.start_write(id);
        self.set_range_among(id, place, Others::None, root_locks);
    }

    /// Like `set_range_held`, for a VMA that is write-locked and takes in other VMAs.
    fn set_range_among(
        &mut self,
        id: VmaId,
        (range, offsets): (VmRange, PageOffsets),
        others: Others,
        root_locks: &mut AnonVmaRootLocks<'s, E>,
    ) {
        let vma = self.space.vma(id);
        let (old_start, mut limit) = (vma.start(), vma.rmap_limit());
        if let Others::Absorbed { limit: theirs } = others {
            limit = limit.max(theirs);
        }
        let unchanged = old_start == range.start && vma.end() == range.end;
        self.page_tables().split_huge_across(range.start);
        self.page_tables().split_huge_across(range.end);
        let end_alone = old_start == range.start
            && vma.offsets() == offsets
            && range.pages() <= vma.rmap_span().pages()
            && self.space.policy.adjust_lock == AdjustLock::WhenNeeded;
        let locks = !end_alone || !root_locks.is_empty();
        let guard = match vma.anon_vma() {
            Some(anon_vma) if locks => Some(root_locks.of(self.space, anon_vma)),
            _ => None,
        };
        vma.set_range(range, offsets);
        if !unchanged {
            self.rehome(vma, old_start, range.start);
            match others {
                Others::None => self.index().resize(old_start, range.start, range.end),
                Others::Absorbed { .. } => self.index().absorb(old_start, range.start, range.end),
            }
            self.lookups().note_change(|| Change::Resized {
                vma: id,
                start: old_start,
            });
        }
        let had_anon_vma = vma.anon_vma().is_some();
        if let Some(guard) = guard {
            self.space.anon_vma_moved(vma, limit, guard);
        }
        if had_anon_vma {
            let stats = &mut self.state_mut().stats;
            stats.adjusts_locked += u64::from(locks);
            stats.adjusts_unlocked += u64::from(!locks);
        }
    }

    /// Inserts a new VMA into the map.
    pub(crate) fn link(&mut self, id: VmaId) {
        let entry = self.attach(id);
        self.index().insert(entry);
        self.lookups().note_change(|| Change::Linked(id));
    }

    /// Attaches and counts a new VMA; returns the entry that the caller must put into the index.
    #[inline]
    pub(crate) fn attach(&mut self, id: VmaId) -> Entry {
        let vma = self.space.vma(id);
        let entry = Entry {
            start: vma.start(),
            end: vma.end(),
            value: id.to_bits(),
        };
        vma.body.attach(self.guard_at(entry.start));
        self.state_mut().map_count += 1;
        entry
    }

    /// Removes a VMA from the map and frees it. The pages of the VMA are left to the caller.
    pub(crate) fn forget(&mut self, id: VmaId) {
        self.forget_held(id, &mut AnonVmaRootLocks::none());
    }

    fn forget_held(&mut self, id: VmaId, root_locks: &mut AnonVmaRootLocks<'s, E>) {
        let vma = self.space.vma(id);
        self.lookups().note_change(|| Change::Unlinked {
            vma: id,
            prev: self.prev(vma.start()).map(|v| v.id),
        });
        vma.body.detach(self.guard_at(vma.start()));
        self.index().remove(vma.start());
        self.state_mut().map_count -= 1;
        self.release_vma_held((id, vma), root_locks);
    }

    /// Frees a VMA that has been removed from the map or was never inserted.
    pub(crate) fn release_vma(&mut self, id: VmaId) {
        let vma = self.space.vma(id);
        self.release_vma_held((id, vma), &mut AnonVmaRootLocks::none());
    }

    pub(crate) fn release_vma_held(
        &mut self,
        (id, vma): (VmaId, &'s Vma<E>),
        root_locks: &mut AnonVmaRootLocks<'s, E>,
    ) {
        self.space.unlink_anon_vmas(vma, root_locks);
        let start = vma.start();
        let guard = self.token.part_mut(T::Seen::part_of(start));
        self.files.count(vma.body.get_mut(guard), -1);
        vma.body.release(guard);
        vma.set_mm(None);
        self.free_vma_slot(id, start);
    }
}
