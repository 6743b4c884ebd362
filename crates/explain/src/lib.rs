//! Why the mappings of a process are separate, what the separation costs, and possible remedies.
//!
//! The crate `process` assigns a reason and a remedy to each boundary between two neighbours. The
//! reason is *likely* instead of *certain* if `/proc` hides part of the evidence. This crate counts
//! the reasons, estimates the cost of the remedies, and gives advice; it changes nothing. [`top`]
//! shows the same data for all processes in less detail.
//!
//! # Picture
//! ```text
//! Process ─▶ boundaries ─┬─▶ reasons ──▶ detail, made_by ─┐
//!                        ├─▶ remedies ─▶ plan ────────────┼─▶ advice ─▶ Report
//!                        └─▶ findings ────────────────────┘
//! ```
//! # Invariants
//! X1  the counts of all reasons plus 1 (the first mapping) add up to the length of the list
#![forbid(unsafe_code)]

pub mod advice;
pub mod detail;
pub mod estimate;
pub mod findings;
pub mod made_by;
pub mod origins;
pub mod plan;
pub mod prevention;
pub mod recorded;
mod recording;
pub mod rows;
pub mod stacks;
pub mod text;
pub mod top;

use advice::{Advice, Situation};
use findings::Finding;
use made_by::{MadeBy, MadeFrom, Traced};
use plan::Plan;
use prevention::Prevented;
use recorded::Recorded;
use rows::MappingRow;
use serde::Serialize;
use std::collections::BTreeMap;
use vmarea_process::{Boundary, Certainty, Process, Reason, Source, boundaries};

/// Whether a report lists every mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum List {
    /// The report contains only counts.
    #[default]
    Summary,
    /// Every mapping.
    All,
}

/// A reason why mappings are separate, with the number of mappings that it causes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ReasonCount {
    /// Short name of the reason.
    pub reason: &'static str,
    /// Number of boundaries that have this reason; each such boundary costs one mapping.
    pub mappings: u64,
    /// Number of boundaries for which this reason is certain.
    pub certain: u64,
    /// Number of boundaries that have this reason and can be removed by a remedy.
    pub joinable: u64,
    /// Meaning of the reason in a few words.
    pub words: &'static str,
    /// Most frequent variant of the reason, such as the flags that differ.
    pub detail: String,
    /// Calls that created the boundaries, if the program was recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made_by: Vec<MadeBy>,
}

/// Complete report on a process.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Version of this structure.
    pub schema: u32,
    /// Process ID, if there is one.
    pub pid: Option<i32>,
    /// Name of the program, name of the file with a pasted list of mappings, or recorded command.
    pub name: String,
    /// Source of the mappings.
    pub source: Source,
    /// Reason why the kernel view was not read, although it was requested.
    pub without_view: Option<String>,
    /// Number of mappings of the process.
    pub mappings: u64,
    /// Maximum number of mappings that the process may have.
    pub limit: u64,
    /// Number of lines in the list that do not count as mappings (`[vsyscall]`).
    pub not_counted: u64,
    /// Number of mappings that were examined: all, or those within a range.
    pub looked_at: u64,
    /// Number of mappings that changed while they were being read.
    pub changed: u64,
    /// Reasons, most mappings first; their mapping counts add up to `looked_at` minus 1.
    pub reasons: Vec<ReasonCount>,
    /// Number of mappings that all remedies together would save.
    pub joinable: u64,
    /// The repairs and what each leaves; absent for a recorded program, which has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Conspicuous patterns in the list of mappings.
    pub findings: Vec<Finding>,
    /// Recommended next step.
    pub advice: Advice,
    /// Changes to the recorded program that would have prevented mappings, each replayed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prevention: Vec<Prevented>,
    /// Call sites in the program that created the most boundaries, if stacks were recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made_from: Vec<MadeFrom>,
    /// Every mapping, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<MappingRow>>,
}

impl Report {
    /// Returns the number of mappings as a percentage of the limit.
    pub fn percent_of_limit(&self) -> f64 {
        self.mappings as f64 * 100.0 / self.limit.max(1) as f64
    }
}

/// Explains all boundaries of a process.
pub fn explain(process: &Process, list: List) -> Report {
    let boundaries = boundaries(&process.policy, &process.mappings);
    report(process, &boundaries, None, list)
}

/// Explains all boundaries of a recorded program, and names the calls that created them.
///
/// `stacks` contains the stacks of the calls, indexed by stack number.
pub fn explain_recorded(recorded: &Recorded, stacks: &[Vec<String>], list: List) -> Report {
    let process = &recorded.process;
    let boundaries = boundaries(&process.policy, &process.mappings);
    let traced = Traced {
        boundaries: &boundaries,
        recorded,
        stacks,
    };
    report(process, &boundaries, Some(&traced), list)
}

fn report(
    process: &Process,
    boundaries: &[Boundary],
    traced: Option<&Traced<'_>>,
    list: List,
) -> Report {
    let plan = Plan::of(process);
    let findings = findings::findings(process, boundaries);
    let situation = Situation {
        mappings: process.total,
        limit: process.limit,
        plan: &plan,
        findings: &findings,
    };
    Report {
        schema: 2,
        pid: process.pid,
        name: process.name.clone(),
        source: process.source,
        without_view: process.without_view.clone(),
        mappings: process.total,
        limit: process.limit,
        not_counted: process.not_counted,
        looked_at: process.mappings.len() as u64,
        changed: process.changed,
        reasons: reasons(process, boundaries, traced),
        joinable: plan.saved(),
        advice: match traced {
            Some(traced) => situation.advice_for_command(&traced.recorded),
            None => situation.advice(),
        },
        prevention: traced.map_or_else(Vec::new, Traced::prevented),
        made_from: traced.map_or_else(Vec::new, Traced::places),
        rows: (list == List::All).then(|| rows::rows(process, boundaries)),
        plan: traced.is_none().then_some(plan),
        findings,
    }
}

fn reasons(
    process: &Process,
    boundaries: &[Boundary],
    traced: Option<&Traced<'_>>,
) -> Vec<ReasonCount> {
    let mut by_reason: BTreeMap<Reason, Vec<usize>> = BTreeMap::new();
    for (n, boundary) in boundaries.iter().enumerate() {
        by_reason.entry(boundary.reason).or_default().push(n);
    }
    let counted = by_reason.into_iter().map(|(reason, all)| {
        let count = |wanted: &dyn Fn(&Boundary) -> bool| {
            all.iter().filter(|n| wanted(&boundaries[**n])).count() as u64
        };
        ReasonCount {
            reason: reason.name(),
            mappings: all.len() as u64,
            certain: count(&|b| b.certainty == Certainty::Certain),
            joinable: count(&|b| b.remedy.is_some()),
            words: reason.words(),
            detail: detail::of(reason, &process.mappings, &all),
            made_by: traced.map_or_else(Vec::new, |traced| traced.calls(reason)),
        }
    });
    let mut counted: Vec<_> = counted.collect();
    counted.sort_by_key(|count| std::cmp::Reverse(count.mappings));
    counted
}
