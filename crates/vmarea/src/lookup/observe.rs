//! Whoever is told of lookups and of what they depend on: the way in for measurements.

use super::{Vmas, VmasOf};
use crate::types::VmaId;
use crate::types::platform::Environment;

/// A change of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A VMA is in it from now on.
    Linked(VmaId),
    /// A VMA that began at `start` has other bounds from now on.
    Resized {
        /// Which.
        vma: VmaId,
        /// Where it began.
        start: u64,
    },
    /// A VMA is about to leave it.
    Unlinked {
        /// Which.
        vma: VmaId,
        /// The one before it.
        prev: Option<VmaId>,
    },
    /// A call has unmapped something.
    Unmapped,
}

/// Is told of every lookup that counts and of every change of an index, in the order in which they
/// happen. A fault may look up without the lock of its address space; a change is told under it. It must
/// not call back into the space but by what it is given.
pub trait Observer: Send + Sync {
    /// A lookup of `addr` came to `found`: the first VMA that ends after it.
    fn looked_up(&self, vmas: &dyn Vmas, addr: u64, found: Option<VmaId>);

    /// The index changes.
    fn changed(&self, vmas: &dyn Vmas, change: Change);
}

impl<E: Environment> VmasOf<'_, E> {
    /// Tells the observer of a change.
    #[inline]
    pub(crate) fn note_change(&self, change: impl FnOnce() -> Change) {
        if let Some(observer) = &self.space.lookup_observer {
            observer.changed(self, change());
        }
    }
}
