//! Result of a run, as text and as JSON.

use super::c_program::c_program;
use super::environment::Environment;
use super::op::{Op, Step};
use super::outcome::Outcome;
use super::recall::Flip;
use super::regression::Regression;
use super::sequence::Difference;
use super::superset::{Comparison, FewerVmas};
use serde::Serialize;
use std::collections::BTreeMap;
use vmarea::policy::kernel::KernelRules;
use vmarea_process::kernel::RulesBasis;
use vmarea_process::{probed, system};

/// Version of the JSON format.
const SCHEMA: u32 = 1;

/// Result of a run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Version of the JSON format.
    pub schema: u32,
    /// Version of the kernel with which the core was compared.
    pub kernel: String,
    /// Name of the core's policy.
    pub profile: &'static str,
    /// What a probe of the kernel found, which must be the rules of its version.
    pub probe: RulesBasis,
    /// Seed of the run, from which the sequences are generated.
    pub seed: u64,
    /// Number of steps that were executed and compared.
    pub compared: u64,
    /// Number of compared steps that were system calls other than fork and exit. Accesses, fills
    /// and page work are not counted.
    pub calls: u64,
    /// Counts of compared steps by kind of step.
    pub steps: BTreeMap<String, Tally>,
    /// Number of sequences.
    pub sequences: u64,
    /// Number of sequences that ended early because the kernel side had too many VMAs to list.
    pub too_large: u64,
    /// Differences, at most one of each kind.
    pub differences: Vec<Found>,
    /// Other values of the settings, and where the run would have found them, if it was asked.
    pub recall: Vec<Flip>,
    /// Statistics on cases in which the core has fewer VMAs, if its policy merges more than Linux
    /// does.
    pub fewer_vmas: Option<FewerVmas>,
    /// The kernel's work on pages of the whole machine during the run: counts from `/proc/vmstat`.
    pub kernel_work: BTreeMap<&'static str, u64>,
    /// Seconds spent comparing, excluding shrinking.
    pub seconds: f64,
    /// Features that were not compared, with the reasons.
    pub not_compared: Vec<String>,
}

/// Counts for one kind of step.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tally {
    /// Number of steps.
    pub done: u64,
    /// Number of steps of this kind that ended in an error or a signal.
    pub refused: u64,
}

/// A difference, with the shortest sequence found that shows it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Found {
    /// Seed of the sequence.
    pub seed: u64,
    /// The difference at the last step.
    pub difference: Difference,
    /// Steps of the shrunk sequence.
    pub steps: Vec<Step>,
    /// The steps as a C program.
    pub c_program: String,
    /// The steps with Linux's results, for use as a test.
    pub kept: Option<Regression>,
    /// Rules, as `name=value`, each of which explains the difference alone, if they were looked
    /// for. The first one was taken over for the rest of the run.
    pub rules: Vec<String>,
}

impl Report {
    /// Adds the steps of another sequence to the counts.
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

    /// Returns true if the report contains no difference of the same kind.
    pub(crate) fn is_new(&self, difference: &Difference) -> bool {
        let mut earlier = self.differences.iter();
        earlier.all(|found| found.difference.kind != difference.kind)
    }

    /// Creates an empty report.
    pub fn begin(environment: &Environment, seed: u64) -> Report {
        let release = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        let probed = KernelRules::of(&system::build(), &probed::probe());
        Report {
            schema: SCHEMA,
            kernel: release,
            profile: environment.policy.name,
            probe: RulesBasis::from(&probed),
            seed,
            compared: 0,
            calls: 0,
            steps: BTreeMap::new(),
            sequences: 0,
            too_large: 0,
            differences: Vec::new(),
            recall: Vec::new(),
            fewer_vmas: (environment.comparison == Comparison::FewerVmas).then(FewerVmas::default),
            kernel_work: BTreeMap::new(),
            seconds: 0.0,
            not_compared: environment.not_compared.clone(),
        }
    }

    /// Returns the number of compared steps per second.
    pub fn rate(&self) -> f64 {
        self.compared as f64 / self.seconds.max(1e-9)
    }
}

impl Found {
    /// Creates a finding from shrunk steps, with the C program and the test that reproduce it.
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
            rules: Vec::new(),
        }
    }
}
