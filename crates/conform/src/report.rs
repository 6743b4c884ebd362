//! What a run came to, for people and as JSON.

use super::c_program::c_program;
use super::environment::Environment;
use super::op::{Op, Step};
use super::outcome::Outcome;
use super::regression::Regression;
use super::run::Settings;
use super::sequence::Difference;
use super::superset::{Comparison, FewerVmas};
use serde::Serialize;
use std::collections::BTreeMap;

/// Number of the JSON's form.
const SCHEMA: u32 = 1;

/// What a run came to.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Number of this form.
    pub schema: u32,
    /// The kernel that was asked.
    pub kernel: String,
    /// The rules of our side.
    pub profile: &'static str,
    /// Where the sequences come from.
    pub seed: u64,
    /// Steps done and compared.
    pub compared: u64,
    /// Of these were system calls; the others accesses, forks, exits and work on pages.
    pub calls: u64,
    /// Of these, by what they were.
    pub steps: BTreeMap<String, Tally>,
    /// Sequences.
    pub sequences: u64,
    /// Of these ended early, because the kernel's side had more VMAs than can be listed there.
    pub too_large: u64,
    /// Differences, each of another kind.
    pub differences: Vec<Found>,
    /// Where ours had fewer VMAs, under a policy that merges more than Linux.
    pub fewer_vmas: Option<FewerVmas>,
    /// What the kernel did with pages meanwhile, on the whole machine: counts of `/proc/vmstat`.
    pub kernel_work: BTreeMap<&'static str, u64>,
    /// Time for comparing, without shrinking.
    pub seconds: f64,
    /// What was not compared, and why.
    pub not_compared: Vec<String>,
}

/// How often a kind of step was done.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Tally {
    /// Steps.
    pub done: u64,
    /// Of these ended in an error or a signal.
    pub refused: u64,
}

/// A difference with its shortest sequence.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Seed of its sequence.
    pub seed: u64,
    /// What differs at the last step.
    pub difference: Difference,
    /// The steps.
    pub steps: Vec<Step>,
    /// The steps as a C program.
    pub c_program: String,
    /// The steps with Linux's answers, to be kept as a test.
    pub kept: Option<Regression>,
}

impl Report {
    /// Counts the steps of one more sequence.
    pub(crate) fn count(&mut self, steps: &[(Step, Outcome)]) {
        self.sequences += 1;
        self.compared += steps.len() as u64;
        for (step, outcome) in steps {
            let tally = self.steps.entry(step.op.name().to_owned()).or_default();
            tally.done += 1;
            tally.refused += u64::from(outcome.is_refused());
            self.calls += u64::from(matches!(step.op, Op::Call(_)));
        }
    }

    /// True for a difference of a kind that no earlier one has.
    pub(crate) fn is_new(&self, difference: &Difference) -> bool {
        let mut earlier = self.differences.iter();
        earlier.all(|found| found.difference.kind != difference.kind)
    }

    /// Nothing done yet.
    pub fn begin(environment: &Environment, settings: &Settings) -> Report {
        let release = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        Report {
            schema: SCHEMA,
            kernel: release,
            profile: environment.policy.name,
            seed: settings.seed,
            compared: 0,
            calls: 0,
            steps: BTreeMap::new(),
            sequences: 0,
            too_large: 0,
            differences: Vec::new(),
            fewer_vmas: (environment.comparison == Comparison::FewerVmas).then(FewerVmas::default),
            kernel_work: BTreeMap::new(),
            seconds: 0.0,
            not_compared: environment.not_compared.clone(),
        }
    }

    /// Compared steps per second.
    pub fn rate(&self) -> f64 {
        self.compared as f64 / self.seconds.max(1e-9)
    }
}

impl Found {
    /// A difference with what people may want of it.
    pub fn new(
        seed: u64,
        steps: Vec<Step>,
        difference: Difference,
        kept: Option<Regression>,
    ) -> Found {
        Found {
            c_program: c_program(&steps, Some(&difference), kept.as_ref()),
            seed,
            difference,
            steps,
            kept,
        }
    }
}
