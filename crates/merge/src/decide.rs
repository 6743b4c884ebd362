//! The checks of the merge decision. Attributes are compared in the same order as in Linux.

use crate::plan::plan;
use crate::policy::Policy;
use crate::policy::rules::{CloseHook, OneSided};
use crate::sides::Sides;
use crate::survivor::{Chooser, Obstacle, Survivor};
use crate::types::{FileId, PageOffsets, VmFlags, VmRange};
use crate::view::{MappedFile, VmaBody, VmaView};
use crate::{AssumeShared, Evidence, MergeScope, Proposal, Refusal, Verdict};

/// Decides proposed merges under one policy.
///
/// ```
/// use vmarea_merge::policy::Policy;
/// use vmarea_merge::types::{PageOffsets, VmFlags, VmRange, VmaId};
/// use vmarea_merge::view::{VmaBody, VmaView};
/// use vmarea_merge::{AssumeShared, Decision, MergeKind, MergeScope, Proposal};
///
/// let body = VmaBody { flags: VmFlags::READ | VmFlags::WRITE, ..VmaBody::default() };
/// let vma = |id, start, end| VmaView {
///     id: VmaId::from_bits(id).expect("not 0"),
///     range: VmRange::new(start, end),
///     offsets: PageOffsets::ADDRESS,
///     anon_vma: None,
///     chain_singular: true,
///     body,
/// };
/// let (low, high) = (vma(1, 0x1000, 0x3000), vma(2, 0x5000, 0x6000));
/// let decision = Decision { policy: &Policy::LINUX, evidence: &AssumeShared };
///
/// // A new mapping fills the gap between the two.
/// let range = VmRange::new(0x3000, 0x5000);
/// let new = Proposal::unfaulted(range, PageOffsets::ADDRESS, body);
/// let verdict = decision.decide(&new, Some(&low), Some(&high), MergeScope::Both);
/// let plan = verdict.plan.expect("nothing differs");
/// assert_eq!((plan.kind, plan.target), (MergeKind::JoinAcross, low.id));
/// assert_eq!(plan.range, VmRange::new(0x1000, 0x6000));
/// assert!(plan.takes(high.id));
///
/// // The heap never merges with the VMA above it.
/// let verdict = decision.decide(&new, Some(&low), Some(&high), MergeScope::PrevOnly);
/// assert_eq!(verdict.plan.map(|plan| plan.kind), Some(MergeKind::ExtendPrev));
/// ```
pub struct Decision<'a> {
    /// Policy that the decision follows.
    pub policy: &'a Policy,
    /// Source of information about how pages are shared.
    pub evidence: &'a dyn Evidence,
}

/// Returns why the adjacent VMAs `a` and `b` are separate: the refusal that a call on `b` would get
/// if it changed no attribute. Returns `None` if they would merge.
pub fn why_apart(policy: &Policy, a: &VmaView, b: &VmaView) -> Option<Refusal> {
    let proposal = Proposal::unchanged(b);
    Decision {
        policy,
        evidence: &AssumeShared,
    }
    .decide(&proposal, Some(a), None, MergeScope::Both)
    .left
}

