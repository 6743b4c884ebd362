//! Recall: which rules a run tests.
//!
//! A run without a difference says nothing about a rule that none of its steps depends on. So what
//! the kernel showed after each step is kept until the sequence ends, and the steps are executed
//! again in the core under every policy that differs in one setting. A setting is *found* at the
//! first step whose result or state is not the kernel's: had the core had that value, the run would
//! have reported a difference there.
//!
//! ```text
//! sequence ─▶ kernel ─▶ results, VMAs ─┬─▶ core, brk_joins_next=on    differs at step 17 ─▶ found
//!                                      ├─▶ core, mseal=off            no difference      ─▶ next sequence
//!                                      └─▶ core, map_above_4g=off     …
//! ```

use super::environment::Environment;
use super::model::{Look, Model};
use super::op::Step;
use super::others::{Other, others};
use super::outcome::Outcome;
use super::sequence::{Excuses, Pair};
use super::state::{Pairings, SpaceState, compare};
use super::watch::Watch;
use serde::Serialize;
use std::io;
use std::thread;
use vmarea::System;
use vmarea::mm::Limits;
use vmarea::policy::Policy;
use vmarea::policy::setting::{rules, switches, without_effect};
use vmarea_oracle::PROCESSES;
use vmarea_process::view::View;

/// Another value of a setting, and where a run has found it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flip {
    /// The setting with the other value, as `name=value`.
    pub setting: String,
    /// The value under which the run was compared.
    pub instead_of: String,
    /// Number of steps of the run up to the first one that differs, if one does.
    pub found_after: Option<u64>,
    /// Kind of the difference.
    pub kind: Option<String>,
    #[serde(skip)]
    policy: Policy,
}

/// A step, as the kernel executed it.
struct Recorded {
    step: Step,
    outcome: Outcome,
    /// The address spaces that were read after the step.
    seen: Vec<(usize, SpaceState)>,
}

/// Plays each sequence again under the policies that have not been found yet.
pub struct Recall {
    flips: Vec<Flip>,
    system: System,
    limits: Limits,
    view: View,
    steps: Vec<Recorded>,
}

impl Recall {
    /// Begins with every other value of every setting of the environment's policy.
    pub fn new(environment: &Environment) -> Recall {
        let policy = environment.policy;
        let all = [switches, rules].map(|of| others(policy, of));
        let has_effect = |other: &Other| {
            let name = other.setting.split('=').next().unwrap_or_default();
            !without_effect(&other.policy)
                .iter()
                .any(|(useless, _)| *useless == name)
        };
        let all = all.into_iter().flatten().filter(has_effect);
        let flips = all.map(|other| Flip {
            setting: other.setting,
            instead_of: other.instead_of,
            found_after: None,
            kind: None,
            policy: other.policy,
        });
        Recall {
            flips: flips.collect(),
            system: environment.system,
            limits: environment.limits,
            view: View::default(),
            steps: Vec::new(),
        }
    }

    /// Returns all flips; those that were found say where.
    pub fn flips(self) -> Vec<Flip> {
        self.flips
    }

    /// Returns the index of the first step at which the core under `policy` differs from the kernel,
    /// and the kind of the difference. `base` is the core as it has ended the sequence.
    fn first_difference(&self, policy: Policy, base: &Model) -> Option<(usize, String)> {
        let mut model = Model::new(policy, self.system, &self.view, self.limits).ok()?;
        let mut excuses = Excuses::default();
        for (index, recorded) in self.steps.iter().enumerate() {
            let name = recorded.step.op.name();
            let ours = model.apply(&recorded.step);
            if excuses.of(&recorded.step, recorded.outcome, ours).is_some() {
                return None;
            }
            if ours != recorded.outcome {
                return Some((
                    index,
                    format!("{name}: result {} / {ours}", recorded.outcome),
                ));
            }
            let mut pairings = Pairings::default();
            for (process, kernel) in &recorded.seen {
                let state = model.state(*process);
                let initial = |addr| model.is_initial(addr);
                if let Err(found) = compare(kernel, &state, &mut pairings, initial) {
                    return Some((index, format!("{name}: {}", found.what)));
                }
            }
        }
        differs_in_bytes(&model, base)
            .then(|| (self.steps.len() - 1, "at the end: bytes".to_owned()))
    }
}

/// Returns true if a process has other bytes in one core than in the other.
fn differs_in_bytes(model: &Model, base: &Model) -> bool {
    (0..PROCESSES).any(|process| {
        let mut pages = model.present(process, Look::All).into_iter();
        pages.any(|page| model.page(process, page) != base.page(process, page))
    })
}

impl Watch for Recall {
    fn begin(&mut self, _seed: u64, pair: &Pair<'_>) -> io::Result<()> {
        self.view = pair.view().clone();
        self.steps.clear();
        Ok(())
    }

    fn step(&mut self, step: &Step, pair: &Pair<'_>) -> io::Result<()> {
        self.steps.push(Recorded {
            step: step.clone(),
            outcome: pair.outcome(),
            seen: pair.seen(),
        });
        Ok(())
    }

    fn end(&mut self, compared: u64, pair: &Pair<'_>) {
        if self.steps.is_empty() {
            return;
        }
        let mut flips = std::mem::take(&mut self.flips);
        let (this, base) = (&*self, &pair.model);
        let mut wanted: Vec<&mut Flip> = flips
            .iter_mut()
            .filter(|f| f.found_after.is_none())
            .collect();
        let workers = thread::available_parallelism().map_or(1, |n| n.get());
        let share = wanted.len().div_ceil(workers).max(1);
        thread::scope(|scope| {
            for part in wanted.chunks_mut(share) {
                scope.spawn(move || {
                    for flip in part {
                        if let Some((index, kind)) = this.first_difference(flip.policy, base) {
                            flip.found_after = Some(compared + index as u64 + 1);
                            flip.kind = Some(kind);
                        }
                    }
                });
            }
        });
        self.flips = flips;
    }
}
