//! `mremap` in place: moves the end of the VMA, but no pages.
//!
//! # Picture
//! ```text
//! shrink   VVVVVV      VVVV..      the tail is unmapped
//! grow     VVVV..NN    VVVV++NN    into a free range, and merges with the next VMA
//!          VVVVNN      the next range is in use: moves if MAYMOVE is set
//! ```
//!
//! # Linux
//! `mm/mremap.c` `mremap_at`, `expand_vma_in_place`, `mm/vma.c` `vma_merge_extend`, 6.18.

use super::context::{Remap, Resize};
use crate::mm::{MmapGuard, MmapWriteGuard};
use crate::policy::rules::CloseHook;
use crate::syscall::unmapped_area::fits_fixed;
use crate::types::call_flags::MremapFlags;
use crate::types::platform::Environment;
use crate::types::writers::WriteToken;
use crate::types::{Errno, PAGE_SHIFT, VmFlags, VmRange};
use crate::vma::VmaView;
use crate::vma::merge::{CallKind, MergeScope, Proposal};

impl<E: Environment> MmapWriteGuard<'_, E> {
    /// Resizes the mapping in place, or moves it if the new length does not fit.
    #[doc(alias = "mremap_at")]
    pub(super) fn remap_at(&mut self, r: Remap) -> Result<u64, Errno> {
        match self.resize_at(&r)? {
            Ok(()) => Ok(r.addr),
            Err(vma) if !r.flags.contains(MremapFlags::MAYMOVE) => {
                Err(self.refuse_growth(vma.range.end, r.new_len - r.old_len))
            }
            Err(vma) => self.relocate(r, &vma),
        }
    }
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Resizes the mapping in place; returns the VMA as `Err` if it cannot grow in place, and does
    /// nothing then.
    #[inline]
    pub(super) fn resize_at(&mut self, r: &Remap) -> Result<Result<(), VmaView>, Errno> {
        match r.resize() {
            Resize::Keep => return Ok(Ok(())),
            Resize::Shrink => return self.unmap_tail(r).map(Ok),
            Resize::Grow => {}
        }
        let vma = self.mapping_at(r.addr)?;
        if !self.grows_in_place(r, &vma) {
            return Ok(Err(vma));
        }
        self.expand_in_place(&vma, r.new_len - r.old_len).map(Ok)
    }

    /// True if the old range is the end of the VMA, which can grow to the new length in place.
    pub(super) fn grows_in_place(&self, r: &Remap, vma: &VmaView) -> bool {
        vma.range.end - r.addr == r.old_len && self.is_expandable(vma, r.new_len - r.old_len)
    }

    /// Unmaps the part of the old range that lies beyond the new length.
    #[doc(alias = "shrink_vma")]
    pub(super) fn unmap_tail(&mut self, r: &Remap) -> Result<(), Errno> {
        let tail = r.addr.wrapping_add(r.new_len);
        self.munmap(tail, r.old_len - r.new_len).map(drop)
    }

    #[doc(alias = "vma_expandable")]
    pub(super) fn is_expandable(&self, vma: &VmaView, delta: u64) -> bool {
        let Some(end) = vma.range.end.checked_add(delta) else {
            return false;
        };
        self.intersection(VmRange::new(vma.range.end, end))
            .is_none()
            && fits_fixed(self, VmRange::new(vma.range.start, end))
    }

    #[doc(alias = "vma_merge_extend")]
    pub(super) fn expand_in_place(&mut self, vma: &VmaView, delta: u64) -> Result<(), Errno> {
        let pages = delta >> PAGE_SHIFT;
        let proposal = Proposal {
            range: VmRange::new(vma.range.end, vma.range.end + delta),
            offsets: vma.offsets,
            body: vma.body,
            anon_vma: vma.anon_vma,
            middle: None,
            copied_from: None,
        };
        self.call = CallKind::MremapExpand;
        let rules = &self.space.policy.rules;
        let hook = rules.close_hook == CloseHook::NeverMerges && vma.body.has_close();
        let scope = if rules.expand_joins_next && !hook {
            MergeScope::Both
        } else {
            MergeScope::Itself
        };
        let charge = vma.body.flags.contains(VmFlags::ACCOUNT).then_some(pages);
        let grown = self.charged(charge, |w| {
            let decided = w.decide(&proposal, scope);
            let mut grown = w.carry_out(&proposal, &decided)?;
            let verdict = &decided.verdict;
            let may_grow = verdict.plan.is_some() || verdict.left.is_some();
            if grown.is_none() && may_grow && scope != MergeScope::Itself {
                // The next VMA has a page that cannot change, or a rule of one's own is against it.
                grown = w.merge(&proposal, MergeScope::Itself)?;
            }
            grown.ok_or_else(|| w.refuse_growth(vma.range.end, delta))
        })?;
        self.mapped(proposal.range, proposal.offsets, &vma.body);
        let joined_next = self.view(grown).range.end > proposal.range.end;
        self.state_mut().stats.expand_merges += u64::from(joined_next);
        self.count_more(vma.body.flags, pages);
        Ok(())
    }

    #[doc(alias = "vrm_stat_account")]
    pub(super) fn count_more(&mut self, flags: VmFlags, pages: u64) {
        self.stat_account(flags, pages as i64);
        if flags.contains(VmFlags::LOCKED) {
            self.state_mut().locked_vm += pages;
        }
    }
}
