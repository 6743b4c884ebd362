//! The reverse map as it can be drawn: chains and anon_vmas, read and never changed.
//!
//! Deliberately absent: any numbering. An [`AnonVmaId`] carries a slot and a generation, which say
//! nothing to a person; who draws them numbers them.

use crate::mm::MmapReadGuard;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, VmaId};
use alloc::vec::Vec;

impl<E: Environment> MmapReadGuard<'_, E> {
    /// The anon_vmas on which a VMA of this address space hangs, oldest first: the root of the
    /// family begins. None for a VMA of another address space, or one that is gone.
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
    /// The anon_vma from which `id` was forked, itself for a root; `None` where it has ended.
    pub fn anon_vma_parent(&self, id: AnonVmaId) -> Option<AnonVmaId> {
        let there = self.anon_vmas.get(id.0).is_some();
        there.then(|| self.anon_vma_parent_of(id))
    }
}
