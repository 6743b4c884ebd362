//! `brk`: moves the end of the heap.
//!
//! # Errors
//! ESRCH if the address space does not exist. If the break cannot be moved, the old break is
//! returned, as in Linux.
//!
//! # Linux
//! `mm/mmap.c` `brk`, `mm/vma.c` `do_brk_flags`, 6.18. The heap can merge with the VMA before it,
//! but never with the VMA after it.

use super::unmapped_area::fits_fixed;
use crate::Space;
use crate::mm::{Growth, Layout, MmapGuard, PartWriteGuard};
use crate::refused::{Growing, Refused, Rule};
use crate::types::platform::Environment;
use crate::types::writers::WriteToken;
use crate::types::{Errno, MmId, PAGE_SIZE, PageOffsets, VmFlags, VmRange, page_align};
use crate::vma::VmaBody;
use crate::vma::merge::{CallKind, MergeScope, Proposal};

impl<E: Environment> Space<E> {
    /// Moves the break to `brk`; returns the break afterwards.
    ///
    /// # Errors
    /// See the [module](crate::syscall::brk).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// let heap = 0x1000_0000;
    /// let layout = Layout { start_brk: heap, brk: heap, ..Layout::default() };
    /// let mm = space.mm_create(layout, Limits::default())?;
    /// assert_eq!(space.brk(mm, heap + 4 * PAGE_SIZE)?, heap + 4 * PAGE_SIZE);
    /// // A break below the heap is not accepted, and neither is it an error.
    /// assert_eq!(space.brk(mm, 0)?, heap + 4 * PAGE_SIZE);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn brk(&self, mm: MmId, brk: u64) -> Result<u64, Errno> {
        let (now, populate) = match self.part_for_brk(mm, brk) {
            Some(mut w) => w.brk(brk),
            None => self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?.brk(brk),
        };
        if let Some(range) = populate {
            self.mm_populate(mm, range);
        }
        Ok(now)
    }
}

