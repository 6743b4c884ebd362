//! `vmarea-lab conform`: random calls on the running kernel and in the core, compared after each call.

use anyhow::Context;
use clap::Args;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use vmarea::policy::Policy;
use vmarea_conform::changes;
use vmarea_conform::environment::Environment;
use vmarea_conform::error::RunError;
use vmarea_conform::kernel_settings::Surroundings;
use vmarea_conform::op::Step;
use vmarea_conform::recall::{Flip, Recall};
use vmarea_conform::regression::{self, Regression};
use vmarea_conform::report::{Found, Report};
use vmarea_conform::run::{Settings, Shrinking, run};
use vmarea_conform::sequence::play;
use vmarea_conform::states::States;
use vmarea_conform::superset::{Comparison, FewerVmas, on_kernel};
use vmarea_conform::watch::{Unwatched, Watch};
use vmarea_explain::text::count;
use vmarea_process::view::ViewError;
use vmarea_process::{kernel, system};
use vmarea_replay::PolicyName;
use vmarea_terminal::console::Console;
use vmarea_terminal::duration::{OF_RUNS, length};
use vmarea_terminal::exit::{Exit, Failure, Result, Status};
use vmarea_terminal::outputs::JsonArg;
use vmarea_terminal::progress::Meter;

/// Make random memory calls on this kernel and in vmarea, and compare the results of each call.
///
/// Child processes of this command execute sequences of calls, accesses, forks and exits, valid and
/// invalid, in a part of their address space; vmarea's core executes the same sequences. After
/// every step, the kernel and the core must agree on the result or error, the VMAs with their flags
/// and page offsets, the anon_vmas, the counters and the memory contents. A sequence that shows a
/// difference is shortened as far as possible and printed as calls, as a C program and as a test
/// file. Needs root, or CAP_BPF and CAP_PERFMON.
#[derive(Debug, Args)]
pub struct Conform {
    /// Steps to compare
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        overrides_with = "ops"
    )]
    ops: u64,

    /// Seed of the sequences: the same number gives the same calls; without this option a random
    /// seed is used and printed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Rules that vmarea follows: `linux` for those of the running kernel (or of the nearest lower
    /// known version), or `linux-7.3` and the like. With `vmarea`, `thesis`, `relocate` or a
    /// switch (`linux+collector`, see `vmarea replay --help`), vmarea can end up with fewer VMAs than the
    /// kernel; such cases are counted, and any other difference is an error. A policy file (`my.toml`,
    /// see docs/policies.md) without switches is compared exactly, with its own rules
    #[arg(long, value_name = "POLICY", default_value = "linux")]
    profile: PolicyName,

    /// Start no new sequence after this time (30s, 5m, 2h)
    #[arg(long, value_name = "TIME", value_parser = length(OF_RUNS))]
    time: Option<Duration>,

    /// Execute the test in FILE instead of random calls, and print the test with this kernel's
    /// results
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    play: Option<PathBuf>,

    /// End the run after this many differences
    #[arg(long, value_name = "N", default_value_t = 1)]
    differences: usize,

    /// Find what this kernel changed: execute the tests in FOLDER first, look for the rule that
    /// explains a difference alone, take it over, and go on. The result lists the differences by
    /// rule; those that no one rule explains need a new one
    #[arg(long, value_name = "FOLDER", conflicts_with = "play")]
    changes: Option<PathBuf>,

    /// Write each step with its result and the VMAs after it to FILE, for `ci/run branches`
    #[arg(long, value_name = "FILE", conflicts_with = "play")]
    states: Option<PathBuf>,

    /// Find what the run tests: execute each sequence in the core again under every policy that
    /// differs in one setting. The result lists after how many steps each of them is found
    #[arg(long, conflicts_with_all = ["play", "changes", "states"])]
    recall: bool,

    #[command(flatten)]
    json: JsonArg,
}

