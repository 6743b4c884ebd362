//! Decisions that other policies would make on merges that the kernel's rules refuse.
//!
//! The replay runs under the kernel's rules. At every merge attempt, an observer also computes the
//! decision of each other policy in the same state. The observer considers the private anonymous
//! neighbours that the kernel's rules do not merge because of page offset or anon_vma. For each
//! policy, it counts how many of these neighbours the policy would merge, and the policy's reasons
//! for not merging the rest.

use super::attempts::Attempts;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use vmarea::policy::Policy;
use vmarea::types::VmFlags;
use vmarea::vma::merge::{Attempt, Decision, MergeScope, Observer, Refusal};

/// Counts of refused merges in one replay.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counterfactual {
    /// Number of merges that the kernel's rules refuse because of page offset or anon_vma, by
    /// reason.
    pub refused: BTreeMap<String, u64>,
    /// Decisions of each other policy on these merges.
    pub policies: BTreeMap<String, Made>,
}

/// Decisions of one policy on the refused merges.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Made {
    /// Number of merges that this policy would make.
    pub merged: u64,
    /// Number of merges that this policy would also refuse, by the policy's reason.
    pub refused: BTreeMap<String, u64>,
}

impl Counterfactual {
    /// Returns the number of refused merges, for any reason.
    pub fn refused_total(&self) -> u64 {
        self.refused.values().sum()
    }
}

/// The counters, shared with the observer that updates them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Mutex<Counterfactual>>);

impl Shared {
    pub(crate) fn get(&self) -> Counterfactual {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns an observer that evaluates `policies` at every merge attempt, and logs the attempts
    /// if there is a log.
    pub(crate) fn observer(
        &self,
        policies: Vec<Policy>,
        log: Option<Attempts>,
    ) -> Box<dyn Observer> {
        Box::new(Asking {
            policies,
            counts: self.clone(),
            log,
        })
    }
}

struct Asking {
    policies: Vec<Policy>,
    counts: Shared,
    log: Option<Attempts>,
}

impl Observer for Asking {
    fn attempt(&self, attempt: &Attempt<'_>) {
        if let Some(log) = &self.log {
            log.add(attempt, &self.policies);
        }
        let body = attempt.proposal.body;
        if !body.is_anonymous() || body.flags.contains(VmFlags::MAYSHARE) {
            return;
        }
        let hidden =
            |r: Option<Refusal>| r.filter(|r| matches!(r, Refusal::AnonVma | Refusal::PageOffset));
        let sides = [hidden(attempt.verdict.left), hidden(attempt.verdict.right)];
        if sides == [None, None] {
            return;
        }
        let mut counts = self.counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        for refusal in sides.into_iter().flatten() {
            *counts.refused.entry(refusal.name().to_owned()).or_default() += 1;
        }
        for policy in &self.policies {
            let decision = Decision {
                policy,
                evidence: attempt.evidence,
            };
            let other = decision.decide(
                attempt.proposal,
                attempt.prev,
                attempt.next,
                MergeScope::Both,
            );
            let made = counts.policies.entry(policy.name.to_owned()).or_default();
            for (was, now) in sides.into_iter().zip([other.left, other.right]) {
                match (was, now) {
                    (None, _) => {}
                    (Some(_), None) => made.merged += 1,
                    (Some(_), Some(reason)) => {
                        *made.refused.entry(reason.name().to_owned()).or_default() += 1;
                    }
                }
            }
        }
    }
}