impl<E: Environment> Space<E> {
    /// Takes the part with the heap, if the heap and the new break are in one part.
    fn part_for_brk(&self, mm: MmId, brk: u64) -> Option<PartWriteGuard<'_, E>> {
        let part = self.part_around(VmRange::new(brk, page_align(brk)?))?;
        let pages = |to: u64, from: u64| to.saturating_sub(from).div_ceil(PAGE_SIZE) + 1;
        // Growth by no page suffices to read where the heap is.
        let mut w = self.write_part(mm, part, Growth { vmas: 1, pages: 0 })?;
        let layout = &w.state().layout;
        let heap = VmRange::new(layout.start_brk.min(brk), layout.brk.max(page_align(brk)?));
        let growth = Growth {
            vmas: 1,
            pages: pages(brk, layout.brk),
        };
        (self.part_around(heap) == Some(part) && w.take_room(growth)).then_some(w)
    }
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    fn brk(&mut self, brk: u64) -> (u64, Option<VmRange>) {
        let layout = self.state().layout;
        let same = (layout.brk, None);
        if brk < layout.start_brk {
            self.space.refuse(Errno::ENOMEM, Rule::AboveHeap);
            return same;
        }
        if self.data_limit_exceeded(&layout, brk) {
            self.refuse_heap(&layout, brk);
            return same;
        }
        // Linux compares the unrounded breaks: a break in the last page of the 64-bit space is
        // growth, by more than the address space holds.
        let old = page_align(layout.brk);
        let new = page_align(brk);
        let (Some(new), Some(old)) = (new, old) else {
            self.space.refuse(Errno::ENOMEM, Rule::EndFits);
            return same;
        };
        if new < old {
            let heap = VmRange::new(new, old);
            let finds = self.space.policy.rules.brk_finds_heap;
            if finds && self.intersection(heap).is_none() {
                self.refuse_unmapped(Errno::ENOMEM, new);
                return same;
            }
            if self.unmap_range(heap).is_err() {
                return same;
            }
        } else if new > old {
            let added = VmRange::new(old, new);
            if self.grow_heap(added).is_err() {
                return same;
            }
            self.state_mut().layout.brk = brk;
            let locked = self.state().def_flags.contains(VmFlags::LOCKED);
            return (brk, locked.then_some(added));
        }
        self.state_mut().layout.brk = brk;
        (brk, None)
    }

    #[doc(alias = "check_data_rlimit")]
    pub(crate) fn data_limit_exceeded(&self, layout: &Layout, brk: u64) -> bool {
        let limit = self.state().limits.data;
        limit != u64::MAX
            && brk
                .wrapping_sub(layout.start_brk)
                .saturating_add(layout.end_data.wrapping_sub(layout.start_data))
                > limit
    }

    #[cold]
    fn refuse_heap(&self, layout: &Layout, brk: u64) -> Errno {
        self.space.refuse_with(Errno::ENOMEM, || {
            let data = layout.end_data.wrapping_sub(layout.start_data);
            Refused::Data {
                asked: brk.saturating_sub(layout.brk),
                used: data.saturating_add(layout.brk.wrapping_sub(layout.start_brk)),
                limit: self.state().limits.data,
            }
        })
    }

    fn grow_heap(&mut self, added: VmRange) -> Result<(), Errno> {
        if !fits_fixed(self, added) {
            // The search has named the reason.
            return Err(Errno::ENOMEM);
        }
        let def_flags = self.state().def_flags;
        if !self.mlock_future_ok(def_flags, added.len_bytes()) {
            return Err(self.refuse_memlock(Errno::EAGAIN, added.len_bytes()));
        }
        let gap = self.space.system.stack_guard_gap;
        // Nothing is mapped above the address space, so the sums may saturate.
        let free = added.end.saturating_add(PAGE_SIZE);
        let watched = VmRange::new(added.start, free.saturating_add(gap));
        if self
            .intersection(watched)
            .is_some_and(|next| free > next.start_gap(gap))
        {
            return Err(self.refuse_growth(added.start, added.len_bytes()));
        }
        self.brk_flags(added)
    }

    #[doc(alias = "do_brk_flags")]
    fn brk_flags(&mut self, range: VmRange) -> Result<(), Errno> {
        let layout = self.state().layout;
        let mut flags = VmFlags::READ
            | VmFlags::WRITE
            | VmFlags::MAYRWX
            | VmFlags::ACCOUNT
            | self.state().def_flags;
        if layout.read_implies_exec {
            flags |= VmFlags::EXEC;
        }
        let marked_first = self.space.policy.rules.ksm_flag_first;
        if marked_first && layout.merge_any && super::mmap::is_ksm_compatible(flags) {
            flags |= VmFlags::MERGEABLE;
        }
        let pages = range.pages();
        if !self.may_expand(flags, pages) {
            return Err(self.refuse_expansion(flags, pages));
        }
        if self.state().map_count > self.space.system.max_map_count {
            return Err(self.refuse_mappings(Errno::ENOMEM, Growing::New));
        }
        self.charge(pages)?;
        let body = VmaBody {
            flags,
            ..VmaBody::default()
        };
        let proposal = Proposal::unfaulted(range, PageOffsets::ADDRESS, body);
        let scope = if self.space.policy.rules.brk_joins_next {
            MergeScope::Both
        } else {
            MergeScope::PrevOnly
        };
        self.call = CallKind::Brk;
        // A VMA that ends at the start of the heap is not part of the heap.
        let finds = self.space.policy.rules.brk_finds_heap;
        let first = finds && Some(range.start) == page_align(layout.start_brk);
        self.insert_range(&proposal, (!first).then_some(scope))
    }
}

#[cfg(test)]
mod tests {
    use crate::Space;
    use crate::fault::Access;
    use crate::mm::{Layout, Limits};
    use crate::policy::AdjustLock;
    use crate::policy::Policy;
    use crate::syscall::mmap::MmapRequest;
    use crate::types::PAGE_SIZE;
    use crate::types::System;
    use crate::types::call_flags::{MapFlags, Prot};

