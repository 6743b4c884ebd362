//! Why the mappings of a process stay apart, what that costs, and what can be done.
//!
//! `process` gives every boundary between two neighbours its reason, which is *likely* instead of
//! *certain* where `/proc` hides a part of it, and its remedy. This crate counts them, estimates
//! what the remedies cost, and gives advice; it changes nothing. [`top`] shows the same for all
//! processes, with less detail.
//!
//! # Picture
//! ```text
//! Process ─▶ boundaries ─┬─▶ reasons ──▶ detail, made_by ─┐
//!                        ├─▶ remedies ─▶ savings ─────────┼─▶ advice ─▶ Report
//!                        └─▶ findings ────────────────────┘
//! ```
//! # Invariants
//! X1  the mappings of all reasons and the first mapping add up to the list
#![forbid(unsafe_code)]

pub mod advice;
pub mod detail;
pub mod estimate;
pub mod findings;
pub mod made_by;
pub mod origins;
pub mod recorded;
pub mod rows;
pub mod stacks;
pub mod text;
pub mod top;

use advice::{Advice, Situation};
use estimate::Saving;
use findings::Finding;
use made_by::{MadeBy, MadeFrom, Traced};
use recorded::Recorded;
use rows::MappingRow;
use serde::Serialize;
use std::collections::BTreeMap;
use vmarea_process::{Boundary, Certainty, Process, Reason, Source, boundaries};

/// Whether each mapping is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum List {
    /// Counts only.
    #[default]
    Summary,
    /// Every mapping.
    All,
}

/// What one reason costs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ReasonCount {
    /// Its short name.
    pub reason: &'static str,
    /// Boundaries that it makes: each costs a mapping.
    pub mappings: u64,
    /// How many of them are certain.
    pub certain: u64,
    /// How many can be taken away.
    pub joinable: u64,
    /// What it means, in a few words.
    pub words: &'static str,
    /// The most frequent kind of it.
    pub detail: String,
    /// Which calls made these boundaries, where that was recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made_by: Vec<MadeBy>,
}

/// Everything that is said of a process.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Version of this structure.
    pub schema: u32,
    /// The process, where there is one.
    pub pid: Option<i32>,
    /// What people call it.
    pub name: String,
    /// How it was seen.
    pub source: Source,
    /// Why the kernel's own view was not read, where it was to be.
    pub without_view: Option<String>,
    /// All its mappings.
    pub mappings: u64,
    /// How many it may have.
    pub limit: u64,
    /// Lines of the list that are no mappings that count (`[vsyscall]`).
    pub not_counted: u64,
    /// Mappings that were looked at: all, or those within a range.
    pub looked_at: u64,
    /// Mappings that changed while they were read.
    pub changed: u64,
    /// Reasons, the costliest first; their mappings and 1 are `looked_at`.
    pub reasons: Vec<ReasonCount>,
    /// Mappings that could be joined.
    pub joinable: u64,
    /// By which means.
    pub savings: Vec<Saving>,
    /// What catches the eye.
    pub findings: Vec<Finding>,
    /// What to do.
    pub advice: Advice,
    /// From where in the program most boundaries were made, where that was recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub made_from: Vec<MadeFrom>,
    /// Every mapping, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<MappingRow>>,
}

impl Report {
    /// Mappings in percent of the limit.
    pub fn percent_of_limit(&self) -> f64 {
        self.mappings as f64 * 100.0 / self.limit.max(1) as f64
    }
}

/// Explains all boundaries of a process.
pub fn explain(process: &Process, list: List) -> Report {
    let boundaries = boundaries(&process.policy, &process.mappings);
    report(process, &boundaries, None, list)
}

/// Explains all boundaries of a recorded program, and which calls made them; `stacks` are those of
/// the calls, by their numbers.
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
    let savings = estimate::savings(process, boundaries);
    let findings = findings::findings(process, boundaries);
    let situation = Situation {
        pid: process.pid,
        command: traced.map(|traced| traced.recorded.command.as_slice()),
        mappings: process.total,
        limit: process.limit,
        savings: &savings,
        findings: &findings,
    };
    Report {
        schema: 1,
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
        joinable: savings.iter().map(|saving| saving.mappings).sum(),
        advice: situation.advice(),
        made_from: traced.map_or_else(Vec::new, Traced::places),
        rows: (list == List::All).then(|| rows::rows(process, boundaries)),
        savings,
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
