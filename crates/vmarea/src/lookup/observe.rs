//! Observation of lookups, and of the index changes that affect them, for measurements.

use super::{Vmas, VmasOf};
use crate::types::VmaId;
use crate::types::platform::Environment;

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

impl<E: Environment> VmasOf<'_, E> {
    /// Notifies the observer of a change.
    #[inline]
    pub(crate) fn note_change(&self, change: impl FnOnce() -> Change) {
        if let Some(observer) = &self.space.lookup_observer {
            observer.changed(self, change());
        }
    }
}
