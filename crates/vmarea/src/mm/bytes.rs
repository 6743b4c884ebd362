//! Memory use of the VMAs of an address space, in bytes.
//!
//! The counts include the memory outside the VMA slots: boxed locks, chains, anon_vmas with their
//! interval trees, and the index.

use crate::Space;
use crate::rmap::AnonVma;
use crate::types::platform::Environment;
use crate::types::{MmId, VmaId};
use crate::vma::Vma;
use alloc::collections::BTreeSet;
use vmarea_sync::{Slots, VmaLockKind};

/// Number of bytes that an address space uses for its VMAs, by purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VmaBytes {
    /// Number of VMAs.
    pub vmas: usize,
    /// Bytes in VMA slots, including the locks inside the slots.
    pub slots: usize,
    /// Bytes in locks outside the VMA slots.
    pub locks: usize,
    /// Bytes in anon_vma chains that have more than one link.
    pub chains: usize,
    /// Bytes in the anon_vmas to which the chains link.
    pub anon_vmas: usize,
    /// Bytes in interval trees that contain more than one VMA.
    pub rmap: usize,
    /// Bytes in the tree that finds VMAs by address.
    pub index: usize,
}

impl VmaBytes {
    /// Returns the total number of bytes.
    pub fn total(&self) -> usize {
        self.slots + self.locks + self.chains + self.anon_vmas + self.rmap + self.index
    }
}

impl<E: Environment> Space<E> {
    /// Returns the number of bytes that the VMAs of an address space use. An anon_vma that two
    /// address spaces share is counted for both. Returns `None` if the address space does not
    /// exist.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
    /// let before = space.vma_bytes(mm).expect("exists");
    /// space.mprotect(mm, at, PAGE_SIZE, Prot::READ, None)?;
    /// let after = space.vma_bytes(mm).expect("exists");
    /// assert_eq!((before.vmas, after.vmas), (1, 2));
    /// assert!(after.total() > before.total());
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn vma_bytes(&self, mm: MmId) -> Option<VmaBytes> {
        let r = self.mmap_read_lock(mm)?;
        let mut bytes = VmaBytes {
            index: r.index().bytes(),
            ..VmaBytes::default()
        };
        let mut anon_vmas = BTreeSet::new();
        for entry in r.index().ranges() {
            let Some(vma) = VmaId::from_bits(entry.value) else {
                continue;
            };
            bytes.vmas += 1;
            bytes.slots += Slots::<Vma<E>>::SLOT_BYTES;
            bytes.locks += E::VmaLock::SIDE_BYTES;
            let chain = self.vma(vma).chain.lock();
            bytes.chains += chain.bytes();
            anon_vmas.extend(chain.iter().map(|link| link.anon_vma));
        }
        for anon_vma in anon_vmas {
            let guard = self.anon_vma(self.anon_vma_root(anon_vma)).lock.read();
            bytes.anon_vmas += Slots::<AnonVma<E::Wait>>::SLOT_BYTES;
            bytes.rmap += self.anon_vma(anon_vma).inner.get(&guard).tree.bytes();
        }
        Some(bytes)
    }
}
