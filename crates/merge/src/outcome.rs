//! Outcomes of merge attempts, named as in the thesis, and the observer that is notified of them.
//!
//! # Linux
//! Linux has no counterpart. The outcomes are those of the thesis's tracepoint (section 2.10, table
//! 2.2); `MERGE_OK` there is `AV_MERGE_NULL` here.

use crate::types::{AnonVmaId, MmId};
use crate::view::VmaView;
use crate::{Evidence, Proposal, Refusal, Verdict};

/// Outcome of a merge attempt with one neighbour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MergeOutcome {
    /// Refused for a reason other than the anon_vma (`MERGE_FAILED`).
    Failed,
    /// Refused because the anon_vmas differ and pages are shared or pinned (`AV_MERGE_FAILED`).
    AvFailed,
    /// Allowed: at least one of the two sides has no anon_vma (`AV_MERGE_NULL`).
    AvNull,
    /// Allowed: the anon_vmas are the same (`AV_MERGE_SAME`).
    AvSame,
    /// Allowed although the anon_vmas differ (`AV_MERGE_DIFFERENT`).
    AvDifferent,
}

impl MergeOutcome {
    /// All outcomes.
    pub const ALL: [MergeOutcome; 5] = [
        MergeOutcome::Failed,
        MergeOutcome::AvFailed,
        MergeOutcome::AvNull,
        MergeOutcome::AvSame,
        MergeOutcome::AvDifferent,
    ];

    /// Returns the name that the thesis uses.
    pub fn name(self) -> &'static str {
        match self {
            MergeOutcome::Failed => "MERGE_FAILED",
            MergeOutcome::AvFailed => "AV_MERGE_FAILED",
            MergeOutcome::AvNull => "AV_MERGE_NULL",
            MergeOutcome::AvSame => "AV_MERGE_SAME",
            MergeOutcome::AvDifferent => "AV_MERGE_DIFFERENT",
        }
    }

    /// Returns the outcome of an allowed merge attempt that was given up because of `why`.
    pub fn given_up(self, why: GivenUp) -> MergeOutcome {
        match (self, why) {
            (MergeOutcome::Failed | MergeOutcome::AvFailed, _) => self,
            (_, GivenUp::Page) => MergeOutcome::AvFailed,
            (_, GivenUp::Memory) => MergeOutcome::Failed,
        }
    }

    fn of(ours: Option<AnonVmaId>, other: &VmaView, refusal: Option<Refusal>) -> MergeOutcome {
        match (refusal, ours, other.anon_vma) {
            (Some(Refusal::AnonVma), ..) => MergeOutcome::AvFailed,
            (Some(Refusal::Pinned), Some(a), Some(b)) if a != b => MergeOutcome::AvFailed,
            (Some(_), ..) => MergeOutcome::Failed,
            (None, Some(a), Some(b)) if a != b => MergeOutcome::AvDifferent,
            (None, Some(_), Some(_)) => MergeOutcome::AvSame,
            (None, ..) => MergeOutcome::AvNull,
        }
    }
}

/// Reason why an allowed merge was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// The anon_vma or page offset of a page could not be changed.
    Page,
    /// Not enough memory or commit charge was available.
    Memory,
}

/// Outcomes of the comparisons in one merge attempt. An entry is `None` if the VMA is not adjacent
/// or was not considered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcomes {
    /// Outcome for the range and the previous VMA.
    pub prev: Option<MergeOutcome>,
    /// Outcome for the range and the next VMA.
    pub next: Option<MergeOutcome>,
    /// Outcome for the previous VMA and the next VMA; `None` unless each may merge with the range.
    pub both: Option<MergeOutcome>,
}

impl Outcomes {
    /// Returns the outcomes for a proposal between `prev` and `next` that was decided with
    /// `verdict`.
    pub fn of(p: &Proposal, [prev, next]: [Option<&VmaView>; 2], verdict: &Verdict) -> Outcomes {
        let [prev, next] = p.adjacent(prev, next);
        let Verdict {
            left, right, apart, ..
        } = *verdict;
        // If the neighbours do not merge with each other, each of them alone would merge with the
        // range.
        let alone = |refusal: Option<Refusal>| refusal.filter(|_| apart.is_none());
        let of = |v: &VmaView, refusal| MergeOutcome::of(p.anon_vma, v, alone(refusal));
        let both = prev.zip(next).filter(|_| alone(left.or(right)).is_none());
        Outcomes {
            prev: prev.map(|v| of(v, left)),
            next: next.map(|v| of(v, right)),
            both: both.map(|(l, r)| MergeOutcome::of(p.anon_vma.or(l.anon_vma), r, apart)),
        }
    }