impl Conform {
    pub(super) fn run(&self, console: &Console) -> Result {
        let (policy, comparison) = self.policy(console);
        let outputs = self.json.open()?;
        let saved = self.changes.as_deref().map(saved).transpose()?;
        if saved.is_some() && comparison != Comparison::Exact {
            let why = anyhow::anyhow!("--changes needs rules without switches");
            return Err(Failure::new(Status::Usage, why));
        }
        let mut environment =
            Environment::new((policy, comparison), Surroundings::make()).map_err(failure)?;
        if let Some(path) = &self.play {
            return Self::play(console, &environment, path);
        }
        let mut states = self.states.as_deref().map(states_file).transpose()?;
        let mut recall = self.recall.then(|| Recall::new(&environment));
        let seed = self.seed.unwrap_or_else(fresh_seed);
        console.note(&format!("seed {seed}"));
        let settings = Settings {
            ops: self.ops,
            seed,
            time: self.time,
            most_differences: self.differences.max(1),
            shrinking: Shrinking::Shortest,
        };
        let mut meter = Meter::of_bytes(console, "comparing", self.ops);
        let told = |report: &Report| {
            meter.at(report.compared, || {
                format!("{} steps", count(report.compared))
            });
        };
        let report = match saved {
            Some(saved) => changes::run(&mut environment, &saved, &settings, told),
            None => {
                let watch: &mut dyn Watch = match (&mut states, &mut recall) {
                    (Some(states), _) => states,
                    (None, Some(recall)) => recall,
                    (None, None) => &mut Unwatched,
                };
                run(&environment, &settings, watch, told)
            }
        };
        let mut report = report.map_err(failure)?;
        drop(meter);
        if let Some(states) = &mut states {
            let finished = states.finish().map_err(RunError::States);
            finished.map_err(failure)?;
        }
        report.recall = recall.map_or_else(Vec::new, Recall::flips);
        outputs.write(console, &report, |out| write(out, &report))?;
        Ok(
            if report.differences.is_empty() && report.probe.differing.is_empty() {
                Exit::Ok
            } else {
                Exit::Differs
            },
        )
    }

    /// Runs one stored test sequence.
    fn play(console: &Console, environment: &Environment, path: &Path) -> Result {
        let kept = read(path)?;
        let steps: Vec<Step> = kept.steps.into_iter().map(|s| s.step).collect();
        let difference = play(environment, &steps)
            .map_err(RunError::from)
            .map_err(failure)?;
        let again = regression::record(environment, &kept.about, &steps);
        let again = again.map_err(RunError::from).map_err(failure)?;
        write!(console.data(), "{}", again.text())?;
        let Some(difference) = difference else {
            return Ok(Exit::Ok);
        };
        console.note(&format!("step {}: {difference}", difference.step));
        Ok(Exit::Differs)
    }

    /// Returns the policy for vmarea's side, and the kind of comparison that it permits.
    fn policy(&self, console: &Console) -> (Policy, Comparison) {
        // The rules of the version are compared, not those that a probe finds.
        let kernel = kernel::rules_by_version();
        let named = self.profile.policy();
        if named.name != "linux" {
            let rules = named.rules.repaired(&system::build());
            return on_kernel(Policy { rules, ..named }, kernel.policy);
        }
        if let Some(remark) = kernel.remark() {
            console.note(&remark);
        }
        (kernel.policy, Comparison::Exact)
    }
}

/// Creates the file for the steps of a run.
fn states_file(path: &Path) -> anyhow::Result<States> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(States::new(Box::new(BufWriter::new(file))))
}

/// Reads a stored test sequence.
fn read(path: &Path) -> anyhow::Result<Regression> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not a test that conform printed", path.display()))
}

/// Reads the stored test sequences in a folder, in the order of their names.
fn saved(folder: &Path) -> anyhow::Result<Vec<Regression>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut paths: Vec<PathBuf> = paths.collect::<std::io::Result<_>>()?;
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn failure(error: RunError) -> Failure {
    let status = match &error {
        RunError::View(ViewError::Permission) => Status::Permission,
        _ => Status::Error,
    };
    Failure::new(status, error)
}

/// Returns a random seed.
fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(1, |d| d.as_micros() as u64)
}

