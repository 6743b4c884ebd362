//! Why the mappings of a process are separate, what the separation costs, and possible remedies.
//!
//! The crate `process` assigns a reason and a remedy to each boundary between two neighbours. The
//! reason is *likely* instead of *certain* if `/proc` hides part of the evidence, or if it depends on
//! a rule of this kernel that is neither verified nor probed. This crate counts
//! the reasons, estimates the cost of the remedies, and gives advice; it changes nothing. [`top`]
//! shows the same data for all processes in less detail.
//!
//! # Picture
//! ```text
//! Process ─▶ boundaries ─┬─▶ reasons ──▶ detail, made_by ─┐
//!                        ├─▶ remedies ─▶ plan ────────────┼─▶ advice ─▶ Report
//! Evidence ──────────────┴─▶ causes ───▶ findings ────────┘
//! recorded calls, stacks ─▶ made_from ─▶ Report; profile
//! ```
//! # Invariants
//! X1  the counts of all reasons plus 1 (the first mapping) add up to the length of the list
//! X2  the counts of the mappings that can be merged, by reason and by function, are those of one
//!     prediction: that of all repairs together
#![forbid(unsafe_code)]

pub mod advice;
pub mod causes;
pub mod detail;
pub mod estimate;
mod failed;
pub mod failure;
pub mod findings;
mod function_name;
mod glue;
pub mod made_by;
pub mod made_from;
mod made_from_text;
pub mod origins;
pub mod places;
pub mod plan;
pub mod prevention;
mod prevention_text;
pub mod profile;
pub mod recorded;
mod recording;
pub mod room;
pub mod rows;
pub mod since;
pub mod spaces;
pub mod stacks;
pub mod text;
pub mod top;

use advice::{Advice, Situation};
use causes::{Cause, Subject};
use failure::Failure;
use findings::Finding;
use made_by::{MadeBy, Traced};
use made_from::MadeFrom;
use plan::Plan;
use prevention::Prevented;
use recorded::Recorded;
use room::Room;
use rows::MappingRow;
use serde::Serialize;
use since::Growth;
use stacks::Stacks;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use vmarea_process::evidence::Evidence;
use vmarea_process::kernel::RulesBasis;
use vmarea_process::pasted::Format;
use vmarea_process::system::{LimitFiles, limit_files};
use vmarea_process::{Boundary, Certainty, Process, Reason, Source};
use vmarea_replay::FailedCalls;

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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReasonCount {
    /// Short name of the reason.
    pub reason: &'static str,
    /// Number of boundaries that have this reason; each such boundary costs one mapping.
    pub mappings: u64,
    /// Number of boundaries for which this reason is certain.
    pub certain: u64,
    /// Number of boundaries that have this reason and that all repairs together remove.
    pub joinable: u64,
    /// Meaning of the reason in a few words.
    pub words: &'static str,
    /// Most frequent variant of the reason, such as the flags that differ, and how many of the mappings
    /// have it; of guards, each of which keeps two mappings apart, how many guards.
    pub detail: String,
    /// Calls that created the boundaries, if the program was recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made_by: Vec<MadeBy>,
}

/// Format of a list that shows less than a copy of `/proc/PID/maps` does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListFormat {
    /// Name of the tool that wrote the list.
    pub name: &'static str,
    /// What the format cannot show, in short words.
    pub cannot_show: &'static [&'static str],
    /// What it cannot show, and what follows, as a sentence without a full stop.
    pub text: String,
}

impl From<&Format> for ListFormat {
    fn from(format: &Format) -> ListFormat {
        ListFormat {
            name: format.name,
            cannot_show: format.cannot_show,
            text: format.to_string(),
        }
    }
}

/// Complete report on a process.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// What the rules of the kernel rest on; absent for a list of mappings, which does not name its
    /// kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<RulesBasis>,
    /// Number of mappings of the process.
    pub mappings: u64,
    /// Maximum number of mappings that the process may have; absent for a list that does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// True if mappings are, or may be, missing from the list, so that their number says nothing about the limit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
    /// Format of the list, if it shows less than a copy of `/proc/PID/maps` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<ListFormat>,
    /// What the process has left before a call is refused; absent if only a part of its list is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<Room>,
    /// Files that set the limit when the system starts, if this was a running process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_files: Option<LimitFiles>,
    /// Time of the report on a running process, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_unix_ms: Option<u64>,
    /// Call that failed in the process, if the file with its list describes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Number of lines in the list that do not count as mappings (`[vsyscall]`).
    pub not_counted: u64,
    /// Number of mappings that were examined: all, or those within a range.
    pub looked_at: u64,
    /// Number of mappings that changed while they were being read.
    pub changed: u64,
    /// Reasons, most mappings first; their mapping counts add up to `looked_at` minus 1.
    pub reasons: Vec<ReasonCount>,
    /// Number of mappings that all repairs together would save, including those that are not safe.
    pub joinable: u64,
    /// The repairs and what each leaves; absent for a recorded program, which has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Conspicuous patterns in the list of mappings.
    pub findings: Vec<Finding>,
    /// Causes of many mappings that are known by name, most mappings first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Recommended next step.
    pub advice: Advice,
    /// Changes to the recorded program that would have prevented mappings, each replayed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prevention: Vec<Prevented>,
    /// Memory calls of the recorded program that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_calls: Vec<FailedCalls>,
    /// Functions of the program that made the mappings, most mappings first, if stacks were recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made_from: Vec<MadeFrom>,
    /// What changed since an earlier moment, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Growth>,
    /// Every mapping, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<MappingRow>>,
}