    /// Returns [`of_borders`](Self::of_borders) for the arguments of [`of`](Self::of).
    pub fn borders(
        p: &Proposal,
        neighbours: [Option<&VmaView>; 2],
        verdict: &Verdict,
    ) -> [Option<MergeOutcome>; 2] {
        let [prev, next] = neighbours;
        let joins_all = verdict.left.is_none() && verdict.right.is_none();
        match p.adjacent(prev, next) {
            [Some(l), Some(r)] if joins_all && verdict.apart.is_none() => {
                let joined = p.anon_vma.or(l.anon_vma);
                let of = |own, v| Some(MergeOutcome::of(own, v, None));
                [of(p.anon_vma, l), of(joined, r)]
            }
            _ => Outcomes::of(p, neighbours, verdict).of_borders(),
        }
    }

    /// Returns, for each border of the range, the outcome that decides whether the border
    /// disappears.
    pub fn of_borders(self) -> [Option<MergeOutcome>; 2] {
        [self.prev, self.both.or(self.next)]
    }
}

/// The system call that makes a merge attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum CallKind {
    /// `mmap`.
    Mmap,
    /// `mprotect`, `pkey_mprotect`.
    Mprotect,
    /// `mremap` that moves a mapping.
    MremapMove,
    /// `mremap` that grows a mapping in place.
    MremapExpand,
    /// `brk`.
    Brk,
    /// `madvise`.
    Madvise,
    /// `mlock` and related calls.
    Mlock,
    /// `mbind`.
    Mbind,
    /// The merge collector.
    Collect,
    /// Any other call.
    #[default]
    Other,
}

impl CallKind {
    /// All kinds of call.
    pub const ALL: [CallKind; 10] = [
        CallKind::Mmap,
        CallKind::Mprotect,
        CallKind::MremapMove,
        CallKind::MremapExpand,
        CallKind::Brk,
        CallKind::Madvise,
        CallKind::Mlock,
        CallKind::Mbind,
        CallKind::Collect,
        CallKind::Other,
    ];

    /// Returns the short name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            CallKind::Mmap => "mmap",
            CallKind::Mprotect => "mprotect",
            CallKind::MremapMove => "mremap_move",
            CallKind::MremapExpand => "mremap_expand",
            CallKind::Brk => "brk",
            CallKind::Madvise => "madvise",
            CallKind::Mlock => "mlock",
            CallKind::Mbind => "mbind",
            CallKind::Collect => "collect",
            CallKind::Other => "other",
        }
    }
}

/// A decided merge attempt, before the merge is carried out.
#[derive(Clone, Copy)]
pub struct Attempt<'a> {
    /// The address space.
    pub mm: MmId,
    /// The kind of call.
    pub call: CallKind,
    /// The range and its intended attributes.
    pub proposal: &'a Proposal,
    /// The nearest VMA before the range.
    pub prev: Option<&'a VmaView>,
    /// The nearest VMA after the range.
    pub next: Option<&'a VmaView>,
    /// The decision.
    pub verdict: &'a Verdict,
    /// Source of information about pages. With it, an observer can repeat the decision under
    /// another policy.
    pub evidence: &'a dyn Evidence,
}

impl Attempt<'_> {
    /// Returns the outcomes of the three comparisons that the thesis traces.
    pub fn outcomes(&self) -> Outcomes {
        Outcomes::of(self.proposal, [self.prev, self.next], self.verdict)
    }
}

/// An observer of merge attempts. It is called with `mmap_lock` held and must not call into the
/// address space.
pub trait Observer: Send + Sync {
    /// Called when an attempt has been decided, before it is carried out.
    fn attempt(&self, attempt: &Attempt<'_>);
}
