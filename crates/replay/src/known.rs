//! What a replay knows about a recorded address space, whatever the policy.

use super::action::Action;
use super::doubt::Doubt;
use super::uncertain::Uncertain;
use vmarea_trace::event::Call;

/// Data about one recorded address space that is the same for all policies.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// True if a snapshot has shown the address space, so that results can be compared.
    pub(crate) seen: bool,
    /// True if the first snapshot included the kernel's own view of the VMAs.
    pub(crate) kernel_view: bool,
    /// True if the base of the mmap search is known.
    pub(crate) mmap_base: bool,
    /// Why attributes that only the kernel's own view shows are in doubt since the last snapshot
    /// with which the core agreed.
    pub(crate) doubtful: Option<Doubt>,
    /// Why the results of calls and the ranges of mappings are in doubt since then: calls overlapped
    /// in an unknown order, or an unrecorded call mapped memory.
    pub(crate) unordered: Option<Doubt>,
    /// Ranges that were changed by an operation that is not in the recording.
    pub(crate) uncertain: Uncertain,
    /// Overlapping calls that are deferred until later events show their order.
    pub(crate) deferred: Vec<(Action, Call)>,
    /// The last call in this address space, for reports.
    pub(crate) last_call: Option<Call>,
    /// The call before `last_call`.
    pub(crate) call_before: Option<Call>,
}

impl Known {
    /// Returns what is known about a child of this address space directly after the fork.
    pub(crate) fn inherited(&self) -> Known {
        Known {
            seen: self.seen,
            kernel_view: self.kernel_view,
            mmap_base: self.mmap_base,
            doubtful: self.doubtful,
            unordered: self.unordered,
            uncertain: self.uncertain.clone(),
            deferred: Vec::new(),
            last_call: None,
            call_before: None,
        }
    }
}
