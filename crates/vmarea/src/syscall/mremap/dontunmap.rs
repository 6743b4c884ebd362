//! What happens to the old mapping after a move with `MREMAP_DONTUNMAP`.
//!
//! The pages have moved to a copy of the VMA; the old mapping remains, without pages and unlocked.
//! Kernels differ in what else they change in the old mapping
//! ([`DontunmapRules`](crate::policy::rules::DontunmapRules)).
//!
//! # Linux
//! `mm/mremap.c`: `dontunmap_complete` in 6.18, `move_vma` before.

use super::context::Remap;
use crate::mm::MmapWriteGuard;
use crate::mm::split::NewHalf;
use crate::rmap::root_locks::AnonVmaRootLocks;
use crate::types::platform::Environment;
use crate::types::{Errno, PageOffsets, VmFlags, VmRange, VmaId};
use crate::vma::{VmaBody, VmaView};

impl<E: Environment> MmapWriteGuard<'_, E> {
    /// Splits a locked VMA at both ends of the old range, so that only that range is unlocked.
    pub(super) fn cut_locked(&mut self, r: &Remap, vma: VmaView) -> Result<VmaView, Errno> {
        let end = r.addr + r.old_len;
        if !vma.body.flags.contains(VmFlags::LOCKED) {
            return Ok(vma);
        }
        if vma.range.start != r.addr {
            self.split(vma.id, r.addr, NewHalf::Below)?;
        }
        if vma.range.end != end {
            self.split(vma.id, end, NewHalf::Above)?;
        }
        Ok(self.view(vma.id))
    }

    /// Marks the VMA that follows the source VMA as charged.
    ///
    /// Linux 5.10 marks the next VMA as charged if `source` is strictly inside a VMA and the copy
    /// has not merged with that VMA: it mistakes the next VMA for the remainder of the source VMA.
    pub(super) fn charge_next(&mut self, source: VmRange, new_id: VmaId) {
        let Some(old) = self.vma_lookup(source.start).filter(|old| old.id != new_id) else {
            return;
        };
        let inside = old.range.start < source.start && source.end < old.range.end;
        if let Some(next) = self.find(old.range.end).filter(|_| inside) {
            let flags = next.body.flags | VmFlags::ACCOUNT;
            let body = VmaBody { flags, ..next.body };
            self.set_body(next.id, body);
        }
    }

    /// Unlocks the old mapping, which DONTUNMAP leaves without pages.
    #[doc(alias = "dontunmap_complete")]
    pub(super) fn leave_empty(&mut self, source: VmRange, new_id: VmaId) {
        let Some(old) = self.vma_lookup(source.start) else {
            return;
        };
        let flags = old.body.flags - VmFlags::LOCKED_MASK;
        self.set_body(old.id, VmaBody { flags, ..old.body });
        let rules = &self.space.policy.rules.dontunmap;
        if old.id != new_id && old.range == source && rules.loses_anon_vma {
            self.space
                .unlink_anon_vmas(self.space.vma(old.id), &mut AnonVmaRootLocks::none());
            let nameless = old.is_anonymous() && old.body.file.is_none();
            let offsets = match nameless {
                true => PageOffsets::ADDRESS,
                false => (self.space.policy.rules).anon_offsets(&old.body, old.offsets),
            };
            if rules.resets_pgoff && offsets != old.offsets {
                self.set_range(old.id, old.range, offsets);
            }
        }
    }
}
