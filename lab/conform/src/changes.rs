//! What a kernel changed: the rules with other values than those that the core follows.
//!
//! A sequence ends at its first difference, so a rule that the core does not have hides whatever
//! comes after it. Therefore this run looks for the rule that explains a difference, takes it over,
//! and goes on: the same kind of difference, if it occurs again, then has another cause.

use super::environment::Environment;
use super::error::RunError;
use super::op::Step;
use super::others::others;
use super::regression::Regression;
use super::report::{Found, Report};
use super::rng::Rng;
use super::run::{CutShort, Settings, counted, end, found};
use super::sequence::{Difference, play};
use super::watch::Unwatched;
use std::time::Instant;
use vmarea::policy::Policy;
use vmarea::policy::setting::rules;

/// Executes the saved sequences and then random ones, until the limit on steps, time or differences
/// is reached, and takes over each rule that explains a difference.
///
/// Afterwards, the environment has the rules that were taken over. Calls `told` with the current
/// report after each sequence.
///
/// # Errors
/// If the kernel side fails.
pub fn run(
    environment: &mut Environment,
    saved: &[Regression],
    settings: &Settings,
    mut told: impl FnMut(&Report),
) -> Result<Report, RunError> {
    let mut report = Report::begin(environment, settings.seed);
    let mut cut_short = CutShort::new();
    let begun = Instant::now();
    for kept in saved {
        let steps: Vec<Step> = kept.steps.iter().map(|kept| kept.step.clone()).collect();
        let difference = play(environment, &steps)?;
        learn(environment, settings, (0, steps), difference, &mut report)?;
        told(&report);
    }
    let mut seeds = Rng::new(settings.seed);
    while settings.go_on(&report, begun) {
        let seed = seeds.next_u64();
        let (steps, difference) = counted(
            environment,
            seed,
            &mut Unwatched,
            &mut report,
            &mut cut_short,
        )?;
        learn(
            environment,
            settings,
            (seed, steps),
            difference,
            &mut report,
        )?;
        told(&report);
    }
    Ok(end(environment, report, cut_short))
}

/// Adds a difference to the report, unless it is of a kind that no rule explains, and takes over
/// the rule that explains it.
fn learn(
    environment: &mut Environment,
    settings: &Settings,
    (seed, steps): (u64, Vec<Step>),
    difference: Option<Difference>,
    report: &mut Report,
) -> Result<(), RunError> {
    let Some(difference) = difference else {
        return Ok(());
    };
    let is_same =
        |known: &Found| known.rules.is_empty() && known.difference.kind == difference.kind;
    if report.differences.iter().any(is_same) {
        return Ok(());
    }
    let mut found = found(environment, settings, seed, steps, difference)?;
    let explanations = explanations(environment, &found.steps)?;
    if let Some((_, policy)) = explanations.first() {
        environment.policy = *policy;
    }
    found.rules = explanations.into_iter().map(|(rule, _)| rule).collect();
    report.differences.push(found);
    Ok(())
}

/// Returns the rules with whose other value the steps show no difference, and the policies that
/// have them.
fn explanations(
    environment: &mut Environment,
    steps: &[Step],
) -> Result<Vec<(String, Policy)>, RunError> {
    let before = environment.policy;
    let mut explanations = Vec::new();
    for other in others(before, rules) {
        environment.policy = other.policy;
        let played = play(environment, steps);
        environment.policy = before;
        if played?.is_none() {
            explanations.push((other.setting, other.policy));
        }
    }
    Ok(explanations)
}
