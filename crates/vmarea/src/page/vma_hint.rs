//! A hint for page faults: the VMA in which the last fault in the same page-table shard occurred.
//!
//! Each shard of the page table has one hint. It is stored on the cache line of the shard's lock,
//! to which a fault writes anyway. Therefore threads that fault in different shards do not contend
//! for hints, and no per-thread state is needed. The VMA's bounds are stored with the VMA id, so
//! that a miss costs one comparison and no access to the VMA. Hints are not updated when VMAs
//! change: a fault that uses a hint locks the VMA and checks that the VMA still exists and contains
//! the address, just as it does after a tree search.
//!
//! # Invariants
//! N1  no value of a hint makes a fault use another VMA than a search of the VMA tree would return
//!
//! # Linux
//! No counterpart: before 6.1, `vmacache` kept four VMAs per thread.

use crate::types::{VmRange, VmaId};
use core::sync::atomic::{AtomicU64, Ordering};

/// The VMA in which the last fault in a shard occurred, with its bounds.
///
/// ORDERING: Relaxed throughout; the fields may come from different updates, and users of the hint
/// check the VMA.
#[derive(Debug, Default)]
pub(crate) struct Near {
    start: AtomicU64,
    end: AtomicU64,
    vma: AtomicU64,
}

impl Near {
    /// Returns the hint's VMA if its stored bounds contain `addr`.
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

    /// Stores the VMA in which a fault occurred.
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
