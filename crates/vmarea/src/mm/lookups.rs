//! The VMAs of one mm as lookup caches and observers see them.

use super::{Mm, MmapGuard};
use crate::Space;
use crate::lookup::{Change, Vmas};
use crate::types::platform::Environment;
use crate::types::writers::Token;
use crate::types::{MmId, VmRange, VmaId};

/// The VMAs of one mm. A caller that does not hold `mmap_lock` must revalidate results.
pub(crate) struct VmasOf<'a, E: Environment> {
    pub(crate) space: &'a Space<E>,
    pub(crate) mm: &'a Mm<E>,
    pub(crate) id: MmId,
}

impl<'a, E: Environment> VmasOf<'a, E> {
    /// Creates the lookup interface of `mm`; returns `None` if the mm has no owner id yet.
    pub(crate) fn new(space: &'a Space<E>, mm: &'a Mm<E>) -> Option<Self> {
        let id = mm.pages.owner()?;
        Some(VmasOf { space, mm, id })
    }
}

impl<E: Environment> Vmas for VmasOf<'_, E> {
    #[inline]
    fn mm(&self) -> MmId {
        self.id
    }

    #[inline]
    fn find(&self, addr: u64) -> Option<VmaId> {
        let found = self.mm.index().find(addr)?;
        VmaId::from_bits(found.value)
    }

    #[inline]
    fn range(&self, vma: VmaId) -> Option<VmRange> {
        let vma = self.space.vmas.get(vma.0)?;
        let range = VmRange {
            start: vma.start(),
            end: vma.end(),
        };
        (vma.is_of(self.id)).then_some(range)
    }
}

impl<'s, E: Environment, T: Token<'s, E::Wait>> MmapGuard<'s, E, T> {
    #[inline]
    pub(crate) fn lookups(&self) -> VmasOf<'_, E> {
        VmasOf {
            space: self.space,
            mm: self.mm,
            id: self.id,
        }
    }
}

impl<'s, E: Environment, T: Token<'s, E::Wait>> Vmas for MmapGuard<'s, E, T> {
    #[inline]
    fn mm(&self) -> MmId {
        self.id
    }

    #[inline]
    fn find(&self, addr: u64) -> Option<VmaId> {
        self.lookups().find(addr)
    }

    #[inline]
    fn range(&self, vma: VmaId) -> Option<VmRange> {
        self.lookups().range(vma)
    }
}

impl<E: Environment> VmasOf<'_, E> {
    /// Notifies the observer of a change.
    #[inline]
    pub(crate) fn note_change(&self, change: impl FnOnce() -> Change) {
        if let Some(observer) = &self.space.lookup_observer {
            observer.changed(self, change());
        }
    }
}
