//! A hint for page faults: the VMA that the last fault in a part of the address space found.
//!
//! Each shard of the page table has one hint, on the cache line of the shard's lock, which a fault
//! writes to anyway. Threads that work in different places therefore do not contend for hints, and
//! no per-thread state is needed. The VMA's bounds are stored with the VMA id, so that a miss costs
//! one comparison and no access to the VMA. Hints are not updated when VMAs change: the user of a
//! hint locks the VMA and checks that the VMA still exists and contains the address, as after a
//! search.
//!
//! # Invariants
//! N1  no value of a hint makes a fault use another VMA than a search of the VMA tree would return
//!
//! # Linux
//! No counterpart: before 6.1, `vmacache` kept four VMAs per thread.

use crate::types::{VmRange, VmaId};
use core::sync::atomic::{AtomicU64, Ordering};

/// The VMA that the last fault in a shard found, with its bounds; see the module documentation.
///
/// ORDERING: Relaxed throughout; the words may be from different updates, and users check the VMA.
#[derive(Debug, Default)]
pub(crate) struct Near {
    start: AtomicU64,
    end: AtomicU64,
    vma: AtomicU64,
}

impl Near {
    /// Returns the VMA that may contain `addr`.
    #[inline]
    pub(crate) fn at(&self, addr: u64) -> Option<VmaId> {
        let within =
            self.start.load(Ordering::Relaxed) <= addr && addr < self.end.load(Ordering::Relaxed);
        VmaId::from_bits(if within {
            self.vma.load(Ordering::Relaxed)
        } else {
            0
        })
    }

    /// Stores the VMA that a fault found.
    #[inline]
    pub(crate) fn remember(&self, vma: VmaId, range: VmRange) {
        self.start.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Relaxed);
        self.vma.store(vma.to_bits(), Ordering::Relaxed);
    }

    /// Clears the hint.
    pub(crate) fn forget(&self) {
        self.end.store(0, Ordering::Relaxed);
    }
}
