//! Counts of how faults came to their VMA: without `mmap_lock`, or why not.
//!
//! A fault that goes well is counted beside the page-table lock that it takes anyway, so that faults in
//! different parts of an address space share no counter; the others meet at `mmap_lock` as well.

use crate::space::Space;
use crate::types::MmId;
use crate::types::platform::Environment;
use core::sync::atomic::{AtomicU64, Ordering};

/// Why a fault took `mmap_lock`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FellBack {
    /// No VMA holds the address: a stack may have to grow, or the access is an error.
    NoVma,
    /// The VMA needs an anon_vma, which it may share with a neighbour.
    NoAnonVma,
    /// A huge page may come, and whether the process does without is written under the lock.
    HugePage,
    /// A writer has locked the VMA.
    WriteLocked,
    /// As many read the VMA as can be counted.
    TooManyReaders,
    /// Something changed whenever it looked.
    Changing,
    /// VMAs have no lock of their own here.
    NoLock,
}

impl FellBack {
    /// Every reason.
    pub const ALL: [FellBack; 7] = [
        FellBack::NoVma,
        FellBack::NoAnonVma,
        FellBack::HugePage,
        FellBack::WriteLocked,
        FellBack::TooManyReaders,
        FellBack::Changing,
        FellBack::NoLock,
    ];
}

/// How faults came to their VMA, since the address space began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Without `mmap_lock`.
    pub unlocked: u64,
    /// Looks at a VMA that had changed or gone meanwhile; the same fault then looked again.
    pub retried: u64,
    fell_back: [u64; FellBack::ALL.len()],
}

impl FaultCounts {
    /// Faults that took `mmap_lock`, by reason.
    pub fn fell_back(&self) -> impl Iterator<Item = (FellBack, u64)> + '_ {
        FellBack::ALL.into_iter().zip(self.fell_back)
    }

    /// Faults that took `mmap_lock` for this reason.
    pub fn fell_back_for(&self, why: FellBack) -> u64 {
        self.fell_back[why as usize]
    }
}

/// The counters of one address space, but for those that the page table keeps.
#[derive(Debug, Default)]
pub(crate) struct FaultCounters {
    retried: AtomicU64,
    fell_back: [AtomicU64; FellBack::ALL.len()],
}

impl FaultCounters {
    #[cold]
    pub(crate) fn retried(&self) {
        // ORDERING: Relaxed, here and below; statistics.
        self.retried.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn fell_back(&self, why: FellBack) {
        self.fell_back[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn reset(&self) {
        self.retried.store(0, Ordering::Relaxed);
        for counter in &self.fell_back {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

impl<E: Environment> Space<E> {
    /// How the faults of an address space came to their VMAs; nothing where it has gone.
    pub fn fault_counts(&self, mm: MmId) -> FaultCounts {
        self.mms
            .get(mm.0)
            .map_or_else(FaultCounts::default, |mm| FaultCounts {
                unlocked: mm.pages.unlocked_faults(),
                retried: mm.fault_counters.retried.load(Ordering::Relaxed),
                fell_back: core::array::from_fn(|why| {
                    mm.fault_counters.fell_back[why].load(Ordering::Relaxed)
                }),
            })
    }
}
