//! Deliberate faults, one rule broken at a time: the check of the check.
//!
//! A comparison that never finds anything proves nothing until it is shown to bite. With the
//! feature `mutants` a thread can break one of these rules for itself, and `conform` must find it. Without
//! the feature (always, but in that test) every question here is answered `false` at compile time.
//! In the same way single allocations can be made to fail.

/// A rule that can be broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// Merging looks away from page offsets.
    MergeIgnoresPageOffset,
    /// Merging looks away from memory policies.
    MergeIgnoresPolicy,
    /// Merging looks away from whether forks are kept out.
    MergeIgnoresDontfork,
    /// An unfaulted neighbour takes an anon_vma over even from a chain of several.
    MergeIgnoresChain,
    /// Three never become one: the neighbour after is left.
    MergeNeverJoinsThree,
    /// The upper half of a split keeps the page offset of the lower one.
    SplitKeepsPageOffset,
    /// A first fault never shares a neighbour's anon_vma.
    FaultTakesNoNeighbour,
    /// A first fault shares the anon_vma of the neighbour before rather than after.
    FaultPrefersPrev,
    /// A fork keeps mappings locked.
    ForkKeepsLocks,
    /// A fork never takes over an anon_vma that nobody uses.
    ForkReusesNothing,
    /// A mapping that is to be wiped in the child is copied.
    ForkWipesNothing,
    /// A write to a page that two processes share goes to both.
    WriteGoesToBoth,
    /// An unfaulted mapping keeps its page offset when it moves.
    MoveKeepsPageOffset,
    /// The mapping that DONTUNMAP leaves keeps its anon_vma.
    DontunmapKeepsAnonVma,
    /// mprotect over a hole changes nothing.
    MprotectLooksAhead,
    /// A mapping that becomes writable is not charged.
    MprotectForgetsCharge,
    /// Locking what is locked counts again.
    MlockCountsTwice,
    /// Unmapping leaves the count of locked pages.
    MunmapForgetsLocks,
    /// MADV_DONTNEED takes guards away.
    DontneedTakesGuards,
    /// madvise stops at a hole.
    MadviseStopsAtHole,
    /// A read that brings the huge page of zeros makes no anon_vma.
    HugeReadMakesNoAnonVma,
    /// Huge pages come also where the process does without.
    HugeInSpiteOfPrctl,
    /// A page comes back from swap empty.
    SwapComesBackEmpty,
    /// What somebody watches is watched after a move as well.
    MoveKeepsContext,
    /// What is no longer watched still has the context.
    UnwatchKeepsContext,
    /// shmdt takes pieces that lie elsewhere.
    ShmdtIgnoresPageOffset,
    /// A break in the last page of the 64 bits is one at 0.
    BrkWraps,
    /// A file may be mapped one page further than its offsets go.
    OffsetOneTooFar,
    /// A mapping of a hugetlb file is placed as if its pages were small.
    HugetlbPlacedAnywhere,
    /// `[vdso]` can be cut.
    SpecialSplits,
    /// A low hint is raised to `vm.mmap_min_addr` alone.
    HintIgnoresBuiltIn,
    /// Memory may become executable in spite of `PR_SET_MDWE`.
    MdweRefusesNothing,
    /// A mapping of `memfd_secret` is one like others.
    SecretIsOrdinary,
    /// `PR_SET_MEMORY_MERGE` looks at no mapping that is there.
    MergeAnyLooksAhead,
    /// A faulted range never joins an unfaulted neighbour (kernels before 6.16).
    MergeRefusesUnfaulted,
    /// A faulted range that moves to an unfaulted neighbour brings no anon_vma along (kernels before
    /// the repair of early 2026).
    MoveBringsNoAnonVma,
}

impl Mutant {
    /// Faults that kernels have had, for the enumeration of merges to find.
    pub const KERNELS: [Mutant; 2] = [Mutant::MergeRefusesUnfaulted, Mutant::MoveBringsNoAnonVma];
    /// All others, for the comparison with a kernel to find.
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
        /// Allocations until one fails; 0 for none.
        static UNTIL_FAILURE: Cell<u32> = const { Cell::new(0) };
    }

    /// The `nth` allocation of this thread from now on fails, the first being 1; none for 0. True if the
    /// one that was meant to fail before has failed.
    pub fn fail_allocation(nth: u32) -> bool {
        UNTIL_FAILURE.replace(nth) == 0
    }

    /// Asked before each allocation of the core.
    pub(crate) fn allocate() -> Result<(), Errno> {
        let left = UNTIL_FAILURE.get();
        UNTIL_FAILURE.set(left.saturating_sub(1));
        if left == 1 {
            Err(Errno::ENOMEM)
        } else {
            Ok(())
        }
    }

    /// What was broken before is so again, after a panic as well.
    struct Before(Option<Mutant>);

    impl Drop for Before {
        fn drop(&mut self) {
            ACTIVE.set(self.0);
        }
    }

    /// Runs `work` with one rule broken, on this thread alone: tests run side by side.
    pub fn with<R>(mutant: Mutant, work: impl FnOnce() -> R) -> R {
        let _before = Before(ACTIVE.replace(Some(mutant)));
        work()
    }

    /// Is the rule broken?
    #[inline]
    pub fn is_on(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant)
    }
}

#[cfg(not(feature = "mutants"))]
mod switch {
    use super::Mutant;

    /// Asked before each allocation of the core: it may be made.
    #[inline(always)]
    pub(crate) const fn allocate() -> Result<(), crate::types::Errno> {
        Ok(())
    }

    /// Is the rule broken? Never, without the feature `mutants`.
    #[inline(always)]
    pub const fn is_on(_: Mutant) -> bool {
        false
    }
}

pub use switch::*;
