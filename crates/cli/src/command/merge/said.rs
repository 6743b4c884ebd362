//! The result of `vmarea merge` as JSON.

use super::name;
use serde::Serialize;
use std::collections::BTreeMap;
use vmarea_explain::estimate::Cost;
use vmarea_process::kernel::{self, RulesBasis};
use vmarea_repair::{Fixed, Kept, Report, Survey, Way};

/// Version of the JSON schema; a change that breaks readers increments it.
const SCHEMA: u32 = 1;

/// Result of a merge, or in a dry run what a merge would do.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Said {
    /// Version of this structure.
    schema: u32,
    /// Process ID.
    pid: i32,
    /// What the rules of the kernel rest on.
    rules: RulesBasis,
    /// True if the process was changed; false in a dry run.
    pub(super) applied: bool,
    /// Number of mappings of the process before the merge.
    pub(super) before: u64,
    /// Number of mappings of the process after the merge, or in a dry run the expected number.
    pub(super) after: u64,
    /// Number of mappings that the forecast promised; equal to `after` in a dry run.
    pub(super) promised: u64,
    /// Number of boundaries that the forecast expected to disappear but that may remain.
    pub(super) may_remain: u64,
    /// Number of runs of adjacent mappings that are merged.
    pub(super) runs: u64,
    /// Size of these runs in bytes of address space.
    pub(super) bytes: u64,
    /// Number of steps in which the runs were merged; 0 in a dry run.
    pub(super) pieces: u64,
    /// The way in which pages get to their new mapping: `move` or `copy`.
    pub(super) by: &'static str,
    /// Number of pages that were copied.
    pub(super) copied_pages: u64,
    /// Longest time for which the process was stopped, in microseconds; in a dry run the estimate.
    pub(super) longest_pause_us: u64,
    /// Number of pauses that were longer than `--max-pause`.
    pub(super) long_pauses: u64,
    /// Duration of the whole merge in microseconds; in a dry run the estimate.
    pub(super) total_us: u64,
    /// Number of threads that each stop of the process stops; 0 after a merge.
    pub(super) threads: u64,
    /// Estimated time of a stop without any work, in microseconds; 0 after a merge.
    pub(super) stop_us: u64,
    /// Number of mappings that were not tried because a signal interrupted the merge.
    pub(super) left: u64,
    /// Number of merges that the forecast expected and that were refused.
    #[serde(skip)]
    pub(super) refused: u64,
    /// Number of boundaries that remain, by the name of the reason.
    kept_apart: BTreeMap<&'static str, u64>,
    /// Results of the repairs that `--fix` requests.
    fixes: Vec<SaidFix>,
}

/// Result of a repair that `--fix` requests.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct SaidFix {
    /// Name of the repair.
    fix: &'static str,
    /// Number of places that the repair changed, or would change in a dry run.
    places: u64,
    /// Number of places that stay separate because they were used as memory once.
    left_apart: u64,
    /// Number of places that were not tried because a signal interrupted the repair.
    left: u64,
    /// Measured number of mappings saved; absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    mappings_fewer: Option<i64>,
}

impl Said {
    /// Returns the result of a dry run.
    pub(super) fn of_survey(pid: i32, way: Way, survey: &Survey, cost: &Cost) -> Said {
        Said {
            schema: SCHEMA,
            pid,
            rules: RulesBasis::from(kernel::rules()),
            applied: false,
            before: survey.mappings,
            after: survey.after,
            promised: survey.after,
            may_remain: survey.may_remain,
            runs: survey.runs,
            bytes: survey.bytes,
            pieces: 0,
            by: name(way),
            copied_pages: 0,
            longest_pause_us: cost.pause_ns / 1_000,
            long_pauses: 0,
            total_us: cost.total_ns / 1_000,
            threads: cost.threads,
            stop_us: cost.stop_ns / 1_000,
            left: 0,
            refused: 0,
            kept_apart: kept(&survey.kept),
            fixes: Vec::new(),
        }
    }

    /// Returns the result of a merge.
    pub(super) fn of_report(pid: i32, way: Way, report: &Report, survey: &Survey) -> Said {
        Said {
            schema: SCHEMA,
            pid,
            rules: RulesBasis::from(kernel::rules()),
            applied: report.runs > 0,
            before: survey.mappings,
            after: report.after,
            promised: survey.after,
            may_remain: survey.may_remain,
            runs: report.runs,
            bytes: report.bytes,
            pieces: report.pieces,
            by: name(way),
            copied_pages: report.copied,
            longest_pause_us: report.longest_pause.as_micros() as u64,
            long_pauses: report.long_pauses,
            total_us: report.total.as_micros() as u64,
            threads: 0,
            stop_us: 0,
            left: report.left,
            refused: obstacles(&report.kept).saturating_sub(obstacles(&survey.kept)),
            kept_apart: kept(&report.kept),
            fixes: Vec::new(),
        }
    }

    /// Adds the results of the repairs.
    pub(super) fn with(mut self, fixes: &[Fixed]) -> Said {
        let longest = fixes
            .iter()
            .map(|fixed| fixed.longest_pause.as_micros() as u64);
        self.longest_pause_us = longest.fold(self.longest_pause_us, u64::max);
        self.long_pauses += fixes.iter().map(|fixed| fixed.long_pauses).sum::<u64>();
        self.fixes = fixes
            .iter()
            .map(|fixed| SaidFix {
                fix: fixed.fix.name(),
                places: fixed.places,
                left_apart: fixed.apart,
                left: fixed.left,
                mappings_fewer: fixed.fewer,
            })
            .collect();
        self
    }
}

/// Returns the number of places where a merge was tried or requested but not done.
fn obstacles(kept: &Kept) -> u64 {
    let obstacles = kept.by_reason.iter().filter(|(why, _)| why.is_obstacle());
    obstacles.map(|(_, n)| n).sum()
}

fn kept(kept: &Kept) -> BTreeMap<&'static str, u64> {
    let mut named = BTreeMap::new();
    for (reason, n) in &kept.by_reason {
        *named.entry(reason.name()).or_default() += n;
    }
    named
}