impl Decision<'_> {
    /// Returns why a call that changes no attribute would not merge the VMAs `a` and `b`.
    ///
    /// The VMAs must be adjacent. Returns `None` if such a call would merge them. Both directions
    /// are decided (`b` merges into `a`, and `a` into `b`), because kernels before 6.16 may decide
    /// them differently. If both are refused, returns the refusal whose check comes first.
    ///
    /// ```
    /// use vmarea_merge::policy::Policy;
    /// use vmarea_merge::types::{PageOffsets, VmFlags, VmRange, VmaId};
    /// use vmarea_merge::view::{VmaBody, VmaView};
    /// use vmarea_merge::{AssumeShared, Decision, Refusal};
    ///
    /// let low = VmaView {
    ///     id: VmaId::from_bits(1).expect("not 0"),
    ///     range: VmRange::new(0x1000, 0x3000),
    ///     offsets: PageOffsets::ADDRESS,
    ///     anon_vma: None,
    ///     chain_singular: true,
    ///     body: VmaBody { flags: VmFlags::READ, ..VmaBody::default() },
    /// };
    /// let named = VmaBody { name: 1, ..low.body };
    /// let high = VmaView {
    ///     id: VmaId::from_bits(2).expect("not 0"),
    ///     range: VmRange::new(0x3000, 0x4000),
    ///     body: named,
    ///     ..low
    /// };
    /// let decision = Decision { policy: &Policy::LINUX, evidence: &AssumeShared };
    /// assert_eq!(decision.refusal(&low, &high), Some(Refusal::Name));
    /// ```
    pub fn refusal(&self, a: &VmaView, b: &VmaView) -> Option<Refusal> {
        let decide = |vma: &VmaView, prev, next| {
            self.decide(&Proposal::unchanged(vma), prev, next, MergeScope::Both)
        };
        let left = decide(b, Some(a), None).left?;
        let right = decide(a, None, Some(b)).right?;
        Some(left.min(right))
    }

    /// Decides whether the range may merge with `prev`, `next` or both.
    ///
    /// `prev` and `next` should be adjacent to the range; a VMA that is not adjacent is ignored.
    pub fn decide(
        &self,
        p: &Proposal,
        prev: Option<&VmaView>,
        next: Option<&VmaView>,
        scope: MergeScope,
    ) -> Verdict {
        let verdict = self.decide_as_it_is(p, prev, next, scope);
        if verdict.plan.is_none() && self.policy.merging.relocate {
            return self.relocated(p, [prev, next], scope, verdict);
        }
        verdict
    }

    /// Decides like [`decide`](Self::decide), without a relocation.
    #[inline(always)]
    pub(crate) fn decide_as_it_is(
        &self,
        p: &Proposal,
        prev: Option<&VmaView>,
        next: Option<&VmaView>,
        scope: MergeScope,
    ) -> Verdict {
        let mut case = self.case(p, scope);
        let offsets = case.offsets;
        let [prev, next] = p.adjacent(prev, next);
        let next = next.filter(|_| !matches!(scope, MergeScope::PrevOnly | MergeScope::Itself));
        if let Some(verdict) = case.all_alike(prev, next) {
            return verdict;
        }
        let mut left = prev.map(|v| case.one_side(v).map(|s| (v, s)));
        let mut right = next.map(|v| case.one_side(v).map(|s| (v, s)));
        let mut apart = None;
        // P and N are the neighbours, and `*` the range that may join them.
        let plan = match (left, right) {
            // PPP***NNN ▶ PPPNNNNNN: N has priority, and P has another anon_vma
            (Some(Ok((l, _))), Some(Ok((r, alone))))
                if scope == MergeScope::NextFirst
                    && r.anon_vma.is_some()
                    && l.anon_vma != r.anon_vma =>
            {
                let refusal = Refusal::AnonVma;
                (apart, left) = (Some(refusal), Some(Err(refusal)));
                Some(plan(p, Sides::Next(r), alone))
            }
            (Some(Ok((l, alone))), Some(Ok((r, _)))) => match case.both(l, r, alone) {
                // PPP***NNN ▶ PPPPPPPPP: N is removed, and so is a VMA under `*`
                Ok(survivor) => Some(plan(p, Sides::Both(l, r), survivor)),
                Err(refusal) => {
                    // PPP***NNN ▶ PPPPPPNNN: P and N each match `*` but not each other; P has
                    // priority
                    (apart, right) = (Some(refusal), Some(Err(refusal)));
                    Some(plan(p, Sides::Prev(l), alone))
                }
            },
            // PPP***xxx ▶ PPPPPPxxx: there is no next VMA, or it does not match
            (Some(Ok((l, alone))), _) => Some(plan(p, Sides::Prev(l), alone)),
            // xxx***NNN ▶ xxxNNNNNN: N is extended downwards
            (_, Some(Ok((r, alone)))) => Some(plan(p, Sides::Next(r), alone)),
            // xxx***xxx: the range is not merged
            _ => None,
        };
        Verdict {
            plan,
            left: left.and_then(Result::err),
            right: right.and_then(Result::err),
            apart,
            offsets,
            relocation: None,
        }
    }

    #[inline(always)]
    fn case<'c>(&'c self, p: &'c Proposal, scope: MergeScope) -> Case<'c> {
        let mut chooser = Chooser::new(self.policy, self.evidence);
        let (offsets, unpinned) = self.offsets(p, &mut chooser);
        Case {
            policy: self.policy,
            chooser,
            p,
            offsets,
            grows: scope == MergeScope::Itself,
            unpinned,
        }
    }

    /// Returns the range's page offsets if the range does not merge, and the page offsets that it
    /// would have if no page were pinned (`None` if the same). If `mremap` moves an unfaulted
    /// anonymous range, the page offsets are those of the new address. A faulted range gets these
    /// page offsets only if the policy allows it and no page is shared or pinned.
    fn offsets(
        &self,
        p: &Proposal,
        chooser: &mut Chooser<'_>,
    ) -> (PageOffsets, Option<PageOffsets>) {
        let follows = PageOffsets::ADDRESS;
        let Some(from) = p.copied_from.as_ref().filter(|_| p.offsets != follows) else {
            return (p.offsets, None);
        };
        if !from.is_anonymous() {
            let counted = self.policy.rules.anon_offsets(&from.body, p.offsets);
            let unfaulted = from.anon_vma.is_none();
            return (if unfaulted { counted } else { p.offsets }, None);
        }
        if from.anon_vma.is_none() {
            return (follows, None);
        }
        if !self.policy.merging.update_pgoff {
            return (p.offsets, None);
        }
        match chooser.may_change(from, from.range) {
            Ok(0) => (follows, None),
            Err(Obstacle::Pinned { copies: 0 }) => (p.offsets, Some(follows)),
            Ok(_) | Err(_) => (p.offsets, None),
        }
    }
}

