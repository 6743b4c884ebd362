//! Chooses the anon_vma of a VMA when the VMA's first anonymous page needs one.
//!
//! If a neighbour might merge with the VMA later, the VMA shares the neighbour's anon_vma, so that
//! different anon_vmas do not prevent the merge. `vmarea_merge` decides both: this and the merge.
//!
//! # Linux
//! `mm/rmap.c` `__anon_vma_prepare`, `mm/vma.c` `find_mergeable_anon_vma`, 6.18.

use super::FaultContext;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, Errno};
use crate::vma::VmaView;
use crate::vma::merge::lent_anon_vma;

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
        let lent = |neighbour: VmaView| lent_anon_vma(&self.space.policy, vma, &neighbour);
        let next = self.tree.next_of(vma).and_then(lent);
        next.or_else(|| self.tree.prev_of(vma).and_then(lent))
    }
}
