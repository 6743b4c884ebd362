//! Chooses the anon_vma of a VMA when the VMA's first anonymous page needs one.
//!
//! If a neighbour might merge with the VMA later, the VMA shares the neighbour's anon_vma, so that
//! different anon_vmas do not prevent the merge. The merge itself is decided elsewhere.
//!
//! # Linux
//! `mm/rmap.c` `__anon_vma_prepare`, `mm/vma.c` `find_mergeable_anon_vma`, 6.18.

use super::FaultContext;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, Errno, VmFlags};
use crate::vma::VmaView;

impl<E: Environment> FaultContext<'_, E> {
    /// Returns the anon_vma of a VMA; if it has none, links the VMA to a neighbour's anon_vma or to
    /// a new one.
    #[doc(alias = "__anon_vma_prepare")]
    pub(crate) fn anon_vma_prepare(&self, vma: &VmaView) -> Result<AnonVmaId, Errno> {
        let own = || self.space.vma(vma.id).anon_vma();
        if let Some(own) = vma.anon_vma.or_else(own) {
            return Ok(own);
        }
        let shared = self.find_mergeable_anon_vma(vma);
        let fresh = shared.is_none();
        let anon_vma = shared.map_or_else(|| self.space.anon_vma_alloc_root(), Ok)?;
        let slot = self.space.vma(vma.id);
        // A file's mapping rarely grows at its end, so there is no need to look for the next VMA.
        let span = match vma.body.file {
            Some(_) => self.space.rmap_span_to(vma.range, vma.range.end),
            None => self.space.rmap_span_of(slot),
        };
        let linked = self.space.anon_vma_link((vma.id, slot), span, anon_vma);
        if fresh && linked != Ok(anon_vma) {
            let mut guard = self.space.anon_vma_lock(anon_vma);
            self.space.anon_vma_put(anon_vma, &mut guard);
        }
        linked
    }

    /// Returns the anon_vma of a neighbour that might merge with this VMA later.
    fn find_mergeable_anon_vma(&self, vma: &VmaView) -> Option<AnonVmaId> {
        let next = self
            .tree
            .next_of(vma)
            .filter(|n| self.compatible(vma, n))
            .and_then(|n| reusable(&n));
        next.or_else(|| {
            self.tree
                .prev_of(vma)
                .filter(|p| self.compatible(p, vma))
                .and_then(|p| reusable(&p))
        })
    }

    fn compatible(&self, a: &VmaView, b: &VmaView) -> bool {
        // A VMA that is mapped over part of a reservation is charged; the reservation is not.
        let early = self.space.policy.merging.early_anon_vma;
        let mut ignored = VmFlags::ACCESS | self.space.policy.sticky();
        if early {
            ignored |= VmFlags::ACCOUNT | VmFlags::NORESERVE;
        }
        anon_vma_compatible(a, b, ignored)
    }
}

fn reusable(vma: &VmaView) -> Option<AnonVmaId> {
    vma.anon_vma.filter(|_| vma.chain_singular)
}

/// True if `a` could merge with the following VMA `b` after an `mprotect`.
fn anon_vma_compatible(a: &VmaView, b: &VmaView, ignored: VmFlags) -> bool {
    let differ = (a.body.flags ^ b.body.flags) - ignored;
    a.range.end == b.range.start
        && a.body.policy == b.body.policy
        && a.body.file.map(|f| f.id) == b.body.file.map(|f| f.id)
        && differ.is_empty()
        && a.offsets == b.offsets
}
