//! The merge decision: a pure function of snapshots of a range, its VMA and its neighbours.
//!
//! The crate decides which VMAs may merge under a [`Policy`](policy::Policy), and gives the reason
//! for each refusal. It only reads [`VmaView`]s, so a program with its own VMA implementation can
//! use it too. For VMAs that are known only from `/proc/PID/smaps`, see [`partial_view`].
//!
//! ```
//! use vmarea_merge::policy::Policy;
//! use vmarea_merge::types::{AnonVmaId, PageOffsets, VmFlags, VmRange, VmaId};
//! use vmarea_merge::view::{VmaBody, VmaView};
//! use vmarea_merge::{Refusal, why_apart};
//!
//! let body = VmaBody { flags: VmFlags::READ | VmFlags::WRITE, ..VmaBody::default() };
//! let vma = |id, start, end| VmaView {
//!     id: VmaId::from_bits(id).expect("not 0"),
//!     range: VmRange::new(start, end),
//!     offsets: PageOffsets::ADDRESS,
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
//! The result contains a [`Plan`] if the range can merge, and the reason for each refused merge.
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
//! Some policies allow more merges than Linux does. Such merges give pages another anon_vma or page
//! offset. The decision queries [`Evidence`] to find out whether these pages may be changed.
//!
//! # Linux
//! `mm/vma.c` 6.18: `is_mergeable_vma`, `is_mergeable_anon_vma`, `can_vma_merge_before`, `_after`,
//! `_left`, `_right`, `vma_merge_new_range`, `vma_merge_existing_range`. Kernels up to 6.15 differ
//! if only one side has an anon_vma ([`OneSided`](policy::rules::OneSided)).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod decide;
#[cfg(test)]
mod fast_paths;
mod outcome;
pub mod partial_view;
mod plan;
pub mod policy;
mod refusal;
mod relocate;
mod sides;
mod survivor;
pub mod types;
pub mod view;

pub use decide::{Decision, why_apart};
pub use outcome::{Attempt, CallKind, GivenUp, MergeOutcome, Observer, Outcomes};
pub use plan::{MergeKind, Plan};
pub use refusal::Refusal;
pub use relocate::{Relocation, lent_anon_vma};

use types::{AnonVmaId, PageOffsets, VmRange};
use view::{VmaBody, VmaView};

/// A range and its intended attributes, as input to the merge decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// Address range of the proposal.
    pub range: VmRange,
    /// Page offsets of the range's pages.
    pub offsets: PageOffsets,
    /// Attributes that the range will have.
    pub body: VmaBody,
    /// The anon_vma of the range's pages; `None` if the range is unfaulted.
    pub anon_vma: Option<AnonVmaId>,
    /// The VMA that already contains the range; `None` for a new range.
    pub middle: Option<VmaView>,
    /// The source VMA of an `mremap` to a new range, clipped to the pages that move.
    pub copied_from: Option<VmaView>,
}

impl Proposal {
    /// Creates a proposal for a new range without pages.
    pub fn unfaulted(range: VmRange, offsets: PageOffsets, body: VmaBody) -> Proposal {
        Proposal {
            range,
            offsets,
            body,
            anon_vma: None,
            middle: None,
            copied_from: None,
        }
    }

    /// Returns the neighbours that the range touches. On a side where the range's own VMA extends
    /// beyond the range, there is no such neighbour.
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

    /// Creates a proposal for an existing VMA with its present attributes.
    pub fn unchanged(vma: &VmaView) -> Proposal {
        Proposal {
            range: vma.range,
            offsets: vma.offsets,
            body: vma.body,
            anon_vma: vma.anon_vma,
            middle: Some(*vma),
            copied_from: None,
        }
    }
}

/// Neighbours with which the range may be merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MergeScope {
    /// Both neighbours.
    Both,
    /// Both neighbours, but the next VMA has priority: if it has an anon_vma that the previous VMA
    /// does not share, the range merges with the next VMA only (`mmap` in 6.1).
    NextFirst,
    /// Only the previous VMA: `brk` extends the heap and never merges it with the VMA after it.
    PrevOnly,
    /// Only the previous VMA, which is the mapping that grows. Growth is not a merge, so a `close`
    /// hook does not prevent it.
    Itself,
}

/// The result of a merge decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The plan to carry out; `None` if the range merges with neither side.
    pub plan: Option<Plan>,
    /// Reason why the range does not merge with the previous VMA. `None` if it merges, or if that
    /// VMA is not adjacent.
    pub left: Option<Refusal>,
    /// Reason why the range does not merge with the next VMA. `None` if it merges, if that VMA is
    /// not adjacent, or if the [`MergeScope`] excludes it.
    pub right: Option<Refusal>,
    /// Reason why the two neighbours do not merge, although each alone could merge with the range.
    /// Either `left` or `right` then contains the same reason.
    pub apart: Option<Refusal>,
    /// Page offsets of the range. After a move, they are those of the new address if the policy
    /// permits the change.
    pub offsets: PageOffsets,
    /// Whether the pages of a moved range are relocated; `None` if they have no reason to be, or
    /// the policy has no relocation.
    pub relocation: Option<Relocation>,
}

/// Source of information about pages; queried only if a policy needs it, because it is expensive.
///
/// ```
/// use vmarea_merge::policy::Policy;
/// use vmarea_merge::types::{AnonVmaId, PageOffsets, VmRange, VmaId};
/// use vmarea_merge::view::{VmaBody, VmaView};
/// use vmarea_merge::{AssumeShared, Decision, Evidence, Sharing};
///
/// /// A process that has never forked shares no page.
/// struct Alone;
///
/// impl Evidence for Alone {
///     fn sharing(&self, _vma: &VmaView, _range: VmRange) -> Sharing {
///         Sharing::NONE
///     }
/// }
///
/// let vma = |id, start, end| VmaView {
///     id: VmaId::from_bits(id).expect("not 0"),
///     range: VmRange::new(start, end),
///     offsets: PageOffsets::ADDRESS,
///     anon_vma: AnonVmaId::from_bits(id),
///     chain_singular: true,
///     body: VmaBody::default(),
/// };
/// let (low, high) = (vma(1, 0x1000, 0x3000), vma(2, 0x3000, 0x4000));
/// let refusal = |evidence: &dyn Evidence| {
///     Decision { policy: &Policy::THESIS, evidence }.refusal(&low, &high)
/// };
/// // The policy merges different anon_vmas, but only if no other process maps the pages.
/// assert_eq!(refusal(&Alone), None);
/// assert!(refusal(&AssumeShared).is_some());
/// ```
pub trait Evidence {
    /// Reports how the pages of `range`, which is part of `vma`, are shared with other processes.
    fn sharing(&self, vma: &VmaView, range: VmRange) -> Sharing;
}

/// How the pages of a range are shared with other processes, and how many are pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharing {
    /// True if the anon_vma has a parent, or is in the chain of a VMA with another anon_vma.
    pub family: bool,
    /// Number of pages that another process maps as well.
    pub pages: u64,
    /// Number of pinned pages; their anon_vma and page offset must not change.
    pub pinned: u64,
}

impl Sharing {
    /// Value for pages that are neither shared nor pinned.
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
