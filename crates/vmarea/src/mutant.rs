//! Deliberate bugs that break one rule at a time, to verify that the tests detect them.
//!
//! A comparison that finds no difference is meaningful only if it would have detected a bug. With
//! the feature `mutants` a thread can break one of these rules for itself, and `conform` must
//! detect it. Without the feature (in every build except that test) each check in this module is
//! `false` at compile time. The module can also make a single allocation fail.

/// A rule that can be broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// Merging ignores page offsets.
    MergeIgnoresPageOffset,
    /// Merging ignores memory policies.
    MergeIgnoresPolicy,
    /// Merging ignores `MADV_DONTFORK`.
    MergeIgnoresDontfork,
    /// An unfaulted range adopts an anon_vma even if the chain of its holder has several links.
    MergeIgnoresChain,
    /// Three VMAs never merge into one: the range joins the previous VMA only.
    MergeNeverJoinsThree,
    /// The upper half of a split gets the page offset of the lower half.
    SplitKeepsPageOffset,
    /// A first fault never reuses a neighbour's anon_vma.
    FaultTakesNoNeighbour,
    /// A first fault prefers the anon_vma of the previous VMA to that of the next one.
    FaultPrefersPrev,
    /// A fork copies the locked state of mappings.
    ForkKeepsLocks,
    /// A fork never reuses an anon_vma that no VMA uses any more.
    ForkReusesNothing,
    /// A fork copies a mapping that should be wiped in the child (`MADV_WIPEONFORK`).
    ForkWipesNothing,
    /// A write to a page that two processes share is visible to both.
    WriteGoesToBoth,
    /// An unfaulted mapping keeps its page offset when `mremap` moves it.
    MoveKeepsPageOffset,
    /// The mapping that `MREMAP_DONTUNMAP` leaves behind keeps its anon_vma.
    DontunmapKeepsAnonVma,
    /// `mprotect` over a hole changes nothing.
    MprotectLooksAhead,
    /// A mapping that becomes writable is not charged to the commit limit.
    MprotectForgetsCharge,
    /// Locking a mapping that is already locked counts its pages again.
    MlockCountsTwice,
    /// Unmapping does not reduce the count of locked pages.
    MunmapForgetsLocks,
    /// `MADV_DONTNEED` removes guard regions.
    DontneedTakesGuards,
    /// `madvise` stops at a hole.
    MadviseStopsAtHole,
    /// A read fault that maps the huge zero page creates no anon_vma.
    HugeReadMakesNoAnonVma,
    /// Huge pages are used even if the process disabled them with `prctl`.
    HugeInSpiteOfPrctl,
    /// A page that is swapped in is empty.
    SwapComesBackEmpty,
    /// A mapping with a userfaultfd context keeps the context when `mremap` moves it.
    MoveKeepsContext,
    /// A mapping that is unregistered from userfaultfd keeps the context.
    UnwatchKeepsContext,
    /// `shmdt` also detaches mappings of the segment whose page offset does not match the address.
    ShmdtIgnoresPageOffset,
    /// A break in the last page of the 64-bit address range counts as a break at 0.
    BrkWraps,
    /// A file may be mapped one page beyond its largest offset.
    OffsetOneTooFar,
    /// A hugetlb mapping is placed as if its pages were small.
    HugetlbPlacedAnywhere,
    /// `[vdso]` can be split.
    SpecialSplits,
    /// A low address hint is raised to `vm.mmap_min_addr` only, not to the built-in minimum.
    HintIgnoresBuiltIn,
    /// Memory may become executable despite `PR_SET_MDWE`.
    MdweRefusesNothing,
    /// A mapping of `memfd_secret` is treated as an ordinary file mapping.
    SecretIsOrdinary,
    /// `PR_SET_MEMORY_MERGE` does not change existing mappings.
    MergeAnyLooksAhead,
    /// A faulted range never merges with an unfaulted neighbour (kernels before 6.16).
    MergeRefusesUnfaulted,
    /// A faulted range that merges with an unfaulted neighbour by `mremap` does not pass on its
    /// anon_vma. Kernels before the fix of early 2026 have this bug.
    MoveBringsNoAnonVma,
}

