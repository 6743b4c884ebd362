//! The result of a replay, for text output and JSON.

use super::counterfactual::Counterfactual;
use super::doubt::Doubt;
use super::failed::FailedCalls;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The complete result of a replay.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Version of the JSON schema.
    pub schema: u32,
    /// Number of events in the trace.
    pub events: u64,
    /// Number of system calls in the trace.
    pub calls: u64,
    /// Number of page faults in the trace.
    pub faults: u64,
    /// Number of samples that the recorder lost.
    pub lost: u64,
    /// Number of calls that the core does not model.
    pub opaque: u64,
    /// Number of calls that the core does not model, by kind.
    pub opaque_by_kind: BTreeMap<String, u64>,
    /// Number of userfaultfd commands that changed pages; results that depend on them are
    /// undecided.
    pub userfault: u64,
    /// The memory calls that failed, by call, error and reason.
    pub failed_calls: Vec<FailedCalls>,
    /// Comparison with the kernel.
    pub verify: Verify,
    /// Result of each policy.
    pub policies: BTreeMap<String, PolicyReport>,
    /// Decisions of the other policies on merges that the kernel's rules refuse.
    pub counterfactual: Counterfactual,
    /// The first difference, with the call before it.
    pub first_difference: Option<Difference>,
    /// All differences by cause, in the order of each cause's first occurrence.
    pub differences: Vec<Group>,
    /// Remarks of the recorder and of the replay.
    pub notes: Vec<String>,
    /// The differences since the log was last emptied, if there is a log.
    #[serde(skip)]
    pub(crate) log: Option<Vec<Difference>>,
}

/// Comparison with the kernel.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verify {
    /// Number of address spaces.
    pub processes: u64,
    /// Number of kernel VMAs that were compared.
    pub vmas_compared: u64,
    /// Number of call results that were compared.
    pub results_compared: u64,
    /// Number of results and VMAs that differ between the kernel and the core.
    pub differences: u64,
    /// Number of results and boundaries that are undecided because they depend on unrecorded
    /// events.
    pub undecided: u64,
    /// Number of times that the kernel's list of VMAs was imported after the core had diverged from
    /// it.
    pub resyncs: u64,
    /// Number of undecided results and of resyncs, by reason.
    pub reasons: BTreeMap<String, Unsettled>,
}

/// Results that are undecided and resyncs for the same reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unsettled {
    /// Number of undecided results and boundaries.
    pub undecided: u64,
    /// Number of resyncs.
    pub resyncs: u64,
}

impl Verify {
    /// Counts an undecided result.
    pub(crate) fn undecided(&mut self, doubt: Doubt) {
        self.undecided += 1;
        self.reasons.entry(doubt.to_string()).or_default().undecided += 1;
    }

    /// Counts a resync.
    pub(crate) fn resync(&mut self, doubt: Doubt) {
        self.resyncs += 1;
        self.reasons.entry(doubt.to_string()).or_default().resyncs += 1;
    }
}

/// Result of replaying a trace under one policy.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyReport {
    /// Peak number of VMAs in all live address spaces together.
    pub vmas_peak: u64,
    /// Peak number of VMAs in a single address space, which `vm.max_map_count` limits.
    pub vmas_peak_single: u64,
    /// Sum of the numbers of VMAs that the address spaces had when they ended.
    pub vmas_exit: u64,
    /// Number of merges, by kind.
    pub merges: BTreeMap<String, u64>,
    /// Number of pairs of adjacent VMAs that were not merged, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Number of merge attempts by call and outcome, in the terms of Matěna's thesis (table 2.2).
    pub attempts: BTreeMap<String, BTreeMap<String, u64>>,
    /// Number of moves that gave faulted pages the page offset of their new address.
    pub pgoff_updates: u64,
    /// Number of moves in `pgoff_updates` that also merged (section 2.10.2 of the thesis).
    pub pgoff_merges: u64,
    /// Number of moves that merged with no neighbour as they were, by what their relocation came to.
    pub relocations: BTreeMap<String, u64>,
    /// Number of merges with the next VMA after growth in place (section 2.10.3 of the thesis).
    pub expand_merges: u64,
    /// Number of merges by the merge collector.
    pub collected: u64,
    /// Number of splits.
    pub splits: u64,
    /// Number of VMA lookups: one per fault, and one per call that looks up a VMA.
    pub lookups: u64,
    /// Number of lookups that would have hit in a cache of the last-used VMA.
    pub last_used_hits: u64,
}

/// Differences with the same cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Group {
    /// Description of the difference, identical for the whole group.
    pub cause: String,
    /// Number of differences.
    pub count: u64,
    /// The first differences, as many as [`MostShown`] allows.
    pub shown: Vec<Difference>,
}

