//! The merge decision: a pure function of snapshots of the VMAs before, in and after a range.
//!
//! The crate decides which VMAs may merge under a [`Policy`](policy::Policy), and gives the reason
//! for each refusal. It reads [`VmaView`]s and modifies nothing, so it also serves those who have
//! VMAs of their own, or only what `/proc/PID/smaps` shows ([`partial_view`]).
//!
//! ```
//! use vmarea_merge::policy::Policy;
//! use vmarea_merge::types::{AnonVmaId, Pgoff, VmFlags, VmRange, VmaId};
//! use vmarea_merge::view::{VmaBody, VmaView};
//! use vmarea_merge::{Refusal, why_apart};
//!
//! let body = VmaBody { flags: VmFlags::READ | VmFlags::WRITE, ..VmaBody::default() };
//! let vma = |id, start, end| VmaView {
//!     id: VmaId::from_bits(id).expect("not 0"),
//!     range: VmRange::new(start, end),
//!     pgoff: Pgoff::of_addr(start),
//!     anon_vma: AnonVmaId::from_bits(id),
//!     chain_singular: true,
//!     body,
//! };
//! let (low, high) = (vma(1, 0x1000, 0x3000), vma(2, 0x3000, 0x4000));
//! assert_eq!(why_apart(&Policy::LINUX, &low, &high), Some(Refusal::AnonVma));
//! let unfaulted = VmaView { anon_vma: None, ..high };
//! assert_eq!(why_apart(&Policy::LINUX, &low, &unfaulted), None);
//! ```
//!
//! Every call that creates or changes a mapping asks whether the range can merge with a neighbour.
//! The result is a [`Plan`] and, for each side, the reason for a refusal.
//!
//! # Picture
//! ```text
//! a new range                        an existing one with new attributes (*)
//!   PPPP....NNNN                       PPPP****NNNN   PPPP****----   ----****NNNN
//!   PPPPPPPP     ExtendPrev            PPPPPPPPPPPP   PPPPPPPP----   ----NNNNNNNN
//!       NNNNNNNN ExtendNext            JoinThree      PrevTakesPart  NextTakesPart
//!   PPPPPPPPPPPP JoinAcross            (PrevTakesAll, NextTakesAll: without the ----)
//! ```
//!
//! Some policies allow more merges than Linux. Such a merge changes the pages of a VMA whose
//! anon_vma does not survive, and pages that need another page offset. The decision queries
//! [`Evidence`] to find out whether these pages may change.
//!
//! # Linux
//! `mm/vma.c` 6.18: `is_mergeable_vma`, `is_mergeable_anon_vma`, `can_vma_merge_before`, `_after`,
//! `_left`, `_right`, `vma_merge_new_range`, `vma_merge_existing_range`. Kernels up to 6.15 differ
//! if only one side has an anon_vma ([`OneSided`](policy::rules::OneSided)).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod decide;
mod outcome;
pub mod partial_view;
mod plan;
pub mod policy;
mod refusal;
mod sides;
mod survivor;
pub mod types;
pub mod view;

pub use decide::{Decision, why_apart};
pub use outcome::{Attempt, CallKind, GivenUp, MergeOutcome, Observer, Outcomes};
pub use plan::{MergeKind, Plan};
pub use refusal::Refusal;

use types::{AnonVmaId, Pgoff, VmRange};
use view::{VmaBody, VmaView};

/// A range and its intended attributes, as input to the merge decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// Address range of the proposal.
    pub range: VmRange,
    /// Page offset of the first page.
    pub pgoff: Pgoff,
    /// Attributes that the range will have.
    pub body: VmaBody,
    /// The anon_vma of the range's pages; `None` if the range is unfaulted.
    pub anon_vma: Option<AnonVmaId>,
    /// The VMA that contains the range now; `None` for a new range.
    pub middle: Option<VmaView>,
    /// The source VMA of an `mremap` to a new range, clipped to the pages that move.
    pub copied_from: Option<VmaView>,
}

impl Proposal {
    /// Proposes a new range without pages.
    pub fn unfaulted(range: VmRange, pgoff: Pgoff, body: VmaBody) -> Proposal {
        Proposal {
            range,
            pgoff,
            body,
            anon_vma: None,
            middle: None,
            copied_from: None,
        }
    }

    /// Returns the neighbours that the range touches. If the range is part of a VMA, it touches no
    /// neighbour on a side on which that VMA continues.
    pub(crate) fn adjacent<'v>(
        &self,
        prev: Option<&'v VmaView>,
        next: Option<&'v VmaView>,
    ) -> [Option<&'v VmaView>; 2] {
        let VmRange { start, end } = self.range;
        let at_start = self.middle.is_none_or(|m| m.range.start == start);
        let at_end = self.middle.is_none_or(|m| m.range.end == end);
        [
            prev.filter(|v| at_start && v.range.end == start),
            next.filter(|v| at_end && v.range.start == end),
        ]
    }

    /// Proposes an existing VMA with its present attributes.
    pub fn unchanged(vma: &VmaView) -> Proposal {
        Proposal {
            range: vma.range,
            pgoff: vma.pgoff,
            body: vma.body,
            anon_vma: vma.anon_vma,
            middle: Some(*vma),
            copied_from: None,
        }
    }
}

/// Neighbours that the decision may merge with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MergeScope {
    /// Both neighbours.
    Both,
    /// Both neighbours, the next VMA first: the previous VMA must then match the next one, as if
    /// the range had its anon_vma (`mmap` of 6.1).
    NextFirst,
    /// Only the previous VMA: the heap grows by `brk` and never merges with the VMA after it.
    PrevOnly,
    /// Only the previous VMA, which is the mapping that grows. Because nothing is merged, a `close`
    /// hook cannot prevent the growth.
    Itself,
}

/// The result of a merge decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The plan to carry out; `None` if the range merges with neither side.
    pub plan: Option<Plan>,
    /// Reason why the range does not merge with the previous VMA. `None` if it merges, or if no
    /// such VMA is adjacent.
    pub left: Option<Refusal>,
    /// Reason why the range does not merge with the next VMA. `None` if it merges, or if no such
    /// VMA is adjacent and in scope.
    pub right: Option<Refusal>,
    /// Reason why the two neighbours do not merge with each other although each of them may merge
    /// with the range. One of `left` and `right` is then the same.
    pub apart: Option<Refusal>,
    /// Page offset of the range. If faulted pages may follow a move under the policy, this is the
    /// page offset of the new address.
    pub pgoff: Pgoff,
}

/// Information about pages that is expensive to get, requested only if a policy needs it.
pub trait Evidence {
    /// Reports how the pages of `range`, which is part of `vma`, are shared with other processes.
    fn sharing(&self, vma: &VmaView, range: VmRange) -> Sharing;
}

/// Sharing of the pages of a range with other processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharing {
    /// True if the anon_vma has a parent, or if a VMA with another anon_vma has it in its chain.
    pub family: bool,
    /// Number of pages that another process maps as well.
    pub pages: u64,
    /// Number of pinned pages; these must not change.
    pub pinned: u64,
}

impl Sharing {
    /// Result for pages that are neither shared nor pinned.
    pub const NONE: Sharing = Sharing {
        family: false,
        pages: 0,
        pinned: 0,
    };
}

/// Evidence that reports every page as shared.
#[derive(Clone, Copy, Debug)]
pub struct AssumeShared;

impl Evidence for AssumeShared {
    fn sharing(&self, _: &VmaView, _: VmRange) -> Sharing {
        Sharing {
            family: true,
            pages: u64::MAX,
            pinned: 0,
        }
    }
}
