//! What an attempt to merge came to, in the thesis's words, and who is told.
//!
//! # Linux
//! Not there: the tracepoint of the thesis, section 2.10, table 2.2. `MERGE_OK` is its
//! `AV_MERGE_NULL`.

use super::{Evidence, Proposal, Refusal, Verdict};
use crate::types::{AnonVmaId, MmId};
use crate::vma::VmaView;

/// Outcome of an attempt with one neighbour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MergeOutcome {
    /// Refused for another reason than the anon_vma (`MERGE_FAILED`).
    Failed,
    /// Refused because the anon_vmas differ and pages are shared or pinned (`AV_MERGE_FAILED`).
    AvFailed,
    /// Allowed: one of the two has no anon_vma (`AV_MERGE_NULL`).
    AvNull,
    /// Allowed: the anon_vmas are the same (`AV_MERGE_SAME`).
    AvSame,
    /// Allowed although the anon_vmas differ (`AV_MERGE_DIFFERENT`).
    AvDifferent,
}

impl MergeOutcome {
    /// All of them.
    pub const ALL: [MergeOutcome; 5] = [
        MergeOutcome::Failed,
        MergeOutcome::AvFailed,
        MergeOutcome::AvNull,
        MergeOutcome::AvSame,
        MergeOutcome::AvDifferent,
    ];

    /// The thesis's name.
    pub fn name(self) -> &'static str {
        match self {
            MergeOutcome::Failed => "MERGE_FAILED",
            MergeOutcome::AvFailed => "AV_MERGE_FAILED",
            MergeOutcome::AvNull => "AV_MERGE_NULL",
            MergeOutcome::AvSame => "AV_MERGE_SAME",
            MergeOutcome::AvDifferent => "AV_MERGE_DIFFERENT",
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

/// The call in which an attempt is made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum CallKind {
    /// `mmap`.
    Mmap,
    /// `mprotect`, `pkey_mprotect`.
    Mprotect,
    /// `mremap`, moving.
    MremapMove,
    /// `mremap`, growing in place.
    MremapExpand,
    /// `brk`.
    Brk,
    /// `madvise`.
    Madvise,
    /// `mlock` and its kin.
    Mlock,
    /// `mbind`.
    Mbind,
    /// The collector.
    Collect,
    /// Anything else.
    #[default]
    Other,
}

impl CallKind {
    /// All of them.
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

    /// Short name, as in reports.
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

/// One attempt, before it is carried out.
#[derive(Clone, Copy)]
pub struct Attempt<'a> {
    /// In which address space.
    pub mm: MmId,
    /// In which call.
    pub call: CallKind,
    /// The range as it is meant to be.
    pub proposal: &'a Proposal,
    /// The nearest VMA before.
    pub prev: Option<&'a VmaView>,
    /// The nearest VMA after.
    pub next: Option<&'a VmaView>,
    /// What was decided.
    pub verdict: &'a Verdict,
    /// What can be found out about pages, to ask another policy in the same state.
    pub evidence: &'a dyn Evidence,
}

impl Attempt<'_> {
    /// The outcome with the neighbour before and with the one after, where they touch and were asked.
    pub fn outcomes(&self) -> [Option<MergeOutcome>; 2] {
        let p = self.proposal;
        let at_start = p.middle.is_none_or(|m| m.range.start == p.range.start);
        let at_end = p.middle.is_none_or(|m| m.range.end == p.range.end);
        let prev = self
            .prev
            .filter(|v| at_start && v.range.end == p.range.start);
        let next = self.next.filter(|v| at_end && v.range.start == p.range.end);
        let left = prev.map(|v| MergeOutcome::of(p.anon_vma, v, self.verdict.left));
        // What joins both was compared with the first of them, too.
        let joined = prev
            .filter(|_| self.verdict.left.is_none())
            .and_then(|v| v.anon_vma);
        let ours = p.anon_vma.or(joined);
        let right = next.map(|v| MergeOutcome::of(ours, v, self.verdict.right));
        [left, right]
    }
}

/// Someone who is told of every attempt. Called with the mm's lock held: it must not call back.
pub trait Observer: Send + Sync {
    /// An attempt was decided.
    fn attempt(&self, attempt: &Attempt<'_>);
}
