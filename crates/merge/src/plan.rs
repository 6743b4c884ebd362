//! The changes that a merge makes to the map, as data for `commit`.

use crate::Proposal;
use crate::sides::Sides;
use crate::survivor::Survivor;
use crate::types::{PageOffsets, VmRange, VmaId};
use crate::view::VmaView;
use smallvec::SmallVec;

/// Kind of change that a merge makes to the map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MergeKind {
    /// The previous VMA grows over a new range.
    ExtendPrev,
    /// The next VMA grows over a new range.
    ExtendNext,
    /// A new range fills the gap between two VMAs, which become one.
    JoinAcross,
    /// The previous VMA takes over the whole changed VMA.
    PrevTakesAll,
    /// The previous VMA takes over the changed part.
    PrevTakesPart,
    /// The next VMA takes over the whole changed VMA.
    NextTakesAll,
    /// The next VMA takes over the changed part.
    NextTakesPart,
    /// Three VMAs become one.
    JoinThree,
}

impl MergeKind {
    /// All kinds of merge.
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

    /// Returns the short name that reports use.
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

/// A merge plan, which `commit` carries out.
///
/// [`Decision`](crate::Decision) has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Kind of the merge, for the statistics.
    pub kind: MergeKind,
    /// The VMA that remains.
    pub target: VmaId,
    /// New address range of the target.
    pub range: VmRange,
    /// New page offsets of the target.
    pub offsets: PageOffsets,
    /// VMAs that are removed.
    pub remove: [Option<VmaId>; 2],
    /// The VMA that loses a part, with its new address range.
    pub shrink: Option<(VmaId, VmRange)>,
    /// The VMA whose anon_vma and chain the target gets; `None` if no VMA has an anon_vma. Pages
    /// with another anon_vma, or with a page offset that does not fit the target's, are changed.
    pub anon_from: Option<VmaId>,
    /// Number of shared pages that have to be copied before they can be changed.
    pub copies: u64,
}

impl Plan {
    /// Returns the VMAs that are removed or lose a part.
    pub fn givers(&self) -> SmallVec<[VmaId; 3]> {
        let mut givers = SmallVec::new();
        self.remove.iter().flatten().for_each(|id| givers.push(*id));
        self.shrink.iter().for_each(|(id, _)| givers.push(*id));
        givers
    }

    /// Checks whether the plan involves the VMA, either as the target or by removing or shrinking
    /// it.
    pub fn takes(&self, id: VmaId) -> bool {
        self.target == id
            || self.remove.contains(&Some(id))
            || self.shrink.is_some_and(|(shrinks, _)| shrinks == id)
    }
}

/// Creates the plan for merging the proposal with `sides`, using the chosen `survivor`.
pub(super) fn plan(p: &Proposal, sides: Sides<'_>, survivor: Survivor) -> Plan {
    let middle = p.middle.as_ref();
    let whole = middle.is_some_and(|m| m.range == p.range);
    let kind = match (sides, middle.is_some(), whole) {
        (Sides::Both(..), false, _) => MergeKind::JoinAcross,
        (Sides::Prev(_), false, _) => MergeKind::ExtendPrev,
        (Sides::Next(_), false, _) => MergeKind::ExtendNext,
        (Sides::Both(..), true, _) => MergeKind::JoinThree,
        (Sides::Prev(_), true, true) => MergeKind::PrevTakesAll,
        (Sides::Prev(_), true, false) => MergeKind::PrevTakesPart,
        (Sides::Next(_), true, true) => MergeKind::NextTakesAll,
        (Sides::Next(_), true, false) => MergeKind::NextTakesPart,
    };
    let swallowed = match sides {
        Sides::Both(_, next) => Some(next.id),
        Sides::Prev(_) | Sides::Next(_) => None,
    };
    let gives_lower = matches!(sides, Sides::Prev(_));
    Plan {
        kind,
        target: sides.target().id,
        range: sides.range(p),
        offsets: survivor.offsets,
        remove: [middle.filter(|_| whole).map(|m| m.id), swallowed],
        shrink: middle.filter(|_| !whole).map(|m| shrunk(m, p, gives_lower)),
        anon_from: survivor.holder,
        copies: survivor.copies,
    }
}

/// Returns the id and the range of `m` after it has lost its lower or upper part.
fn shrunk(m: &VmaView, p: &Proposal, gives_lower: bool) -> (VmaId, VmRange) {
    let range = if gives_lower {
        VmRange::new(p.range.end, m.range.end)
    } else {
        VmRange::new(m.range.start, p.range.start)
    };
    (m.id, range)
}