/// Maximum number of differences per cause that a report lists. All differences are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MostShown {
    /// At most this many differences are listed for each cause.
    First(usize),
    /// All differences are listed.
    All,
}

impl Default for MostShown {
    fn default() -> Self {
        MostShown::First(1)
    }
}

impl FromStr for MostShown {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(MostShown::All);
        }
        let number = text.parse().map(MostShown::First);
        number.map_err(|_| "a number or `all` is needed".to_owned())
    }
}

/// One difference between the kernel and the core.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Difference {
    /// Position in the trace, counted from 1, of the event that shows the difference.
    pub event: u64,
    /// The trace's number for the address space.
    pub mm: u32,
    /// Description of the difference, identical for all differences with the same cause.
    pub cause: String,
    /// The call whose result differs.
    pub call: Option<String>,
    /// The call before `call` in this address space.
    pub call_before: Option<String>,
    /// Last call in the address space before the kernel's list was read, if the VMA lists differ.
    ///
    /// Any event since the previous list was read may be the cause of the difference.
    pub list_read_after: Option<String>,
    /// The kernel's result.
    pub kernel: String,
    /// The core's result.
    pub ours: String,
    /// The core's reason for its result, if known.
    pub reason: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}, mm {}:", self.event, self.mm)?;
        let mut line = |name: &str, text: &str| write!(f, "\n  {name:<8} {text}");
        if let Some(call) = &self.call_before {
            line("before", call)?;
        }
        if let Some(call) = &self.call {
            line("call", call)?;
        }
        if let Some(call) = &self.list_read_after {
            line("list", &format!("of mappings, read after {call}"))?;
        }
        line("kernel", &self.kernel)?;
        line("vmarea", &self.ours)?;
        if let Some(reason) = &self.reason {
            line("because", reason)?;
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
            failed_calls: Vec::new(),
            verify: Verify::default(),
            policies: BTreeMap::new(),
            counterfactual: Counterfactual::default(),
            first_difference: None,
            differences: Vec::new(),
            notes: Vec::new(),
            log: None,
        }
    }
}

impl Report {
    /// Adds a difference to the log, if there is one.
    pub(crate) fn log(&mut self, difference: &Difference) {
        if let Some(log) = &mut self.log {
            log.push(difference.clone());
        }
    }

    /// Counts a difference, and adds it to the report if `shown` allows.
    pub(crate) fn differs(&mut self, difference: Difference, shown: MostShown) {
        self.verify.differences += 1;
        let same = |group: &Group| group.cause == difference.cause;
        let at = self.differences.iter().position(same).unwrap_or_else(|| {
            self.differences.push(Group {
                cause: difference.cause.clone(),
                count: 0,
                shown: Vec::new(),
            });
            self.differences.len() - 1
        });
        let group = &mut self.differences[at];
        group.count += 1;
        if self.first_difference.is_none() {
            self.first_difference = Some(difference.clone());
        }
        let room = match shown {
            MostShown::First(most) => group.shown.len() < most,
            MostShown::All => true,
        };
        if room {
            group.shown.push(difference);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(cause: &str, event: u64) -> Difference {
        Difference {
            event,
            cause: cause.to_owned(),
            ..Difference::default()
        }
    }

    #[test]
    fn every_difference_is_counted_under_its_cause_and_as_many_as_asked_for_are_kept() {
        for (shown, kept) in [
            (MostShown::First(0), [0, 0]),
            (MostShown::default(), [1, 1]),
            (MostShown::First(2), [2, 1]),
            (MostShown::All, [3, 1]),
        ] {
            let mut report = Report::default();
            for (event, cause) in ["a", "b", "a", "a"].into_iter().enumerate() {
                report.differs(difference(cause, event as u64), shown);
            }
            let found: Vec<_> = report.differences.iter().collect();
            assert_eq!(report.verify.differences, 4);
            assert_eq!(report.first_difference, Some(difference("a", 0)));
            assert_eq!(found.iter().map(|g| g.count).collect::<Vec<_>>(), [3, 1]);
            assert_eq!(
                found.iter().map(|g| g.shown.len()).collect::<Vec<_>>(),
                kept
            );
        }
    }

    #[test]
    fn a_list_is_named_as_a_list_and_no_call_is_blamed_for_it() {
        let shown = Difference {
            list_read_after: Some("munmap(0x1000, 4096) = 0".to_owned()),
            ..difference("a boundary", 7)
        }
        .to_string();
        assert!(shown.contains("read after munmap"), "{shown}");
        assert!(!shown.contains("call "), "{shown}");
    }
}
