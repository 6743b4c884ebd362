//! The VMA that a fault found last in some part of an address space: a hint for the next one there.
//!
//! One for each shard of the page table, on the cache line of the shard's lock, which a fault writes
//! to anyway: so threads that work in different places do not meet here, and nobody need know which
//! thread it is. The bounds are kept beside the VMA, so that a hint that is of no use costs a comparison
//! and no look at the VMA. Nobody tells it of changes: whoever takes the hint locks the VMA and asks
//! whether it is there and holds the address, as after a search.
//!
//! # Invariants
//! N1  whatever is kept here, no fault finds another VMA than the index would have given
//!
//! # Linux
//! No counterpart: `vmacache` kept four a thread until 6.1.

use crate::types::{VmRange, VmaId};
use core::sync::atomic::{AtomicU64, Ordering};

/// See the module.
///
/// ORDERING: Relaxed throughout; the words may be of different moments, and what they say is checked.
#[derive(Debug, Default)]
pub(crate) struct Near {
    start: AtomicU64,
    end: AtomicU64,
    vma: AtomicU64,
}

impl Near {
    /// The VMA that may hold `addr`.
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

    /// `vma` was found.
    #[inline]
    pub(crate) fn remember(&self, vma: VmaId, range: VmRange) {
        self.start.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Relaxed);
        self.vma.store(vma.to_bits(), Ordering::Relaxed);
    }

    /// Nothing is known.
    pub(crate) fn forget(&self) {
        self.end.store(0, Ordering::Relaxed);
    }
}