impl Mutant {
    /// Mutants that reproduce bugs of real kernels; the enumeration of merges must detect them.
    pub const KERNELS: [Mutant; 2] = [Mutant::MergeRefusesUnfaulted, Mutant::MoveBringsNoAnonVma];
    /// All other mutants; the comparison with a kernel must detect them.
    pub const ALL: [Mutant; 34] = [
        Mutant::MergeIgnoresPageOffset,
        Mutant::MergeIgnoresPolicy,
        Mutant::MergeIgnoresDontfork,
        Mutant::MergeIgnoresChain,
        Mutant::MergeNeverJoinsThree,
        Mutant::SplitKeepsPageOffset,
        Mutant::FaultTakesNoNeighbour,
        Mutant::FaultPrefersPrev,
        Mutant::ForkKeepsLocks,
        Mutant::ForkReusesNothing,
        Mutant::ForkWipesNothing,
        Mutant::WriteGoesToBoth,
        Mutant::MoveKeepsPageOffset,
        Mutant::DontunmapKeepsAnonVma,
        Mutant::MprotectLooksAhead,
        Mutant::MprotectForgetsCharge,
        Mutant::MlockCountsTwice,
        Mutant::MunmapForgetsLocks,
        Mutant::DontneedTakesGuards,
        Mutant::MadviseStopsAtHole,
        Mutant::HugeReadMakesNoAnonVma,
        Mutant::HugeInSpiteOfPrctl,
        Mutant::SwapComesBackEmpty,
        Mutant::MoveKeepsContext,
        Mutant::UnwatchKeepsContext,
        Mutant::ShmdtIgnoresPageOffset,
        Mutant::BrkWraps,
        Mutant::OffsetOneTooFar,
        Mutant::HugetlbPlacedAnywhere,
        Mutant::SpecialSplits,
        Mutant::HintIgnoresBuiltIn,
        Mutant::MdweRefusesNothing,
        Mutant::SecretIsOrdinary,
        Mutant::MergeAnyLooksAhead,
    ];
}

#[cfg(feature = "mutants")]
mod switch {
    extern crate std;

    use super::Mutant;
    use crate::types::Errno;
    use core::cell::Cell;

    std::thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
        /// Number of allocations up to and including the one that fails; 0 for none.
        static UNTIL_FAILURE: Cell<u32> = const { Cell::new(0) };
    }

    /// Makes the `nth` allocation of this thread fail, counted from 1; with 0 no allocation fails.
    /// Returns true if the failure requested by the previous call has occurred.
    pub fn fail_allocation(nth: u32) -> bool {
        UNTIL_FAILURE.replace(nth) == 0
    }

    /// Returns ENOMEM if `fail_allocation` selected the next allocation. Called before each one.
    pub(crate) fn allocate() -> Result<(), Errno> {
        let left = UNTIL_FAILURE.get();
        UNTIL_FAILURE.set(left.saturating_sub(1));
        if left == 1 {
            Err(Errno::ENOMEM)
        } else {
            Ok(())
        }
    }

    /// Restores the previously broken rule when dropped, including after a panic.
    struct Before(Option<Mutant>);

    impl Drop for Before {
        fn drop(&mut self) {
            ACTIVE.set(self.0);
        }
    }

    /// Runs `work` with one rule broken on this thread only, because tests run in parallel.
    pub fn with<R>(mutant: Mutant, work: impl FnOnce() -> R) -> R {
        let _before = Before(ACTIVE.replace(Some(mutant)));
        work()
    }

    /// Checks whether the rule is broken.
    #[inline]
    pub fn is_on(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant)
    }
}

#[cfg(not(feature = "mutants"))]
mod switch {
    use super::Mutant;

    /// Allows every allocation of the core.
    #[inline(always)]
    pub(crate) const fn allocate() -> Result<(), crate::types::Errno> {
        Ok(())
    }

    /// Returns false: no rule is broken without the feature `mutants`.
    #[inline(always)]
    pub const fn is_on(_: Mutant) -> bool {
        false
    }
}

pub use switch::*;