impl Report {
    /// Returns the number of mappings as a percentage of the limit; `None` if the limit is not
    /// known, or if mappings are missing from the list.
    pub fn percent_of_limit(&self) -> Option<f64> {
        let limit = self.limit.filter(|_| !self.incomplete)?;
        Some(self.mappings as f64 * 100.0 / limit.max(1) as f64)
    }
}

/// Explains all boundaries of a process.
pub fn explain(process: &Process, list: List) -> Report {
    let boundaries = process.boundaries();
    let evidence = Evidence::of(process.pid);
    report(process, &boundaries, &evidence, None, list)
}

/// Explains all boundaries of a recorded program, and names the calls that created them.
///
/// `stacks` contains the stacks of the calls; it is empty if they were not recorded.
pub fn explain_recorded(recorded: &Recorded, stacks: &Stacks, list: List) -> Report {
    let process = &recorded.process;
    let boundaries = process.boundaries();
    let traced = Traced {
        boundaries: &boundaries,
        recorded,
        stacks,
    };
    report(
        process,
        &boundaries,
        &recorded.evidence,
        Some(&traced),
        list,
    )
}

fn report(
    process: &Process,
    boundaries: &[Boundary],
    evidence: &Evidence,
    traced: Option<&Traced<'_>>,
    list: List,
) -> Report {
    let plan = Plan::of(process, boundaries);
    let subject = Subject::new(process, boundaries, evidence);
    let mut causes = causes::causes(&subject);
    if causes.is_empty() && traced.is_some() {
        // What the process no longer has, only the recording shows.
        causes = causes::causes(&Subject::new(process, boundaries, &Evidence::default()));
    }
    let situation = Situation {
        mappings: process.total,
        limit: process.limit.filter(|_| !process.incomplete),
        plan: &plan,
        causes: &causes,
        is_hidden: process.source.hides_anon_vmas(),
    };
    Report {
        schema: 2,
        pid: process.pid,
        name: process.name.clone(),
        source: process.source,
        without_view: process.without_view.clone(),
        rules: process.kernel.as_ref().map(RulesBasis::from),
        mappings: process.total,
        limit: process.limit,
        room: Room::of(process),
        incomplete: process.incomplete,
        format: process.format.map(ListFormat::from),
        limit_files: process.pid.and_then(|_| limit_files(Path::new("/"))),
        taken_unix_ms: process.pid.and_then(|_| unix_ms(SystemTime::now())),
        failure: failure::failure(process),
        not_counted: process.not_counted,
        looked_at: process.mappings.len() as u64,
        changed: process.changed,
        reasons: reasons(process, boundaries, traced, &plan),
        joinable: plan.saved(),
        advice: match traced {
            Some(traced) => situation.advice_for_command(traced.recorded),
            None => situation.advice(),
        },
        prevention: traced.map_or_else(Vec::new, Traced::prevented),
        failed_calls: traced.map_or_else(Vec::new, Traced::failed_calls),
        made_from: traced.map_or_else(Vec::new, |traced| traced.functions(&plan)),
        since: None,
        findings: findings::findings(&subject, &causes, plan.saved()),
        causes,
        rows: (list == List::All).then(|| rows::rows(process, boundaries)),
        plan: traced.is_none().then_some(plan),
    }
}

/// Returns a time in milliseconds since 1970; `None` for an earlier time.
pub fn unix_ms(time: SystemTime) -> Option<u64> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

fn reasons(
    process: &Process,
    boundaries: &[Boundary],
    traced: Option<&Traced<'_>>,
    plan: &Plan,
) -> Vec<ReasonCount> {
    // Boundary n is between the mappings n and n + 1.
    let is_removed = |n: usize| plan.removes(process.mappings[n + 1].entry.start);
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
            joinable: all.iter().filter(|n| is_removed(**n)).count() as u64,
            words: reason.words(),
            detail: detail::of(reason, &process.mappings, &all),
            made_by: traced.map_or_else(Vec::new, |traced| traced.calls(reason)),
        }
    });
    let mut counted: Vec<_> = counted.collect();
    counted.sort_by_key(|count| std::cmp::Reverse(count.mappings));
    counted
}
