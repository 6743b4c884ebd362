//! The merge attempts of a replay, each with the verdict of each policy.
//!
//! An observer of the core adds them while a call is carried out; the log ([`crate::log`]) takes them
//! after each event.

use std::sync::{Arc, Mutex, PoisonError};
use vmarea::policy::Policy;
use vmarea::types::MmId;
use vmarea::vma::merge::{Attempt, Decision, MergeScope, Verdict};
use vmarea_trace::event::MmId as TraceMm;

/// A merge attempt under the recorded kernel's rules.
#[derive(Clone, Debug)]
pub struct Attempted {
    /// The trace's number for the address space; `None` if that address space has ended.
    pub mm: Option<TraceMm>,
    /// Kind of call, as reports name it.
    pub call: &'static str,
    /// First address of the range.
    pub start: u64,
    /// Address after the range.
    pub end: u64,
    /// The verdict of each policy in this state; the first is the recorded kernel's, which the
    /// replay carries out.
    pub verdicts: Vec<Judged>,
}

/// The verdict of one policy on a merge attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judged {
    /// Name of the policy.
    pub policy: &'static str,
    /// Kind of merge; `None` if the policy merges nothing.
    pub merged: Option<&'static str>,
    /// Reason why the range does not merge with the previous VMA, if that VMA is adjacent.
    pub refused_previous: Option<&'static str>,
    /// Reason why the range does not merge with the next VMA, if that VMA is adjacent.
    pub refused_next: Option<&'static str>,
}

impl Judged {
    fn new(policy: &'static str, verdict: &Verdict) -> Self {
        Self {
            policy,
            merged: verdict.plan.map(|plan| plan.kind.name()),
            refused_previous: verdict.left.map(|reason| reason.name()),
            refused_next: verdict.right.map(|reason| reason.name()),
        }
    }
}

/// Merge attempts, shared with the observer that logs them, with the core's ids of address spaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts(Arc<Mutex<Vec<(MmId, Attempted)>>>);

impl Attempts {
    /// Logs an attempt, with the verdicts of the recorded kernel and of `policies`.
    pub(crate) fn add(&self, attempt: &Attempt<'_>, policies: &[Policy]) {
        let others = policies.iter().map(|policy| {
            let decision = Decision {
                policy,
                evidence: attempt.evidence,
            };
            let verdict = decision.decide(
                attempt.proposal,
                attempt.prev,
                attempt.next,
                MergeScope::Both,
            );
            Judged::new(policy.name, &verdict)
        });
        let verdicts = [Judged::new("linux", attempt.verdict)]
            .into_iter()
            .chain(others)
            .collect();
        let attempted = Attempted {
            mm: None,
            call: attempt.call.name(),
            start: attempt.proposal.range.start,
            end: attempt.proposal.range.end,
            verdicts,
        };
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.push((attempt.mm, attempted));
    }

    /// Returns the attempts, and forgets them.
    pub(crate) fn take(&self) -> Vec<(MmId, Attempted)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
