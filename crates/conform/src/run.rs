//! A whole run: sequences one after the other until enough calls were compared.

use super::environment::Environment;
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
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vmarea_process::view::ViewError;

/// What is done about a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shrinking {
    /// Its sequence is made as short as it can be.
    Shortest,
    /// Nothing: that there is one is enough.
    None,
}

/// What a run is to do.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Steps in all.
    pub ops: u64,
    /// Where the sequences come from.
    pub seed: u64,
    /// Time after which no new sequence begins.
    pub time: Option<Duration>,
    /// Differences after which the run ends.
    pub most_differences: usize,
    /// What is done about a difference.
    pub shrinking: Shrinking,
}

/// Why a run cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No view into the kernel.
    #[error(transparent)]
    View(#[from] ViewError),
    /// No files.
    #[error("cannot make the files that are mapped: {0}")]
    Files(#[source] std::io::Error),
    /// The kernel's side.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// Compares until the calls, the time or the differences are enough; `told` hears the number of
/// steps from time to time.
///
/// # Errors
/// Where the kernel's side fails.
pub fn run(
    environment: &Environment,
    settings: &Settings,
    mut told: impl FnMut(&Report),
) -> Result<Report, RunError> {
    let mut report = Report::begin(environment, settings);
    let mut cut_short = BTreeMap::new();
    let mut seeds = Rng::new(settings.seed);
    let begun = Instant::now();
    while report.compared < settings.ops && report.differences.len() < settings.most_differences {
        if settings.time.is_some_and(|time| begun.elapsed() >= time) {
            break;
        }
        let seed = seeds.next_u64();
        let clock = Instant::now();
        let Played {
            steps,
            difference,
            fewer,
            too_large,
        } = sequence(environment, seed)?;
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
        if let Some(difference) = difference
            && report.is_new(&difference)
        {
            let steps = steps.into_iter().map(|(step, _)| step).collect();
            let found = found(environment, settings, seed, steps, difference)?;
            report.differences.push(found);
        }
        told(&report);
    }
    report.kernel_work = environment.surroundings.work();
    let cut_short: BTreeMap<String, u64> = cut_short;
    let said = |(how, times)| format!("the rest of {times} sequences: {how}");
    report.not_compared.extend(cut_short.into_iter().map(said));
    Ok(report)
}

/// A difference with the shortest steps that show it.
fn found(
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
    // A sequence that makes the kernel's side fail is shown without its answers.
    let kept = regression::record(environment, &difference.kind, &steps).ok();
    Ok(Found::new(seed, steps, difference, kept))
}

const TOO_LARGE: &str = "more VMAs than can be listed before Linux 6.1";
/// Bytes that differ show in a test only where somebody reads them.
fn with_witness(mut steps: Vec<Step>, difference: &Difference) -> Vec<Step> {
    if let Some((process, addr)) = difference.bytes_at {
        let op = Op::Read { addr };
        steps.push(Step { process, op });
    }
    steps
}

/// A sequence that was played.
#[derive(Clone, Debug)]
pub struct Played {
    /// Its steps, with what they came to on Linux.
    pub steps: Vec<(Step, Outcome)>,
    /// Where the sides part.
    pub difference: Option<Difference>,
    /// Where ours had fewer VMAs.
    pub fewer: FewerVmas,
    /// It ended early, because the kernel's side had more VMAs than can be listed there.
    pub too_large: bool,
}

/// One sequence from its seed: the steps that were done, and where the sides part.
///
/// # Errors
/// Where the kernel's side fails.
pub fn sequence(environment: &Environment, seed: u64) -> Result<Played, RunError> {
    environment.files.reset().map_err(RunError::Files)?;
    let mut pair = Pair::start(environment)?;
    let mut generator = Generator::new(seed, environment.facts);
    let most = generator.steps();
    let mut steps = Vec::with_capacity(most);
    while steps.len() < most {
        let step = generator.next(&pair.model);
        let (difference, too_large) = match pair.step(&step) {
            Err(KernelError::View(ViewError::TooMany(_))) => (None, true),
            difference => (difference?, false),
        };
        steps.push((step, pair.outcome()));
        if difference.is_some() || too_large || pair.has_parted() {
            return Ok(Played {
                steps,
                difference,
                fewer: pair.fewer().clone(),
                too_large,
            });
        }
    }
    Ok(Played {
        steps,
        difference: pair.finish()?,
        fewer: pair.fewer().clone(),
        too_large: false,
    })
}
