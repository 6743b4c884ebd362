//! Why the mappings of a process stay apart, what that costs, and what can be done.
//!
//! Every boundary between two neighbours has one reason, which is *likely* instead of *certain*
//! where `/proc` hides a part of it. [`top`] shows the same for all processes, with less detail. This
//! crate gives advice and changes nothing.
//!
//! # Picture
//! ```text
//! /proc, BPF, a pasted file, a replay ─▶ Subject ─▶ boundaries (the core's decision) ─▶ Report
//!                                                        └─ fix ─▶ savings, findings ─▶ advice
//! ```
//! # Invariants
//! X1  the mappings of all reasons and the first mapping add up to the list
#![forbid(unsafe_code)]

pub mod advice;
pub mod boundary;
pub mod detail;
pub mod estimate;
pub mod findings;
pub mod fix;
pub mod made_by;
pub mod origins;
pub mod recorded;
pub mod rows;
pub mod sight;
pub mod stacks;
pub mod subject;
pub mod text;
pub mod top;

use advice::{Advice, Situation};
use boundary::{Boundary, Certainty, Reason};
use estimate::Saving;
use findings::Finding;
use made_by::{MadeBy, MadeFrom, Traced};
use recorded::Recorded;
use rows::Row;
use serde::Serialize;
use std::collections::BTreeMap;
use subject::{Source, Subject};

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
    pub rows: Option<Vec<Row>>,
}

impl Report {
    /// Mappings in percent of the limit.
    pub fn percent_of_limit(&self) -> f64 {
        self.mappings as f64 * 100.0 / self.limit.max(1) as f64
    }
}

/// Explains all boundaries of a subject.
pub fn explain(subject: &Subject, list: List) -> Report {
    let boundaries = boundary::boundaries(&subject.policy, &subject.seen);
    report(subject, &boundaries, None, list)
}

/// Explains all boundaries of a recorded program, and which calls made them; `stacks` are those of
/// the calls, by their numbers.
pub fn explain_recorded(recorded: &Recorded, stacks: &[Vec<String>], list: List) -> Report {
    let subject = &recorded.subject;
    let boundaries = boundary::boundaries(&subject.policy, &subject.seen);
    let traced = Traced {
        boundaries: &boundaries,
        recorded,
        stacks,
    };
    report(subject, &boundaries, Some(&traced), list)
}

fn report(
    subject: &Subject,
    boundaries: &[Boundary],
    traced: Option<&Traced<'_>>,
    list: List,
) -> Report {
    let savings = estimate::savings(subject, boundaries);
    let findings = findings::findings(subject, boundaries);
    let situation = Situation {
        pid: subject.pid,
        command: traced.map(|traced| traced.recorded.command.as_slice()),
        mappings: subject.total,
        limit: subject.limit,
        savings: &savings,
        findings: &findings,
    };
    Report {
        schema: 1,
        pid: subject.pid,
        name: subject.name.clone(),
        source: subject.source,
        without_view: subject.without_view.clone(),
        mappings: subject.total,
        limit: subject.limit,
        not_counted: subject.not_counted,
        looked_at: subject.seen.len() as u64,
        changed: subject.changed,
        reasons: reasons(subject, boundaries, traced),
        joinable: savings.iter().map(|saving| saving.mappings).sum(),
        advice: situation.advice(),
        made_from: traced.map_or_else(Vec::new, Traced::places),
        rows: (list == List::All).then(|| rows::rows(subject, boundaries)),
        savings,
        findings,
    }
}

fn reasons(
    subject: &Subject,
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
            joinable: count(&|b| b.fix.is_some()),
            words: reason.words(),
            detail: detail::of(reason, &subject.seen, &all),
            made_by: traced.map_or_else(Vec::new, |traced| traced.calls(reason)),
        }
    });
    let mut counted: Vec<_> = counted.collect();
    counted.sort_by_key(|count| std::cmp::Reverse(count.mappings));
    counted
}
