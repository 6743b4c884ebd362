//! Changes the attributes of part of a VMA, by a merge if possible and by splits otherwise.
//!
//! # Linux
//! `mm/vma.c` 6.18: `vma_modify`, `vma_merge_new_range`, `vma_merge_existing_range`. Up to 6.1 each
//! caller (`mprotect_fixup`, `mlock_fixup`, ...) contained its own copy of this code.

use super::MmapGuard;
use super::split::NewHalf;
use crate::policy::SharingCheck;
use crate::types::platform::Environment;
use crate::types::writers::WriteToken;
use crate::types::{AnonVmaId, Errno, Overcommit, VmFlags, VmRange, VmaId};
use crate::vma::merge::{
    Attempt, Decision, Evidence, GivenUp, MergeOutcome, MergeScope, Outcomes, Plan, Proposal,
    Sharing, Verdict,
};
use crate::vma::{VmaBody, VmaView};
use vmarea_range_tree::Entry;

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> Evidence for MmapGuard<'s, E, T> {
    /// Returns whether a VMA has a family (see below), and counts its shared and its pinned pages.
    ///
    /// The VMA has a family if its anon_vma has a parent, or if a VMA with another anon_vma is
    /// linked to its anon_vma. The pages of an anon_vma without a family cannot be mapped twice, so
    /// they are visited only if the policy also counts a page in the swap cache as shared.
    fn sharing(&self, vma: &VmaView, range: VmRange) -> Sharing {
        let Some(anon_vma) = vma.anon_vma else {
            return Sharing::NONE;
        };
        let av = self.space.anon_vma_view(anon_vma);
        let alone = av.root == av.id && av.num_children <= 1 && vma.chain_singular;
        let family = !alone && (av.root != av.id || self.space.anon_vma_has_other_owners(anon_vma));
        let literal = self.space.policy.merging.sharing == SharingCheck::Thesis;
        Sharing {
            family,
            pages: match alone && !literal {
                true => 0,
                false => self.shared_pages(anon_vma, range),
            },
            pinned: self.page_tables().pinned_pages(range),
        }
    }
}

/// A merge decision, and the neighbours that were considered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    prev: Option<VmaView>,
    next: Option<VmaView>,
    pub(crate) verdict: Verdict,
}

impl Decided {
    /// Returns one outcome per border of the range, which says whether the border disappears.
    fn borders(&self, proposal: &Proposal) -> [Option<MergeOutcome>; 2] {
        let neighbours = [self.prev.as_ref(), self.next.as_ref()];
        Outcomes::borders(proposal, neighbours, &self.verdict)
    }

    /// Returns the number of uncharged pages that a merge would join with charged pages, or `None`
    /// if the merge does not join uncharged and charged pages.
    #[inline]
    fn uncharged_pages(&self, proposal: &Proposal, plan: &Plan) -> Option<u64> {
        let ours = proposal.body.flags;
        let differs = |v: &VmaView| (v.body.flags ^ ours).contains(VmFlags::ACCOUNT);
        // In nearly every merge, all parts are charged or none is.
        if !self.prev.as_ref().is_some_and(differs) && !self.next.as_ref().is_some_and(differs) {
            return None;
        }
        self.count_uncharged(proposal, plan)
    }

    /// Slow path of [`uncharged_pages`](Self::uncharged_pages), for VMAs that differ in `ACCOUNT`.
    fn count_uncharged(&self, proposal: &Proposal, plan: &Plan) -> Option<u64> {
        let neighbours = self.prev.iter().chain(&self.next);
        let middle = proposal.middle.map(|v| v.id);
        let taken = |v: &&VmaView| plan.takes(v.id) && Some(v.id) != middle;
        let parts = neighbours.filter(taken).map(|v| (v.body.flags, v.range));
        let mut charged = false;
        let mut missing = 0;
        for (flags, range) in parts.chain([(proposal.body.flags, proposal.range)]) {
            if flags.contains(VmFlags::ACCOUNT) {
                charged = true;
            } else {
                missing += range.pages();
            }
        }
        (charged && missing > 0).then_some(missing)
    }
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Sets the body of `range`, which is part of `vma`, to `body`. Returns the VMA that contains
    /// the range afterwards. Fails with ENOMEM if the map count limit is reached.
    pub(crate) fn modify(
        &mut self,
        vma: &VmaView,
        range: VmRange,
        body: VmaBody,
    ) -> Result<VmaId, Errno> {
        let inside = vma.range.start < range.start && range.end < vma.range.end;
        // A range without neighbours does not merge, but an observer is told so.
        if !inside || self.space.observer.is_some() {
            let proposal = Proposal {
                range,
                offsets: vma.offsets,
                body,
                anon_vma: vma.anon_vma,
                middle: Some(*vma),
                copied_from: None,
            };
            if let Some(id) = self.merge(&proposal, MergeScope::Both)? {
                return Ok(id);
            }
        }
        if !inside || !self.split_both(vma, range) {
            if vma.range.start < range.start {
                self.split(vma.id, range.start, NewHalf::Below)?;
            }
            if vma.range.end > range.end {
                self.split(vma.id, range.end, NewHalf::Above)?;
            }
        }
        self.set_body(vma.id, body);
        Ok(vma.id)
    }

    /// Merges the proposed range with its neighbours if the policy allows it.
    pub(crate) fn merge(
        &mut self,
        proposal: &Proposal,
        scope: MergeScope,
    ) -> Result<Option<VmaId>, Errno> {
        let decided = self.decide(proposal, scope);
        self.carry_out(proposal, &decided)
    }

