//! Interface for VMA lookup caches: queries on an address space's VMAs, and index changes.
//!
//! The core has no lookup cache. An embedder that has its own cache uses [`Vmas`] to check whether
//! a cached VMA is still valid, and an [`Observer`] to learn which VMAs leave the address space.
//! `vmarea-experiments` compares several caches.
//!
//! # Examples
//! ```
//! use vmarea::prelude::*;
//!
//! let mut space = Space::new(Policy::LINUX, System::default());
//! space.count_lookups();
//! let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
//! let mm = space.mm_create(layout, Limits::default())?;
//! let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
//! space.fault(mm, at, Access::Write)?;
//! space.fault(mm, at + PAGE_SIZE, Access::Write)?;
//! let (lookups, hits_of_the_last) = space.lookup_counts(mm);
//! assert!(lookups >= hits_of_the_last && hits_of_the_last > 0);
//! # Ok::<(), Errno>(())
//! ```
//!
//! # Locking
//! A lookup requires `mmap_lock` for reading and a change requires it for writing; the result of a
//! lookup is then valid as long as `mmap_lock` is held. Without `mmap_lock` the result is only a
//! proposal, which must be checked again once the VMA itself is locked.

use crate::types::{MmId, VmRange, VmaId};

/// The VMAs of one address space, as seen by a lookup cache.
///
/// The trait [`Observer`] has an example.
pub trait Vmas {
    /// Returns the id of the address space.
    fn mm(&self) -> MmId;

    /// Searches the index for the first VMA that ends after `addr`.
    fn find(&self, addr: u64) -> Option<VmaId>;

    /// Returns the current address range of a VMA; `None` if the VMA no longer exists or belongs to
    /// another address space.
    fn range(&self, vma: VmaId) -> Option<VmRange>;
}

/// A change to the index of an address space's VMAs.
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

/// An observer of every counted lookup and every index change, in the order in which they happen.
/// `mmap_lock` is always held when a change is reported, but not always when a fault's lookup is
/// reported. An observer must access the space only through the arguments of its methods.
///
/// ```
/// use std::sync::Mutex;
/// use vmarea::lookup::{Change, Observer, Vmas};
/// use vmarea::prelude::*;
///
/// /// A cache of the VMA that was found last.
/// #[derive(Default)]
/// struct Last {
///     vma: Mutex<Option<VmaId>>,
///     hits: Mutex<u64>,
/// }
///
/// impl Observer for &'static Last {
///     fn looked_up(&self, vmas: &dyn Vmas, addr: u64, found: Option<VmaId>) {
///         let last = self.vma.lock().unwrap().and_then(|vma| vmas.range(vma));
///         *self.hits.lock().unwrap() += u64::from(last.is_some_and(|last| last.contains(addr)));
///         *self.vma.lock().unwrap() = found;
///     }
///
///     fn changed(&self, _vmas: &dyn Vmas, change: Change) {
///         if matches!(change, Change::Unlinked { .. }) {
///             *self.vma.lock().unwrap() = None;
///         }
///     }
/// }
///
/// let last: &'static Last = Box::leak(Box::default());
/// let mut space = Space::new(Policy::LINUX, System::default());
/// space.set_lookup_observer(Box::new(last));
/// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
/// # let mm = space.mm_create(layout, Limits::default())?;
/// let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
/// space.fault(mm, at, Access::Write)?;
/// space.fault(mm, at + PAGE_SIZE, Access::Write)?;
/// assert!(*last.hits.lock().unwrap() > 0);
/// space.munmap(mm, at, 2 * PAGE_SIZE)?;
/// assert_eq!(*last.vma.lock().unwrap(), None);
/// # Ok::<(), Errno>(())
/// ```
pub trait Observer: Send + Sync {
    /// Called after a lookup of `addr` returned `found`, the first VMA that ends after `addr`.
    fn looked_up(&self, vmas: &dyn Vmas, addr: u64, found: Option<VmaId>);

    /// Called when the index changes.
    fn changed(&self, vmas: &dyn Vmas, change: Change);
}