fn write(out: &mut dyn Write, report: &Report) -> std::io::Result<()> {
    for found in &report.differences {
        write_found(out, found)?;
    }
    let calls = report
        .steps
        .iter()
        .map(|(name, t)| format!("{name} {} ({} refused)", count(t.done), count(t.refused)));
    writeln!(out, "{}", calls.collect::<Vec<_>>().join(", "))?;
    let probe = &report.probe;
    let found = match probe.differing.as_slice() {
        [] => "as the version says".to_owned(),
        names => format!("not as the version says: {}", names.join(", ")),
    };
    writeln!(out, "probe of {} rules: {found}", probe.probed)?;
    let work = report.kernel_work.iter().filter(|(_, n)| **n > 0);
    let work: Vec<_> = work
        .map(|(name, n)| format!("{name} {}", count(*n)))
        .collect();
    writeln!(
        out,
        "page work of the kernel during the run: {}",
        work.join(", ")
    )?;
    if let Some(fewer) = &report.fewer_vmas {
        write_fewer(out, fewer)?;
    }
    for found in &report.differences {
        if let [rule, others @ ..] = &found.rules[..] {
            let or: Vec<String> = others.iter().map(|other| format!(" or {other}")).collect();
            let kind = &found.difference.kind;
            writeln!(out, "taken over: {rule}{} for {kind}", or.concat())?;
        }
    }
    for flip in &report.recall {
        write_flip(out, flip)?;
    }
    writeln!(out, "not compared:")?;
    for what in &report.not_compared {
        writeln!(out, "  {what}")?;
    }
    let differences = report.differences.len();
    writeln!(
        out,
        "{} steps, {} of them calls, in {} sequences, {:.0} per second, profile {}, seed {}: {differences} difference{}",
        count(report.compared),
        count(report.calls),
        count(report.sequences),
        report.rate(),
        report.profile,
        report.seed,
        if differences == 1 { "" } else { "s" },
    )
}

/// Writes where another value of a setting was found.
fn write_flip(out: &mut dyn Write, flip: &Flip) -> std::io::Result<()> {
    match (flip.found_after, &flip.kind) {
        (Some(steps), Some(kind)) => {
            writeln!(
                out,
                "found after {} steps: {}, by {kind}",
                count(steps),
                flip.setting
            )
        }
        _ => writeln!(out, "not found: {}", flip.setting),
    }
}

/// Writes the counts for a policy that merges more than Linux.
fn write_fewer(out: &mut dyn Write, fewer: &FewerVmas) -> std::io::Result<()> {
    writeln!(
        out,
        "fewer VMAs than Linux in {} of {} comparisons, more in {}; in all {} VMAs instead of {}, with \
         the same ranges, flags and bytes",
        count(fewer.with_fewer),
        count(fewer.compared),
        count(fewer.with_more),
        count(fewer.our_vmas),
        count(fewer.linux_vmas),
    )?;
    writeln!(
        out,
        "  boundaries that Linux does not have: {}; ranges that stay charged longer: {}",
        count(fewer.own_borders),
        count(fewer.charged_longer)
    )?;
    for (kind, times) in &fewer.border_kinds {
        writeln!(
            out,
            "  boundaries that Linux does not have: {} where {kind}",
            count(*times)
        )?;
    }
    for (how, times) in &fewer.results {
        writeln!(
            out,
            "  sequences that ended early: {} by {how}",
            count(*times)
        )?;
    }
    Ok(())
}

fn write_found(out: &mut dyn Write, found: &Found) -> std::io::Result<()> {
    writeln!(out, "difference: {}", found.difference.kind)?;
    for step in &found.steps {
        writeln!(out, "  {step}")?;
    }
    writeln!(out, "{}\n", found.difference)?;
    writeln!(out, "as a C program:\n\n{}", found.c_program)?;
    if let Some(kept) = &found.kept {
        let text = kept.text();
        writeln!(
            out,
            "as a test, a file in lab/conform/tests/conform:\n\n{text}"
        )?;
    }
    Ok(())
}
