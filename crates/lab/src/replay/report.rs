//! The result of a replay, as it is printed and as it is written to JSON.

use super::counterfactual::Counterfactual;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this form.
    pub schema: u32,
    /// Events in the trace.
    pub events: u64,
    /// System calls among them.
    pub calls: u64,
    /// Page faults among them.
    pub faults: u64,
    /// Samples that the recorder lost.
    pub lost: u64,
    /// Calls that the core does not model; their mappings are kept apart.
    pub opaque: u64,
    /// The same by what they were.
    pub opaque_by_kind: BTreeMap<String, u64>,
    /// Commands of userfaultfd that brought or took pages: what depends on them is undecided.
    pub userfault: u64,
    /// Comparison with the kernel.
    pub verify: Verify,
    /// What each policy made of it.
    pub policies: BTreeMap<String, PolicyReport>,
    /// What the other policies would have made of merges that the kernel's rules refuse.
    pub counterfactual: Counterfactual,
    /// The first difference, with what led to it.
    pub first_difference: Option<Difference>,
    /// Remarks of the recorder and of the replay.
    pub notes: Vec<String>,
}

/// Comparison with the kernel.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verify {
    /// Address spaces.
    pub processes: u64,
    /// VMAs of the kernel that were looked at.
    pub vmas_compared: u64,
    /// Results of calls that were compared.
    pub results_compared: u64,
    /// Results and VMAs that differ.
    pub differences: u64,
    /// Boundaries whose truth hangs on something that was not visible.
    pub undecided: u64,
    /// Times our side was set to what the kernel showed after they had parted.
    pub resyncs: u64,
}

/// What one policy made of a trace.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PolicyReport {
    /// Most VMAs alive at once, over all address spaces.
    pub vmas_peak: u64,
    /// VMAs of all address spaces at their end.
    pub vmas_exit: u64,
    /// Merges by kind.
    pub merges: BTreeMap<String, u64>,
    /// Touching neighbours that did not join, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Attempts by call and outcome, in the thesis's words (table 2.2).
    pub attempts: BTreeMap<String, BTreeMap<String, u64>>,
    /// Moves whose faulted pages took the page offset of their new place.
    pub pgoff_updates: u64,
    /// VMAs cut in two.
    pub splits: u64,
    /// One per fault and per call that finds a VMA.
    pub lookups: u64,
    /// Lookups that a cache of the last VMA used would have answered.
    pub last_used_hits: u64,
}

/// One difference.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    /// Address space, as the trace numbers it.
    pub mm: u32,
    /// The call, or the one before the list of VMAs was read.
    pub call: Option<String>,
    /// What the kernel said.
    pub kernel: String,
    /// What our side said.
    pub ours: String,
    /// Why ours thinks so, where it can say.
    pub reason: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "first difference, mm {}:", self.mm)?;
        if let Some(call) = &self.call {
            writeln!(f, "  call    {call}")?;
        }
        writeln!(f, "  kernel  {}", self.kernel)?;
        write!(f, "  ours    {}", self.ours)?;
        if let Some(reason) = &self.reason {
            write!(f, "\n  because {reason}")?;
        }
        Ok(())
    }
}

impl Default for Report {
    fn default() -> Self {
        Report {
            schema: 1,
            events: 0,
            calls: 0,
            faults: 0,
            lost: 0,
            opaque: 0,
            opaque_by_kind: BTreeMap::new(),
            userfault: 0,
            verify: Verify::default(),
            policies: BTreeMap::new(),
            counterfactual: Counterfactual::default(),
            first_difference: None,
            notes: Vec::new(),
        }
    }
}

impl Report {
    pub(crate) fn differs(&mut self, difference: Difference) {
        self.verify.differences += 1;
        self.first_difference.get_or_insert(difference);
    }
}
