//! Read-only queries of chains and anon_vmas, for drawing the reverse map.
//!
//! Deliberately absent: small numbers for display. An [`AnonVmaId`] contains a slot and a
//! generation, which are not readable; code that draws the anon_vmas has to number them.

use crate::mm::MmapReadGuard;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, VmaId};
use alloc::vec::Vec;

impl<E: Environment> MmapReadGuard<'_, E> {
    /// Returns the anon_vmas of a VMA of this address space, oldest first, beginning with the root.
    ///
    /// The list is empty for a VMA of another address space and for a VMA that no longer exists.
    #[doc(alias = "anon_vma_chain")]
    pub fn chain(&self, vma: VmaId) -> Vec<AnonVmaId> {
        let ours = self.space.vmas.get(vma.0);
        let ours = ours.filter(|vma| vma.is_of(self.id));
        ours.map_or_else(Vec::new, |vma| {
            vma.chain.lock().iter().map(|link| link.anon_vma).collect()
        })
    }
}

impl<E: Environment> Space<E> {
    /// Returns the parent of an anon_vma, `id` itself for a root, or `None` if `id` was freed.
    pub fn anon_vma_parent(&self, id: AnonVmaId) -> Option<AnonVmaId> {
        let there = self.anon_vmas.get(id.0).is_some();
        there.then(|| self.anon_vma_parent_of(id))
    }
}
