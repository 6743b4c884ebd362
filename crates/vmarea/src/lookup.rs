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

/// A change to an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A VMA was added to the index.
    Linked(VmaId),
    /// A VMA that started at `start` has new bounds.
    Resized {
        /// The VMA whose bounds changed.
        vma: VmaId,
        /// Start address of the VMA before the change.
        start: u64,
    },
    /// A VMA is about to be removed from the index.
    Unlinked {
        /// The VMA that is removed.
        vma: VmaId,
        /// The VMA before the removed one.
        prev: Option<VmaId>,
    },
    /// A call unmapped some addresses.
    Unmapped,
}

/// An observer of every counted lookup and every index change, in the order in which they happen. A
/// lookup by a fault may be reported without the lock of the address space; changes are always
/// reported with the lock held. An observer may call back into the space only through its
/// arguments.
pub trait Observer: Send + Sync {
    /// Called after a lookup of `addr` returned `found`, the first VMA that ends after `addr`.
    fn looked_up(&self, vmas: &dyn Vmas, addr: u64, found: Option<VmaId>);

    /// Called when the index changes.
    fn changed(&self, vmas: &dyn Vmas, change: Change);
}