/// A merge proposal under evaluation.
struct Case<'a> {
    policy: &'a Policy,
    chooser: Chooser<'a>,
    p: &'a Proposal,
    offsets: PageOffsets,
    /// True if the range extends the previous VMA (see [`MergeScope::Itself`]).
    grows: bool,
    /// Page offsets that the range would have if no page were pinned; `None` if they would be the
    /// same.
    unpinned: Option<PageOffsets>,
}

impl Case<'_> {
    /// Returns the verdict if there are two neighbours, and everything about the three parts is
    /// equal, so that every check of the general case would succeed.
    #[inline(always)]
    fn all_alike(&self, prev: Option<&VmaView>, next: Option<&VmaView>) -> Option<Verdict> {
        let (Some(prev), Some(next)) = (prev, next) else {
            return None;
        };
        let (p, policy) = (self.p, self.policy);
        let closes = |body: &VmaBody| body.has_close();
        let like_range = |vma: &VmaView| {
            vma.anon_vma == p.anon_vma
                && vma.offsets == p.offsets
                && !closes(&vma.body)
                && same_body(&p.body, &vma.body, policy.sticky()).is_ok()
        };
        let alike = policy.own.is_none()
            && !policy.merging.spread_charge
            && !p.body.flags.intersects(VmFlags::SPECIAL)
            && self.offsets == p.offsets
            && !self.moves_apart()
            && !p.middle.as_ref().is_some_and(|m| closes(&m.body))
            && like_range(prev)
            && like_range(next)
            && !closes(&p.body);
        let merged = VmRange::new(prev.range.start, next.range.end);
        // What `Chooser::survivor` returns if no page changes.
        let survivor = Survivor {
            holder: p.anon_vma.map(|_| prev.id),
            offsets: p.offsets,
            copies: 0,
        };
        (alike && p.offsets.holds(merged)).then(|| Verdict {
            plan: Some(plan(p, Sides::Both(prev, next), survivor)),
            left: None,
            right: None,
            apart: None,
            offsets: self.offsets,
            relocation: None,
        })
    }

    /// Checks the range against one neighbour only.
    fn one_side(&mut self, other: &VmaView) -> Result<Survivor, Refusal> {
        let p = self.p;
        if p.body.flags.intersects(VmFlags::SPECIAL) {
            let hugetlb = p.body.flags.contains(VmFlags::HUGETLB);
            return Err(if hugetlb {
                Refusal::Hugetlb
            } else {
                Refusal::Special
            });
        }
        if self.moves_apart() {
            return Err(Refusal::Userfaultfd);
        }
        let whole = p.middle.is_some_and(|m| m.range == p.range);
        if p.middle.is_some_and(|m| whole && m.body.has_close()) {
            return Err(Refusal::CloseHook);
        }
        let closes = other.body.has_close() || p.body.has_close();
        let never = self.policy.rules.close_hook == CloseHook::NeverMerges;
        if never && closes && !self.grows {
            return Err(Refusal::CloseHook);
        }
        let mut theirs = other.body;
        if self.policy.merging.spread_charge {
            // The code that carries out the merge charges the part that is not charged.
            theirs.flags -= VmFlags::ACCOUNT;
            theirs.flags |= p.body.flags & VmFlags::ACCOUNT;
        }
        same_body(&p.body, &theirs, self.policy.sticky())?;
        self.same_anon_vma(other)?;
        self.same_offsets(other)?;
        let refused = self.policy.own.refuses(p, other);
        if let Some(refusal) = refused.filter(|_| !self.grows) {
            return Err(refusal);
        }
        let sides = if other.range.end == p.range.start {
            Sides::Prev(other)
        } else {
            Sides::Next(other)
        };
        self.survivor(sides, p.anon_vma == other.anon_vma)
    }

    /// True if the range moves, and no neighbour of its new place may take it in, because it was
    /// watched by a userfaultfd.
    fn moves_apart(&self) -> bool {
        let watched = |from: &VmaView| from.body.uffd != 0;
        self.policy.rules.uffd_moves_apart && self.p.copied_from.as_ref().is_some_and(watched)
    }

    /// Returns the surviving anon_vma and page offsets. If shared pages prevent the merge, the
    /// refusal is `PageOffset` if `same_anon_vma` is true, otherwise `AnonVma`.
    fn survivor(&mut self, sides: Sides<'_>, same_anon_vma: bool) -> Result<Survivor, Refusal> {
        let survivor = self.chooser.survivor(self.p, sides);
        survivor.map_err(|obstacle| match obstacle {
            Obstacle::Pinned { .. } => Refusal::Pinned,
            Obstacle::Shared if same_anon_vma => Refusal::PageOffset,
            Obstacle::Shared => Refusal::AnonVma,
        })
    }

    /// Checks a merge with both neighbours, each of which can merge with the range on its own.
    /// `alone` is the survivor of a merge with `prev` only.
    fn both(
        &mut self,
        prev: &VmaView,
        next: &VmaView,
        alone: Survivor,
    ) -> Result<Survivor, Refusal> {
        if next.body.has_close() {
            return Err(Refusal::CloseHook);
        }
        // Each side alone may be within a limit that all three ranges together exceed.
        let with_prev = Proposal {
            range: VmRange::new(prev.range.start, self.p.range.end),
            offsets: prev.offsets,
            ..*self.p
        };
        if let Some(refusal) = self.policy.own.refuses(&with_prev, next) {
            return Err(refusal);
        }
        // The reason for a refusal depends on the anon_vma that `prev` and the range have after
        // they have been merged.
        let joined = if alone.holder == Some(prev.id) {
            prev.anon_vma
        } else {
            self.p.anon_vma
        };
        self.survivor(Sides::Both(prev, next), joined == next.anon_vma)
    }

    /// Checks whether the anon_vmas permit a merge. If only one side has an anon_vma, the kernel's
    /// rule on chains decides (`one_sided`). If the two sides have different anon_vmas, the policy
    /// decides.
    fn same_anon_vma(&self, other: &VmaView) -> Result<(), Refusal> {
        let p = self.p;
        let joins = match (p.anon_vma, other.anon_vma) {
            (None, None) => true,
            (Some(a), Some(b)) => a == b || self.policy.merging.different_anon_vmas,
            (Some(_), None) => match self.policy.rules.one_sided {
                OneSided::Either => true,
                OneSided::HolderSingular => {
                    p.middle.is_none_or(|m| m.chain_singular)
                        && p.copied_from.is_none_or(|m| m.chain_singular)
                }
                // The neighbour's chain is empty, and an empty chain does not count as singular.
                OneSided::NeighbourSingular => false,
            },
            (None, Some(_)) => {
                self.policy.rules.one_sided == OneSided::Either || other.chain_singular
            }
        };
        if joins { Ok(()) } else { Err(Refusal::AnonVma) }
    }

    fn same_offsets(&self, other: &VmaView) -> Result<(), Refusal> {
        if self.offsets == other.offsets {
            Ok(())
        } else if !self.p.body.is_anonymous() && !self.offsets.same_in_file(other.offsets) {
            Err(Refusal::FileOffset)
        } else if self.policy.merging.renumber_in_place {
            // One side takes the page offsets of the other; `survivor` checks whether that is
            // possible.
            Ok(())
        } else if self.unpinned == Some(other.offsets) {
            Err(Refusal::Pinned)
        } else {
            Err(Refusal::PageOffset)
        }
    }
}

