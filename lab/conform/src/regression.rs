//! Sequences that once showed a difference, stored with Linux's results.
//!
//! A stored sequence can be replayed with or without a kernel.

use super::environment::Environment;
use super::kernel::KernelError;
use super::model::Model;
use super::op::Step;
use super::outcome::Outcome;
use super::sequence::Pair;
use serde::{Deserialize, Serialize};
use vmarea::policy::Policy;
use vmarea_oracle::OracleError;

/// A sequence with Linux's results.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Regression {
    /// One sentence that describes the tested behaviour.
    pub about: String,
    /// Version of the kernel that produced the results.
    #[serde(default)]
    pub kernel: String,
    /// True if the processor has protection keys.
    #[serde(default)]
    pub keys: bool,
    /// Steps of the sequence.
    pub steps: Vec<RegressionStep>,
    /// Final mappings of each process, as `start-end flags pgoff` in hexadecimal.
    #[serde(default)]
    pub mapped: Vec<(u8, Vec<String>)>,
    /// Final anon_vmas of each process, as `start number`; empty if unknown.
    ///
    /// anon_vmas are numbered in the order in which they first occur in the list.
    #[serde(default)]
    pub anon_vmas: Vec<(u8, Vec<String>)>,
}

/// A step with Linux's result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RegressionStep {
    /// The step itself, without Linux's result.
    #[serde(flatten)]
    pub step: Step,
    /// Linux's result as text.
    #[serde(default)]
    pub gives: String,
    /// Linux's result as a value, if the kernel executed the step in this run.
    #[serde(skip)]
    pub outcome: Option<Outcome>,
}

/// Executes a sequence on the kernel and records the results.
///
/// # Errors
/// If the kernel side fails.
pub fn record(
    environment: &Environment,
    about: &str,
    steps: &[Step],
) -> Result<Regression, KernelError> {
    let reset = environment.files.reset();
    reset.map_err(|e| KernelError::Oracle(OracleError::Start(e)))?;
    let mut pair = Pair::start(environment)?;
    let mut kept = Vec::new();
    for step in steps {
        let outcome = pair.ask(step)?.named(pair.model.places());
        kept.push(RegressionStep {
            step: step.clone(),
            gives: outcome.to_string(),
            outcome: Some(outcome),
        });
    }
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    Ok(Regression {
        about: about.to_owned(),
        kernel: release,
        keys: environment.system.protection_keys,
        steps: kept,
        mapped: pair.mapped()?,
        anon_vmas: pair.anon_vmas()?,
    })
}

impl Regression {
    /// Converts the regression to JSON, with one line per step.
    pub fn text(&self) -> String {
        let list = |lines: Vec<String>| {
            if lines.is_empty() {
                "[]".to_owned()
            } else {
                format!("[\n    {}\n  ]", lines.join(",\n    "))
            }
        };
        format!(
            "{{\n  \"about\": {},\n  \"kernel\": {},\n  \"keys\": {},\n  \"steps\": {},\n  \"mapped\": {},\n  \
             \"anon_vmas\": {}\n}}\n",
            line(&self.about),
            line(&self.kernel),
            self.keys,
            list(self.steps.iter().map(line).collect()),
            list(self.mapped.iter().map(line).collect()),
            list(self.anon_vmas.iter().map(line).collect()),
        )
    }

    /// Executes the sequence on the core alone.
    ///
    /// # Errors
    /// The first difference from Linux's results.
    pub fn play(&self, policy: Policy) -> Result<(), String> {
        let mut model =
            Model::alone(policy, self.keys).map_err(|e| format!("no address space: {e}"))?;
        for (number, kept) in self.steps.iter().enumerate() {
            let ours = model.apply(&kept.step);
            let ours = ours.named(model.places()).to_string();
            if ours != kept.gives {
                return Err(format!(
                    "step {number}, {}: Linux {}, vmarea {ours}",
                    kept.step, kept.gives
                ));
            }
            model
                .machine()
                .validate()
                .map_err(|v| format!("step {number}, {}: {v}", kept.step))?;
        }
        for (process, linux) in &self.mapped {
            let ours = model.state(usize::from(*process)).listed(model.places());
            if ours != *linux {
                return Err(format!(
                    "process {process}: Linux {linux:#?}, vmarea {ours:#?}"
                ));
            }
        }
        let mut known = Vec::new();
        for (process, linux) in &self.anon_vmas {
            let state = model.state(usize::from(*process));
            let ours = state.anon_vmas(model.places(), &mut known);
            if ours != *linux {
                return Err(format!(
                    "anon_vmas of process {process}: Linux {linux:#?}, vmarea {ours:#?}"
                ));
            }
        }
        Ok(())
    }
}

/// Converts a value to JSON on one line.
fn line<T: Serialize>(value: &T) -> String {
    // Conversion of strings, numbers and lists of them cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}
