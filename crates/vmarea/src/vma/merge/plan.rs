//! What a merge does to the map: data for `commit`.

use super::Proposal;
use super::survivor::Survivor;
use crate::types::{Pgoff, VmRange, VmaId};
use crate::vma::VmaView;
use smallvec::SmallVec;

/// How a merge changed the map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MergeKind {
    /// The VMA before grows over a new range.
    ExtendPrev,
    /// The VMA after grows over a new range.
    ExtendNext,
    /// A new range fills the gap between two, which become one.
    JoinAcross,
    /// The VMA before takes the whole changed VMA.
    PrevTakesAll,
    /// The VMA before takes the changed part.
    PrevTakesPart,
    /// The VMA after takes the whole changed VMA.
    NextTakesAll,
    /// The VMA after takes the changed part.
    NextTakesPart,
    /// Three become one.
    JoinThree,
}

impl MergeKind {
    /// All of them.
    pub const ALL: [MergeKind; 8] = [
        MergeKind::ExtendPrev,
        MergeKind::ExtendNext,
        MergeKind::JoinAcross,
        MergeKind::PrevTakesAll,
        MergeKind::PrevTakesPart,
        MergeKind::NextTakesAll,
        MergeKind::NextTakesPart,
        MergeKind::JoinThree,
    ];

    /// Short name, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            MergeKind::ExtendPrev => "extend_prev",
            MergeKind::ExtendNext => "extend_next",
            MergeKind::JoinAcross => "join_across",
            MergeKind::PrevTakesAll => "prev_takes_all",
            MergeKind::PrevTakesPart => "prev_takes_part",
            MergeKind::NextTakesAll => "next_takes_all",
            MergeKind::NextTakesPart => "next_takes_part",
            MergeKind::JoinThree => "join_three",
        }
    }
}

/// What `commit` has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// How it is counted.
    pub kind: MergeKind,
    /// The VMA that is left.
    pub target: VmaId,
    /// Its new addresses.
    pub range: VmRange,
    /// Its new page offset.
    pub pgoff: Pgoff,
    /// VMAs that go.
    pub remove: [Option<VmaId>; 2],
    /// A VMA that gives a part away: its new addresses and page offset.
    pub shrink: Option<(VmaId, VmRange, Pgoff)>,
    /// The VMA whose anon_vma and chain the target has afterwards; none where nobody has one. Pages
    /// of the others, and pages whose page offset does not fit the target's, are changed.
    pub anon_from: Option<VmaId>,
    /// Shared pages that are copied so that they can be changed.
    pub copies: u64,
}

impl Plan {
    /// The VMAs that go or give a part away.
    pub fn givers(&self) -> SmallVec<[VmaId; 3]> {
        let mut givers = SmallVec::new();
        self.remove.iter().flatten().for_each(|id| givers.push(*id));
        self.shrink.iter().for_each(|(id, ..)| givers.push(*id));
        givers
    }

    /// The VMA is part of it, as the one that is left or as one that goes or shrinks.
    pub fn takes(&self, id: VmaId) -> bool {
        self.target == id
            || self.remove.contains(&Some(id))
            || self.shrink.is_some_and(|(shrinks, ..)| shrinks == id)
    }
}

/// The plan for a range that joins `prev`, `next` or both, with what `survivor` says.
pub(super) fn plan(
    p: &Proposal,
    prev: Option<&VmaView>,
    next: Option<&VmaView>,
    survivor: Survivor,
) -> Option<Plan> {
    let middle = p.middle.as_ref();
    let whole = middle.is_some_and(|m| m.range == p.range);
    let target = prev.or(next)?;
    let start = prev.map_or(p.range.start, |v| v.range.start);
    let end = next.map_or(p.range.end, |v| v.range.end);
    let kind = match (prev.is_some(), next.is_some(), middle.is_some(), whole) {
        (true, true, false, _) => MergeKind::JoinAcross,
        (true, _, false, _) => MergeKind::ExtendPrev,
        (_, _, false, _) => MergeKind::ExtendNext,
        (true, true, true, _) => MergeKind::JoinThree,
        (true, false, true, true) => MergeKind::PrevTakesAll,
        (true, false, true, false) => MergeKind::PrevTakesPart,
        (false, _, true, true) => MergeKind::NextTakesAll,
        (false, _, true, false) => MergeKind::NextTakesPart,
    };
    let swallowed = next.filter(|_| prev.is_some()).map(|v| v.id);
    Some(Plan {
        kind,
        target: target.id,
        range: VmRange::new(start, end),
        pgoff: survivor.base.at(start),
        remove: [middle.filter(|_| whole).map(|m| m.id), swallowed],
        shrink: middle
            .filter(|_| !whole)
            .map(|m| shrunk(m, p, prev.is_some())),
        anon_from: survivor.holder,
        copies: survivor.copies,
    })
}

/// What is left of a VMA that gives its lower or upper part away.
fn shrunk(m: &VmaView, p: &Proposal, gives_lower: bool) -> (VmaId, VmRange, Pgoff) {
    if gives_lower {
        (
            m.id,
            VmRange::new(p.range.end, m.range.end),
            m.pgoff_at(p.range.end),
        )
    } else {
        (m.id, VmRange::new(m.range.start, p.range.start), m.pgoff)
    }
}
