//! What other policies would do with the merges that the kernel's rules refuse.
//!
//! The replay runs under the kernel's rules. At every merge attempt it also asks the pure decision
//! of the other policies, in the same state. It counts private anonymous neighbours that were
//! refused for page offset or anon_vma: how many of them another policy would merge, and why not
//! the rest.

use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use vmarea::policy::Policy;
use vmarea::types::VmFlags;
use vmarea::vma::merge::{Attempt, Decision, MergeScope, Observer, Refusal};

/// Counters of one replay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counterfactual {
    /// Refused for page offset or anon_vma under the kernel's rules, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Result of each other policy on them.
    pub policies: BTreeMap<String, Made>,
}

/// Result of one policy on the refused merges.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Made {
    /// Merged.
    pub merged: u64,
    /// Also refused, by reason.
    pub refused: BTreeMap<String, u64>,
}

impl Counterfactual {
    /// Number of refused merges, for any reason.
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

    /// An observer that asks `policies`.
    pub(crate) fn observer(&self, policies: Vec<Policy>) -> Box<dyn Observer> {
        Box::new(Asking {
            policies,
            counts: self.clone(),
        })
    }
}

struct Asking {
    policies: Vec<Policy>,
    counts: Shared,
}

impl Observer for Asking {
    fn attempt(&self, attempt: &Attempt<'_>) {
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
