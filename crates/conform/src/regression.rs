//! A sequence that once differed, kept with what Linux said, so that it can be played again: with
//! the kernel where one may be asked, and without.

use super::environment::Environment;
use super::kernel::KernelError;
use super::model::Model;
use super::op::Step;
use super::outcome::Outcome;
use super::sequence::Pair;
use serde::{Deserialize, Serialize};
use vmarea::policy::Policy;
use vmarea_oracle::OracleError;

/// A sequence with Linux's answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Regression {
    /// What it is about, in a sentence.
    pub about: String,
    /// The kernel that answered.
    #[serde(default)]
    pub kernel: String,
    /// The processor has protection keys.
    #[serde(default)]
    pub keys: bool,
    /// The steps.
    pub steps: Vec<RegressionStep>,
    /// What each process has mapped at the end: `start-end flags pgoff`, in hexadecimal.
    #[serde(default)]
    pub mapped: Vec<(u8, Vec<String>)>,
    /// Which of that has an anon_vma: `start number`, the numbers as they come. Empty where it is not known.
    #[serde(default)]
    pub anon_vmas: Vec<(u8, Vec<String>)>,
}

/// A step with Linux's answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RegressionStep {
    /// The step.
    #[serde(flatten)]
    pub step: Step,
    /// What it came to.
    #[serde(default)]
    pub gives: String,
    /// The same, where the kernel was asked just now.
    #[serde(skip)]
    pub outcome: Option<Outcome>,
}

/// Asks the kernel about a sequence.
///
/// # Errors
/// Where the kernel's side fails.
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
    /// As a file: JSON with a line for each step.
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

    /// Plays it on the core alone.
    ///
    /// # Errors
    /// What differs from Linux's answers.
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
                .space()
                .validate_all()
                .map_err(|v| format!("step {number}, {}: {}", kept.step, v.0))?;
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

/// A value as JSON on one line.
fn line<T: Serialize>(value: &T) -> String {
    // Strings, numbers and lists of them always have a form.
    serde_json::to_string(value).unwrap_or_default()
}
