//! Page fault counts: faults handled without `mmap_lock` and, by reason, faults that took it.
//!
//! A fault that succeeds without `mmap_lock` is counted under the page-table lock, which the fault
//! takes anyway, so that faults in different parts of an address space share no counter. All other
//! faults contend for `mmap_lock` anyway, so they can share counters.

use crate::Space;
use crate::types::MmId;
use crate::types::platform::Environment;
use core::sync::atomic::{AtomicU64, Ordering};

/// Why a fault took `mmap_lock`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FellBack {
    /// No VMA contains the address: a stack may have to grow, or the access is an error.
    NoVma,
    /// The VMA needs an anon_vma, which might be a neighbour's.
    NoAnonVma,
    /// The fault may map a huge page, and `mmap_lock` guards the setting that disables huge pages.
    HugePage,
    /// A writer has locked the VMA.
    WriteLocked,
    /// The VMA has as many readers as its lock can count.
    TooManyReaders,
    /// A VMA or the tree changed during every attempt to lock the VMA.
    Changing,
    /// VMAs have no individual locks in this environment.
    NoLock,
}

impl FellBack {
    /// All reasons.
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

/// Page fault counts of an address space since its creation, with and without `mmap_lock`.
///
/// [`Space::fault_counts`](crate::Space::fault_counts) has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Number of faults handled without `mmap_lock`.
    pub unlocked: u64,
    /// Number of attempts that found a VMA changed or removed; the fault was then retried.
    pub retried: u64,
    fell_back: [u64; FellBack::ALL.len()],
}

impl FaultCounts {
    /// Returns the number of faults that took `mmap_lock`, by reason.
    pub fn fell_back(&self) -> impl Iterator<Item = (FellBack, u64)> + '_ {
        FellBack::ALL.into_iter().zip(self.fell_back)
    }

    /// Returns the number of faults that took `mmap_lock` for this reason.
    pub fn fell_back_for(&self, why: FellBack) -> u64 {
        self.fell_back[why as usize]
    }
}

/// Fault counters of one address space, except the counters in the page table.
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
    /// Returns the fault counts of an address space; all zero if the address space is gone.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// use vmarea::mm::FellBack;
    ///
    /// let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
    /// // The first write fault needs an anon_vma, which is created under `mmap_lock`.
    /// space.fault(mm, at, Access::Write)?;
    /// space.fault(mm, at + PAGE_SIZE, Access::Write)?;
    /// let counts = space.fault_counts(mm);
    /// assert_eq!(counts.fell_back_for(FellBack::NoAnonVma), 1);
    /// assert_eq!(counts.unlocked, 1);
    /// # Ok::<(), Errno>(())
    /// ```
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
