//! What a cache of VMA lookups needs: the VMAs of an address space, and their changes.
//!
//! The core has no threads and stores no cache. An embedder with a cache of its own asks [`Vmas`]
//! whether an entry is still valid, and an [`Observer`] can tell it which VMAs leave the address
//! space. `vmarea-experiments` has caches to compare.
//!
//! # Locking
//! A lookup requires `mmap_lock` for reading and a change requires it for writing; the result of a
//! lookup is then valid as long as the lock is held. Without the lock the result is only a
//! proposal, to be checked again once the VMA itself is locked.

mod observe;

pub use observe::{Change, Observer};

use crate::mm::{Mm, MmapReadGuard, MmapWriteGuard};
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{MmId, VmRange, VmaId};

/// The VMAs of one address space, as far as lookups need them.
pub trait Vmas {
    /// Returns the id of the address space.
    fn mm(&self) -> MmId;

    /// Searches the index for the first VMA that ends after `addr`.
    fn find(&self, addr: u64) -> Option<VmaId>;

    /// Returns the current address range of a VMA; `None` if the VMA is gone or belongs to another
    /// address space.
    fn range(&self, vma: VmaId) -> Option<VmRange>;
}

/// The VMAs of one mm. A caller without the mm's lock must treat results as proposals.
pub(crate) struct VmasOf<'a, E: Environment> {
    pub(crate) space: &'a Space<E>,
    pub(crate) mm: &'a Mm<E::Wait>,
    pub(crate) id: MmId,
}

impl<'a, E: Environment> VmasOf<'a, E> {
    /// Creates the lookup interface of `mm`; returns `None` if the address space has no id.
    pub(crate) fn new(space: &'a Space<E>, mm: &'a Mm<E::Wait>) -> Option<Self> {
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
        let found = self.mm.tree.find(addr)?;
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

macro_rules! of_guard {
    ($guard:ident) => {
        impl<E: Environment> $guard<'_, E> {
            #[inline]
            pub(crate) fn lookups(&self) -> VmasOf<'_, E> {
                VmasOf {
                    space: self.space,
                    mm: self.mm,
                    id: self.id,
                }
            }
        }

        impl<E: Environment> Vmas for $guard<'_, E> {
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
    };
}

of_guard!(MmapReadGuard);
of_guard!(MmapWriteGuard);