    /// Reports a merge decision to the observer, counts it, and carries it out. Returns the merged
    /// VMA, or `None` if the decision is not to merge or a page cannot change its owner.
    ///
    /// # Errors
    /// ENOMEM if the merge lacked memory.
    pub(crate) fn carry_out(
        &mut self,
        proposal: &Proposal,
        decided: &Decided,
    ) -> Result<Option<VmaId>, Errno> {
        let verdict = &decided.verdict;
        if let Some(observer) = &self.space.observer {
            observer.attempt(&Attempt {
                mm: self.id,
                call: self.call,
                proposal,
                prev: decided.prev.as_ref(),
                next: decided.next.as_ref(),
                verdict,
                evidence: self,
            });
        }
        self.count_attempt(proposal, decided);
        let Some(plan) = verdict.plan else {
            return Ok(None);
        };
        let spread = self.space.policy.merging.spread_charge;
        let uncharged = spread.then(|| decided.uncharged_pages(proposal, &plan));
        let uncharged = uncharged.flatten();
        let strict = matches!(self.space.system.overcommit, Overcommit::Never(_));
        if let Some(pages) = uncharged
            && (strict || self.charge(pages).is_err())
        {
            // If commit charges are limited, a merge must not add a charge.
            self.merge_given_up(proposal, decided, GivenUp::Memory);
            return Ok(None);
        }
        match self.commit(&plan, proposal.body.flags) {
            Ok(id) => {
                if uncharged.is_some() {
                    self.body_mut(id).flags |= VmFlags::ACCOUNT;
                }
                Ok(Some(id))
            }
            Err(why) => {
                self.uncharge(uncharged.unwrap_or(0));
                self.merge_given_up(proposal, decided, why);
                match why {
                    GivenUp::Page => Ok(None),
                    GivenUp::Memory => Err(Errno::ENOMEM),
                }
            }
        }
    }

    /// Counts a merge attempt and its outcomes, assuming that the merge will succeed.
    fn count_attempt(&mut self, proposal: &Proposal, decided: &Decided) {
        let verdict = &decided.verdict;
        let call = self.call;
        let stats = &mut self.state_mut().stats;
        for refusal in [verdict.left, verdict.right].into_iter().flatten() {
            stats.refused(refusal);
        }
        for outcome in decided.borders(proposal).into_iter().flatten() {
            stats.attempted(call, outcome);
        }
        if let Some(plan) = verdict.plan {
            stats.merged(plan.kind);
        }
        if self.space.policy.merging.collector {
            let flags = proposal.body.flags;
            self.note_border(proposal.range.start, verdict.left, flags);
            self.note_border(proposal.range.end, verdict.right, flags);
        }
    }

    /// Corrects the counts that [`count_attempt`](Self::count_attempt) incremented for a merge that
    /// was then not carried out, or was undone.
    pub(crate) fn merge_given_up(&mut self, proposal: &Proposal, decided: &Decided, why: GivenUp) {
        if let Some(plan) = decided.verdict.plan {
            let borders = decided.borders(proposal);
            let call = self.call;
            let stats = &mut self.state_mut().stats;
            stats.given_up(plan.kind, (call, borders), why);
        }
    }

    /// Decides on a merge without carrying it out.
    pub(crate) fn decide(&self, proposal: &Proposal, scope: MergeScope) -> Decided {
        let [prev, next] = self.touching(proposal.range);
        self.decide_between(proposal, prev, next, scope)
    }

    /// Decides on a merge as if the VMA `left_out` did not exist.
    pub(crate) fn decide_without(&self, proposal: &Proposal, left_out: VmaId) -> Decided {
        let other = |v: &VmaView| v.id != left_out;
        let [prev, next] = self.touching(proposal.range).map(|v| v.filter(other));
        self.decide_between(proposal, prev, next, MergeScope::Both)
    }

    /// Returns the VMAs that are adjacent to a range, below and above. VMAs that are not adjacent
    /// are not even read, to avoid contention with concurrent faults, which write to the locks in
    /// them.
    fn touching(&self, range: VmRange) -> [Option<VmaView>; 2] {
        let [below, above] = self.index().touching(range.start, range.end);
        let id = |entry: Entry| VmaId::from_bits(entry.value);
        let view = |entry: Option<Entry>| entry.and_then(id).map(|id| self.view(id));
        [view(below), view(above)]
    }

    #[inline]
    fn decide_between(
        &self,
        proposal: &Proposal,
        prev: Option<VmaView>,
        next: Option<VmaView>,
        scope: MergeScope,
    ) -> Decided {
        let decision = Decision {
            policy: &self.space.policy,
            evidence: self,
        };
        let verdict = decision.decide(proposal, prev.as_ref(), next.as_ref(), scope);
        Decided {
            prev,
            next,
            verdict,
        }
    }

    /// Counts the shared pages in `range`; the policy selects the definition of a shared page.
    pub(crate) fn shared_pages(&self, anon_vma: AnonVmaId, range: VmRange) -> u64 {
        let check = self.space.policy.merging.sharing;
        self.page_tables()
            .shared_pages(Some(anon_vma), range, check)
            .count
    }

    /// Sets the attributes of a VMA except its range, page offset and anon_vma.
    pub(crate) fn set_body(&mut self, id: VmaId, body: VmaBody) {
        *self.body_mut(id) = body;
    }
}
