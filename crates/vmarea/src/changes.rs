//! Notice of every change of a mapping, for an embedder whose host brings the pages.
//!
//! A sandbox or an emulator that maps the memory of its programs with calls of its own host sees no
//! page faults, so the core knows no pages and reports none to an
//! [`Mmu`](crate::types::mmu::Mmu). Such an embedder sets an [`Observer`], which is told exactly
//! which ranges each call has mapped, unmapped, protected, moved or emptied, and makes the same
//! changes in its host. If a call fails after a part of its work, the observer learns of that part.
//!
//! Three calls are not reported, because the caller knows what they do: `mm_create`, `mm_import`,
//! and `fork`, whose child has the VMAs of [`Space::maps`](crate::Space::maps). Advice that only
//! concerns how pages are kept, locking and names change no mapping. `MADV_REMOVE` is told to
//! [`Platform::punch_hole`](crate::types::Platform::punch_hole).
//!
//! # Locking
//! An observer is called with `mmap_lock` held for writing, so that it sees the changes of all
//! threads in the order in which they happened.

use crate::types::{MmId, Pgoff, VmFlags, VmRange};

/// A change of the mappings of an address space. Ranges are page-aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A range in which nothing was mapped is mapped now.
    Mapped {
        /// The range.
        range: VmRange,
        /// Protection and kind of the mapping.
        flags: VmFlags,
        /// The file's inode number and the index of the first page in the file; `None` if the
        /// memory is private and anonymous.
        file: Option<(u64, Pgoff)>,
    },
    /// A range that was mapped is no longer.
    Unmapped {
        /// The range.
        range: VmRange,
    },
    /// A mapped range has another protection.
    Protected {
        /// The range.
        range: VmRange,
        /// The flags from now on, of which [`ACCESS`](VmFlags::ACCESS) and the protection key apply.
        flags: VmFlags,
    },
    /// A mapped range with its pages is at another address, where nothing was mapped. If the old
    /// range stays mapped without pages (`MREMAP_DONTUNMAP`), `Mapped` follows.
    Moved {
        /// The old range.
        from: VmRange,
        /// The new address of its first byte.
        to: u64,
    },
    /// The pages of a mapped range have been dropped (`MADV_DONTNEED`): private memory reads as
    /// zeros or as the file.
    Emptied {
        /// The range.
        range: VmRange,
    },
    /// The pages of a mapped range have been dropped, and accesses raise SIGSEGV
    /// (`MADV_GUARD_INSTALL`).
    Guarded {
        /// The range.
        range: VmRange,
    },
    /// Accesses to guard pages in a mapped range no longer raise SIGSEGV (`MADV_GUARD_REMOVE`).
    Unguarded {
        /// The range.
        range: VmRange,
    },
}

/// An observer of all changes of mappings.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use vmarea::changes::{Change, Observer};
/// use vmarea::prelude::*;
///
/// /// The changes since the list was emptied.
/// #[derive(Clone, Default)]
/// struct List(Arc<Mutex<Vec<Change>>>);
///
/// impl Observer for List {
///     fn changed(&self, _mm: MmId, change: Change) {
///         self.0.lock().unwrap().push(change);
///     }
/// }
///
/// let list = List::default();
/// let mut space = Space::new(Policy::LINUX, System::default());
/// space.set_change_observer(Box::new(list.clone()));
/// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
/// # let mm = space.mm_create(layout, Limits::default())?;
/// let at = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
/// list.0.lock().unwrap().clear();
/// // Nothing was mapped below `at`, and no page was ever touched.
/// space.munmap(mm, at - PAGE_SIZE, 2 * PAGE_SIZE)?;
/// let range = VmRange::new(at, at + PAGE_SIZE);
/// assert_eq!(*list.0.lock().unwrap(), [Change::Unmapped { range }]);
/// # Ok::<(), Errno>(())
/// ```
pub trait Observer: Send + Sync {
    /// Called after a change, with `mmap_lock` held for writing. Must not call back into the
    /// [`Space`](crate::Space).
    fn changed(&self, mm: MmId, change: Change);
}
