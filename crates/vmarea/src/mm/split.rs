//! Splits a VMA in two.
//!
//! # Linux
//! `mm/vma.c` 6.18: `split_vma`, `__split_vma`. `split` checks the map limit. `split_unlimited`
//! does not, so that `munmap` can release resources at the limit.

use super::MmapGuard;
use crate::refused::{Growing, Rule};
use crate::rmap::root_locks::AnonVmaRootLocks;
use crate::types::platform::Environment;
use crate::types::writers::{WriteToken, Writers};
use crate::types::{Errno, PageOffsets, VmFlags, VmRange, VmaId};
use crate::vma::{VmaBody, VmaView};
use vmarea_range_tree::Entry;

/// Which half of a split VMA becomes the new VMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewHalf {
    /// The lower half. The upper half keeps the old VMA's id.
    Below,
    /// The upper half.
    Above,
}

/// Whether the upper half of a VMA will be unmapped after a split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Upper {
    /// At least part of the upper half stays mapped.
    Stays,
    /// The caller will unmap the whole upper half.
    Goes,
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Splits `id` at `addr`, which must be strictly inside the VMA. Fails with ENOMEM if the map
    /// count limit is reached.
    #[doc(alias = "split_vma")]
    pub(crate) fn split(&mut self, id: VmaId, addr: u64, new: NewHalf) -> Result<VmaId, Errno> {
        if self.state().map_count >= self.space.system.max_map_count {
            return Err(self.refuse_mappings(Errno::ENOMEM, Growing::Part));
        }
        self.split_unlimited(id, addr, new, Upper::Stays)
    }

    /// Like [`split`](Self::split), but for `munmap`: does not check the map count limit. If the
    /// whole upper half will be unmapped, the lower half keeps the VMA's current span in the
    /// interval trees.
    #[doc(alias = "__split_vma")]
    pub(crate) fn split_unlimited(
        &mut self,
        id: VmaId,
        addr: u64,
        new: NewHalf,
        upper: Upper,
    ) -> Result<VmaId, Errno> {
        self.start_write(id);
        let old = self.view(id);
        debug_assert!(old.range.start < addr && addr < old.range.end);
        if !self.space.policy.rules.may_split(&old.body, addr) {
            return Err(self.space.refuse(Errno::EINVAL, Rule::Splits));
        }
        let old = self.prepared_early(old)?;
        let low = VmRange::new(old.range.start, addr);
        let high = VmRange::new(addr, old.range.end);
        let (kept, cut) = match new {
            NewHalf::Below => (high, low),
            NewHalf::Above => (low, high),
        };
        self.reserve_in_index(2, addr)?;
        let new_id = self.new_vma(cut, old.offsets, old.body)?;
        let mut root_locks = AnonVmaRootLocks::none();
        if let Some(anon_vma) = old.anon_vma {
            let (space, vma) = (self.space, self.space.vma(id));
            let limit = vma.rmap_limit();
            let low_limit = match upper {
                Upper::Goes => limit,
                Upper::Stays => addr,
            };
            let low_span = space.rmap_span_to(low, low_limit);
            let fresh = space.vma(new_id);
            fresh.set_rmap_span(match new {
                NewHalf::Below => low_span,
                NewHalf::Above => space.rmap_span_to(high, limit),
            });
            let cloned = space.anon_vma_clone((new_id, fresh), vma, anon_vma, &mut root_locks);
            if let Err(error) = cloned {
                drop(root_locks);
                self.release_vma(new_id);
                return Err(error);
            }
            if new == NewHalf::Above {
                vma.set_rmap_span(low_span);
            }
        }
        self.page_tables().split_huge_across(addr);
        self.set_range_held(id, (kept, old.offsets), &mut root_locks);
        self.link(new_id);
        self.state_mut().stats.splits += 1;
        Ok(new_id)
    }

    /// Splits a VMA at both ends of `range`, which is strictly inside it, in one step. Returns false
    /// and changes nothing if the VMA has to be split at one end after the other, because a split
    /// may fail, or must be reported by itself. The VMA `range` keeps the id.
    pub(crate) fn split_both(&mut self, old: &VmaView, range: VmRange) -> bool {
        let (space, whole) = (self.space, old.range);
        debug_assert!(whole.start < range.start && range.end < whole.end);
        let rules = &space.policy.rules;
        let one_by_one = space.lookup_observer.is_some()
            || space.policy.merging.early_anon_vma && old.anon_vma.is_none()
            || self.state().map_count + 2 > space.system.max_map_count
            || T::Seen::part_of(whole.start) != T::Seen::part_of(whole.end)
            || !rules.may_split(&old.body, range.start)
            || !rules.may_split(&old.body, range.end);
        if one_by_one || self.reserve_in_index(2, range.start).is_err() {
            return false;
        }
        self.start_write(old.id);
        let (low, high) = (
            VmRange::new(whole.start, range.start),
            VmRange::new(range.end, whole.end),
        );
        let mut root_locks = AnonVmaRootLocks::none();
        let limit = space.vma(old.id).rmap_limit();
        let Some(low_id) = self.cut_off(old, (low, low.end), &mut root_locks) else {
            return false;
        };
        let Some(high_id) = self.cut_off(old, (high, limit), &mut root_locks) else {
            drop(root_locks);
            self.release_vma(low_id);
            return false;
        };
        self.page_tables().split_huge_across(range.start);
        self.page_tables().split_huge_across(range.end);
        let vma = space.vma(old.id);
        vma.set_range(range, old.offsets);
        let entry = |id: VmaId, part: VmRange| Entry {
            start: part.start,
            end: part.end,
            value: id.to_bits(),
        };
        for id in [low_id, high_id] {
            space.vma(id).body.attach(self.guard_at(whole.start));
        }
        let parts = [
            entry(low_id, low),
            entry(old.id, range),
            entry(high_id, high),
        ];
        self.index().cut(parts);
        if let Some(anon_vma) = old.anon_vma {
            let guard = root_locks.of(space, anon_vma);
            space.anon_vma_moved(vma, range.end, guard);
        }
        let state = self.state_mut();
        state.map_count += 2;
        state.stats.splits += 2;
        state.stats.adjusts_locked += 2 * u64::from(old.anon_vma.is_some());
        true
    }

    /// Creates the VMA for the part `range` of `old`, with an interval that ends at `limit`; it is
    /// not in the map yet. `None` if there is no memory.
    fn cut_off(
        &mut self,
        old: &VmaView,
        (range, limit): (VmRange, u64),
        root_locks: &mut AnonVmaRootLocks<'s, E>,
    ) -> Option<VmaId> {
        let space = self.space;
        let new = self.new_vma(range, old.offsets, old.body);
        let id = new.ok()?;
        let Some(anon_vma) = old.anon_vma else {
            return Some(id);
        };
        let fresh = space.vma(id);
        fresh.set_rmap_span(space.rmap_span_to(range, limit));
        let source = space.vma(old.id);
        match space.anon_vma_clone((id, fresh), source, anon_vma, root_locks) {
            Ok(()) => Some(id),
            Err(_) => {
                self.release_vma_held((id, fresh), root_locks);
                None
            }
        }
    }

    /// Creates the anon_vma of a private anonymous VMA before a split, if the policy requires it.
    /// Both halves then share one anon_vma, so different anon_vmas cannot prevent a later merge.
    fn prepared_early(&mut self, old: VmaView) -> Result<VmaView, Errno> {
        let private = !old
            .body
            .flags
            .intersects(VmFlags::MAYSHARE | VmFlags::SPECIAL);
        if self.space.policy.merging.early_anon_vma
            && private
            && old.body.file.is_none()
            && old.anon_vma.is_none()
        {
            self.anon_vma_prepare(&old)?;
            return Ok(self.view(old.id));
        }
        Ok(old)
    }

    /// Allocates a VMA of this mm; the VMA is not in the map yet.
    pub(crate) fn new_vma(
        &mut self,
        range: VmRange,
        offsets: PageOffsets,
        body: VmaBody,
    ) -> Result<VmaId, Errno> {
        let id = VmaId(self.vma_slot(range.start)?);
        let vma = self.space.vma(id);
        let guard = self.guard_at(range.start);
        vma.body.claim(guard);
        *vma.body.get_mut(guard) = body;
        self.files.count(&body, 1);
        vma.set_range(range, offsets);
        vma.set_anon_vma(None);
        vma.set_mm(Some(self.id));
        Ok(id)
    }
}