/// Compares two bodies field by field, in Linux's order. Omitting a field of [`VmaBody`] here is a
/// compile error.
fn same_body(a: &VmaBody, b: &VmaBody, sticky: VmFlags) -> Result<(), Refusal> {
    let VmaBody {
        flags: flags_a,
        file: file_a,
        policy: policy_a,
        name: name_a,
        uffd: uffd_a,
    } = *a;
    let VmaBody {
        flags: flags_b,
        file: file_b,
        policy: policy_b,
        name: name_b,
        uffd: uffd_b,
    } = *b;
    if policy_a != policy_b {
        return Err(Refusal::Policy);
    }
    let differ = (flags_a ^ flags_b) - sticky;
    if !differ.is_empty() {
        return Err(flags_apart(differ));
    }
    let id = |f: Option<MappedFile>| f.map(|f| -> FileId { f.id });
    if id(file_a) != id(file_b) {
        return Err(Refusal::File);
    }
    if uffd_a != uffd_b {
        return Err(Refusal::Userfaultfd);
    }
    if name_a != name_b {
        return Err(Refusal::Name);
    }
    Ok(())
}

/// Returns the refusal for the flags in `differ`. Linux compares all flags in one check; this
/// function distinguishes several reasons.
fn flags_apart(differ: VmFlags) -> Refusal {
    let only = |flags: VmFlags| (differ - flags).is_empty();
    if only(VmFlags::ACCESS) {
        Refusal::Protection
    } else if only(VmFlags::SEALED) {
        Refusal::Sealed
    } else if only(VmFlags::UFFD_ANY) {
        Refusal::Userfaultfd
    } else if differ.contains(VmFlags::HUGETLB) {
        Refusal::Hugetlb
    } else {
        Refusal::Flags
    }
}