    /// True if moving the break up takes the lock of the heap's anon_vma.
    ///
    /// The test compares the lock's sequence counter before and after the moves.
    fn locked_by_brk(adjust_lock: AdjustLock) -> bool {
        let policy = Policy {
            adjust_lock,
            ..Policy::LINUX
        };
        let space = Space::new(policy, System::default());
        let start = 0x10_0000_0000;
        let layout = Layout {
            mmap_base: 0x7f00_0000_0000,
            start_brk: start,
            brk: start,
            ..Layout::default()
        };
        let mm = space.mm_create(layout, Limits::default()).unwrap();
        space.brk(mm, start + PAGE_SIZE).unwrap();
        space.fault(mm, start, Access::Write).unwrap();
        let heap = space.mmap_read_lock(mm).unwrap().vma_lookup(start).unwrap();
        let lock = &space.anon_vma(heap.anon_vma.unwrap()).lock;
        let before = lock.speculate().unwrap();
        for pages in 2..100 {
            let brk = start + pages * PAGE_SIZE;
            assert_eq!(space.brk(mm, brk), Ok(brk));
        }
        space.validate_all().unwrap();
        !lock.unchanged(before)
    }

    #[test]
    fn brk_takes_the_lock_only_where_it_always_does() {
        assert!(locked_by_brk(AdjustLock::Always));
        assert!(!locked_by_brk(AdjustLock::WhenNeeded));
    }

    /// A VMA that grows into the range of an unmapped neighbour must update the interval trees.
    #[test]
    fn a_vma_that_outgrows_its_reach_takes_the_lock() {
        let space = Space::new(Policy::VMAREA, System::default());
        let mm = space
            .mm_create(Layout::default(), Limits::default())
            .unwrap();
        let at = 0x10_0000_0000;
        let map = |page: u64, pages: u64| {
            let request = MmapRequest {
                addr: at + page * PAGE_SIZE,
                len: pages * PAGE_SIZE,
                prot: Prot::READ | Prot::WRITE,
                flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
                ..MmapRequest::default()
            };
            space.mmap(mm, &request).unwrap()
        };
        map(0, 1);
        map(4, 1);
        space.fault(mm, at, Access::Write).unwrap();
        let locked = || {
            let stats = space.mmap_read_lock(mm).unwrap().state().stats.clone();
            (stats.adjusts_locked, stats.adjusts_unlocked)
        };
        let (was, free) = locked();
        map(1, 2);
        assert_eq!(locked(), (was, free + 1));
        space.munmap(mm, at + 4 * PAGE_SIZE, PAGE_SIZE).unwrap();
        map(3, 3);
        assert_eq!(locked(), (was + 1, free + 1));
        space.fault(mm, at + 5 * PAGE_SIZE, Access::Write).unwrap();
        space.validate_all().unwrap();
    }
    /// A walk relies on the addresses of the pages that it finds, so the start of a VMA moves only
    /// under the lock, even if nothing else changes.
    #[test]
    fn a_vma_whose_start_moves_takes_the_lock() {
        let space = Space::new(Policy::VMAREA, System::default());
        let mm = space.mm_create(Layout::default(), Limits::default());
        let mm = mm.unwrap();
        let map = |page: u64| {
            let request = MmapRequest {
                addr: 0x10_0000_0000 + page * PAGE_SIZE,
                flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
                ..MmapRequest::anonymous(PAGE_SIZE)
            };
            space.mmap(mm, &request).unwrap()
        };
        let at = map(4);
        space.fault(mm, at, Access::Write).unwrap();
        let locked = || {
            let stats = space.mmap_read_lock(mm).unwrap().state().stats.clone();
            (stats.adjusts_locked, stats.adjusts_unlocked)
        };
        let (was, free) = locked();
        map(5);
        assert_eq!(locked(), (was, free + 1), "only the end has moved");
        map(3);
        assert_eq!(locked(), (was + 1, free + 1), "the start has moved");
        space.validate_all().unwrap();
    }
}
