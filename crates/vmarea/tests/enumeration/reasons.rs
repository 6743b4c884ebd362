//! Checks at each merge attempt that the reason given for a refusal is true.
//!
//! The check removes from the neighbour only the obstacle that the decision named, and decides
//! again. The new decision must allow the merge, or name another obstacle that has not been removed
//! yet. The check repeats this until a decision allows the merge.

use crate::world::World;
use std::sync::{Arc, Mutex};
use vmarea::policy::Policy;
use vmarea::types::{AnonVmaId, VmaId};
use vmarea::vma::VmaView;
use vmarea::vma::merge::{
    Attempt, Decision, Evidence, MergeScope, Observer, Proposal, Refusal, Relocation, Verdict,
};

/// The defects found, as text.
#[derive(Clone, Default)]
pub struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    pub fn verdict(&self) -> Result<(), String> {
        match self.0.lock().unwrap().first() {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(()),
        }
    }
}

/// Starts checking every merge attempt.
pub fn listen(w: &mut World) -> Told {
    let told = Told::default();
    let policy = *w.machine.space().policy();
    let listener = Listener {
        policy,
        told: told.clone(),
    };
    w.machine.set_observer(Box::new(listener));
    told
}

struct Listener {
    policy: Policy,
    told: Told,
}

impl Observer for Listener {
    fn attempt(&self, attempt: &Attempt<'_>) {
        for left in [true, false] {
            let refused = if left {
                attempt.verdict.left
            } else {
                attempt.verdict.right
            };
            if let Some(refusal) = refused
                && let Err(wrong) = Peel::new(&self.policy, attempt, left).down(refusal)
            {
                self.told.0.lock().unwrap().push(wrong);
            }
        }
    }
}

/// A merge attempt, copied so that obstacles can be removed from it.
struct Peel<'a> {
    policy: &'a Policy,
    left: bool,
    proposal: Proposal,
    prev: Option<VmaView>,
    next: Option<VmaView>,
    evidence: &'a dyn Evidence,
    /// The result of the last decision.
    verdict: Verdict,
}

impl<'a> Peel<'a> {
    fn new(policy: &'a Policy, attempt: &Attempt<'a>, left: bool) -> Self {
        Peel {
            policy,
            left,
            proposal: *attempt.proposal,
            prev: attempt.prev.copied(),
            next: attempt.next.copied(),
            evidence: attempt.evidence,
            verdict: *attempt.verdict,
        }
    }

    fn down(mut self, mut refusal: Refusal) -> Result<(), String> {
        let mut taken = Vec::new();
        loop {
            taken.push(refusal);
            self.take_away(refusal);
            let decision = Decision {
                policy: self.policy,
                evidence: self.evidence,
            };
            let (prev, next) = (self.prev.as_ref(), self.next.as_ref());
            let verdict = decision.decide(&self.proposal, prev, next, MergeScope::Both);
            let now = if self.left {
                verdict.left
            } else {
                verdict.right
            };
            self.verdict = verdict;
            match now {
                None => return Ok(()),
                Some(other) if !taken.contains(&other) => refusal = other,
                Some(same) => {
                    return Err(format!("{same:?} is still there without {taken:?}"));
                }
            }
        }
    }

    fn anon_vma_of(&self, id: Option<VmaId>) -> Option<AnonVmaId> {
        let p = &self.proposal;
        let views = [&self.prev, &self.next, &p.middle, &p.copied_from];
        let holder = views.into_iter().flatten().find(|v| Some(v.id) == id)?;
        holder.anon_vma
    }

    /// Removes one obstacle from the neighbour.
    fn take_away(&mut self, refusal: Refusal) {
        // If the range merges with its other neighbour, the surviving anon_vma and page offset base
        // decide; otherwise those of the range do.
        let joined = self.verdict.plan.filter(|plan| plan.anon_from.is_some());
        let survives = joined.and_then(|plan| self.anon_vma_of(plan.anon_from));
        let p = &mut self.proposal;
        let (side, opposite) = if self.left {
            (self.prev.as_mut(), self.next)
        } else {
            (self.next.as_mut(), self.prev)
        };
        // Pages that are relocated have the anon_vma that the opposite neighbour lends.
        let relocated = self.verdict.relocation == Some(Relocation::Done);
        let lent = opposite.and_then(|v| v.anon_vma.filter(|_| relocated));
        let Some(other) = side else { return };
        match refusal {
            Refusal::Policy => other.body.policy = p.body.policy,
            Refusal::Protection | Refusal::Flags => other.body.flags = p.body.flags,
            Refusal::AnonVma => {
                // Both sides have the same anon_vma, and no other in their chains.
                other.anon_vma = survives.or(lent).or(p.anon_vma);
                other.chain_singular = true;
                for own in p.middle.iter_mut().chain(&mut p.copied_from) {
                    own.chain_singular = true;
                }
            }
            Refusal::PageOffset => {
                other.offsets = joined.map_or(self.verdict.offsets, |plan| plan.offsets);
            }
            _ => {}
        }
    }
}
