//! The merge decision: pure, over views of what lies before, in and after a range.
//!
//! Every call that makes or changes a mapping asks here whether the range can join a neighbour. The
//! answer is a [`Plan`] for `commit`, and for each side the reason why it was refused. Nothing is
//! changed here.
//!
//! # Picture
//! ```text
//! a new range                        an existing one with new attributes (*)
//!   PPPP....NNNN                       PPPP****NNNN   PPPP****----   ----****NNNN
//!   PPPPPPPP     ExtendPrev            PPPPPPPPPPPP   PPPPPPPP----   ----NNNNNNNN
//!       NNNNNNNN ExtendNext            JoinThree      PrevTakesPart  NextTakesPart
//!   PPPPPPPPPPPP JoinAcross            (PrevTakesAll, NextTakesAll: nothing is left of it)
//! ```
//!
//! Policies that go past Linux change pages: those of a VMA whose anon_vma does not survive, and those
//! whose page offset does not fit. Whether that may be is asked as [`Evidence`].
//!
//! # Linux
//! `mm/vma.c` 6.18: `is_mergeable_vma`, `is_mergeable_anon_vma`, `can_vma_merge_before`, `_after`,
//! `_left`, `_right`, `vma_merge_new_range`, `vma_merge_existing_range`. 6.12 and older differ where
//! only one side has an anon_vma ([`OneSided`](crate::policy::rules::OneSided)).

mod decide;
mod outcome;
mod plan;
mod refusal;
mod survivor;

pub use decide::{Decision, why_apart};
pub use outcome::{Attempt, CallKind, MergeOutcome, Observer};
pub use plan::{MergeKind, Plan};
pub use refusal::Refusal;

use super::{VmaBody, VmaView};
use crate::types::{AnonVmaId, Pgoff, VmRange};

/// The range that would join its neighbours, as it is meant to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// Its addresses.
    pub range: VmRange,
    /// Offset of its first page.
    pub pgoff: Pgoff,
    /// What it will be like.
    pub body: VmaBody,
    /// The anon_vma of its pages, where it has any.
    pub anon_vma: Option<AnonVmaId>,
    /// The VMA that it is part of now; none for a new range.
    pub middle: Option<VmaView>,
    /// For a new range that `mremap` fills: the VMA that its pages come from, cut to those pages.
    pub copied_from: Option<VmaView>,
}

/// Which neighbours may be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MergeScope {
    /// Both.
    Both,
    /// Both, the one after first: the one before must then fit that, as if the range had its anon_vma
    /// (`mmap` of 6.1).
    NextFirst,
    /// Only the one before (`brk` grows, and never joins what follows).
    PrevOnly,
    /// Only the one before, which is the same mapping and grows: nothing is merged, so that no hook
    /// can forbid it.
    Itself,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// What to do; nothing where no side agreed.
    pub plan: Option<Plan>,
    /// Why not with the VMA before, where there is one that touches.
    pub left: Option<Refusal>,
    /// Why not with the VMA after, where there is one that touches.
    pub right: Option<Refusal>,
    /// The page offset of the range: where a policy lets faulted pages follow a move this is that of
    /// the new place.
    pub pgoff: Pgoff,
}

/// Evidence that costs something, asked for only where a policy needs it.
pub trait Evidence {
    /// How far the pages of `range`, which is part of `vma`, are shared with other processes.
    fn sharing(&self, vma: &VmaView, range: VmRange) -> Sharing;
}

/// How far pages are shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharing {
    /// The anon_vma has a parent, or a VMA with another anon_vma hangs on it.
    pub family: bool,
    /// Pages that another process maps as well.
    pub pages: u64,
    /// Pages that are pinned, and so must stay as they are.
    pub pinned: u64,
}

impl Sharing {
    /// Nobody else has any of it.
    pub const NONE: Sharing = Sharing {
        family: false,
        pages: 0,
        pinned: 0,
    };
}

/// No evidence: everything counts as shared.
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
