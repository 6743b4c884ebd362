//! A complete run: executes sequences until enough steps have been compared.

use super::environment::Environment;
use super::error::RunError;
use super::generate::Generator;
use super::kernel::KernelError;
use super::op::{Op, Step};
use super::outcome::Outcome;
use super::regression;
use super::report::{Found, Report};
use super::rng::Rng;
use super::sequence::{Difference, Pair};
use super::shrink::shrink;
use super::superset::FewerVmas;
use super::watch::Watch;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vmarea_process::view::ViewError;

/// Whether to shrink a sequence that shows a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shrinking {
    /// Shrink the sequence as far as possible.
    Shortest,
    /// Do not shrink the sequence; it is enough to know that there is a difference.
    None,
}

/// Settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Total number of steps to compare.
    pub ops: u64,
    /// Seed from which the sequences are generated.
    pub seed: u64,
    /// Time after which no new sequence starts.
    pub time: Option<Duration>,
    /// Number of differences after which the run ends.
    pub most_differences: usize,
    /// Whether to shrink a sequence that shows a difference.
    pub shrinking: Shrinking,
}

/// Compares sequences until the limit on steps, time or differences is reached.
///
/// `watch` looks at each step. Calls `told` with the current report after each sequence.
///
/// # Errors
/// If the kernel side fails.
pub fn run(
    environment: &Environment,
    settings: &Settings,
    watch: &mut dyn Watch,
    mut told: impl FnMut(&Report),
) -> Result<Report, RunError> {
    let mut report = Report::begin(environment, settings.seed);
    let mut cut_short = CutShort::new();
    let mut seeds = Rng::new(settings.seed);
    let begun = Instant::now();
    while settings.go_on(&report, begun) {
        let seed = seeds.next_u64();
        let (steps, difference) = counted(environment, seed, watch, &mut report, &mut cut_short)?;
        if let Some(difference) = difference
            && report.is_new(&difference)
        {
            let found = found(environment, settings, seed, steps, difference)?;
            report.differences.push(found);
        }
        told(&report);
    }
    Ok(end(environment, report, cut_short))
}

impl Settings {
    /// Returns true if a run is to execute another sequence.
    pub(super) fn go_on(&self, report: &Report, begun: Instant) -> bool {
        let in_time = self.time.is_none_or(|time| begun.elapsed() < time);
        in_time && report.compared < self.ops && report.differences.len() < self.most_differences
    }
}

/// Numbers of sequences that ended early, by reason.
pub(super) type CutShort = BTreeMap<String, u64>;

/// Executes the sequence for a seed and counts it; returns its steps and the difference.
pub(super) fn counted(
    environment: &Environment,
    seed: u64,
    watch: &mut dyn Watch,
    report: &mut Report,
    cut_short: &mut CutShort,
) -> Result<(Vec<Step>, Option<Difference>), RunError> {
    let clock = Instant::now();
    let Played {
        steps,
        difference,
        fewer,
        too_large,
    } = sequence(environment, seed, (report.compared, watch))?;
    report.seconds += clock.elapsed().as_secs_f64();
    report.count(&steps);
    report.too_large += u64::from(too_large);
    if too_large {
        *cut_short.entry(TOO_LARGE.to_owned()).or_default() += 1;
    }
    if let Some(all) = &mut report.fewer_vmas {
        all.add(&fewer);
    } else {
        for (how, times) in fewer.results {
            *cut_short.entry(how).or_default() += times;
        }
    }
    let steps = steps.into_iter().map(|(step, _)| step).collect();
    Ok((steps, difference))
}

/// Completes the report at the end of a run.
pub(super) fn end(environment: &Environment, mut report: Report, cut_short: CutShort) -> Report {
    report.kernel_work = environment.surroundings.work();
    let said = |(how, times)| format!("the rest of {times} sequences: {how}");
    report.not_compared.extend(cut_short.into_iter().map(said));
    report
}

/// Shrinks the steps that show a difference, if the settings say so; records the kernel's results.
pub(super) fn found(
    environment: &Environment,
    settings: &Settings,
    seed: u64,
    steps: Vec<Step>,
    difference: Difference,
) -> Result<Found, RunError> {
    let (steps, difference) = match settings.shrinking {
        Shrinking::Shortest => shrink(environment, &steps, &difference)?,
        Shrinking::None => (steps, difference),
    };
    let steps = with_witness(steps, &difference);
    // If the kernel side fails on these steps, the finding has no kernel results.
    let kept = regression::record(environment, &difference.kind, &steps).ok();
    Ok(Found::new(seed, steps, difference, kept))
}

const TOO_LARGE: &str = "more VMAs than can be listed before Linux 6.1";
/// Appends a read of the bytes that differ: a regression test compares only bytes that are read.
fn with_witness(mut steps: Vec<Step>, difference: &Difference) -> Vec<Step> {
    if let Some((process, addr)) = difference.bytes_at {
        let op = Op::Read { addr };
        steps.push(Step { process, op });
    }
    steps
}

/// An executed sequence.
#[derive(Clone, Debug)]
pub struct Played {
    /// Executed steps, with their results on Linux.
    pub steps: Vec<(Step, Outcome)>,
    /// First difference between the kernel and the core.
    pub difference: Option<Difference>,
    /// Statistics on cases in which the core has fewer VMAs.
    pub fewer: FewerVmas,
    /// True if the sequence ended early because the kernel side had too many VMAs to list.
    pub too_large: bool,
}

/// Generates and executes the sequence for a seed, under the eyes of `watch`, after `compared` steps
/// of the run.
///
/// # Errors
/// If the kernel side fails, or the steps cannot be written.
pub fn sequence(
    environment: &Environment,
    seed: u64,
    (compared, watch): (u64, &mut dyn Watch),
) -> Result<Played, RunError> {
    environment.files.reset().map_err(RunError::Files)?;
    let mut pair = Pair::start(environment)?;
    let mut generator = Generator::new(seed, environment.facts);
    let most = generator.steps();
    watch.begin(seed, &pair).map_err(RunError::States)?;
    let mut steps = Vec::with_capacity(most);
    while steps.len() < most {
        let step = generator.next(&pair.model);
        let (difference, too_large) = match pair.step(&step) {
            Err(KernelError::View(ViewError::TooMany(_))) => (None, true),
            difference => (difference?, false),
        };
        let ends = difference.is_some() || too_large || pair.has_parted();
        if !ends {
            watch.step(&step, &pair).map_err(RunError::States)?;
        }
        steps.push((step, pair.outcome()));
        if ends {
            watch.end(compared, &pair);
            return Ok(Played {
                steps,
                difference,
                fewer: pair.fewer().clone(),
                too_large,
            });
        }
    }
    watch.end(compared, &pair);
    Ok(Played {
        steps,
        difference: pair.finish()?,
        fewer: pair.fewer().clone(),
        too_large: false,
    })
}
