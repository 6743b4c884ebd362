//! `vmarea-lab experiment`: the tables and figures of published papers next to ours.

mod html;
mod text;

use super::recording;
use anyhow::{Context as _, anyhow};
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;
use vmarea_experiments::experiment::{self, Context, EXPERIMENTS, Host, Recorded};
use vmarea_replay::PolicyName;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Failure, Result, Status};
use vmarea_terminal::kind::Kind;
use vmarea_terminal::outputs::{JsonArg, Output, Outputs, PageArg};

/// Reproduce the tables and plots of published papers, with the published numbers next to ours.
///
/// Each experiment prints its tables in the paper's layout, what replaced the hardware or software
/// that is missing here, and for each of the paper's claims which result would contradict it, and
/// whether it holds, does not hold, or is left undecided: by our confidence interval, or because
/// other programs ran while a time was measured. Sources come from Debian's source packages and are
/// unpacked and built in a cache directory. The exit status is 6 if a part could not run; the last
/// lines say which, why, and what to install.
#[derive(Debug, Args)]
#[command(after_help = listed())]
pub struct Experiment {
    /// The experiment, or `all`
    #[arg(value_parser = PossibleValuesParser::new(names()), required_unless_present = "work")]
    name: Option<String>,

    /// Limit each experiment to 90 seconds, with less work and fewer rounds
    #[arg(long)]
    quick: bool,

    /// Record each workload of the thesis N times (default: 3; 1 with --quick)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: Option<u16>,

    /// Replay the recorded workloads of the thesis under this policy too; may be given several
    /// times. A policy is a name or a file, as for `vmarea replay`
    #[arg(long = "policy", value_name = "POLICY")]
    policies: Vec<PolicyName>,

    /// Directory for sources and builds (default: vmarea in $XDG_CACHE_HOME or ~/.cache)
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,

    #[command(flatten)]
    json: JsonArg,

    #[command(flatten)]
    page: PageArg,

    /// Execute one piece of work and exit, so that an instruction-counting tool can wrap this
    /// process
    #[arg(long, hide = true, num_args = 1.., conflicts_with = "name")]
    work: Vec<OsString>,
}

/// Returns the list of experiments with the packages that they need.
fn listed() -> String {
    let mut text = "Experiments:\n".to_owned();
    for experiment in EXPERIMENTS {
        text += &format!("  {:<14} {}\n", experiment.name, experiment.what);
        let packages: Vec<&str> = experiment
            .needs
            .iter()
            .map(|(_, package)| *package)
            .collect();
        if !packages.is_empty() {
            text += &format!("{:17}(Debian: {})\n", "", packages.join(", "));
        }
    }
    text
}

fn names() -> Vec<&'static str> {
    let all = EXPERIMENTS.iter().map(|experiment| experiment.name);
    all.chain(["all"]).collect()
}

impl Experiment {
    pub(super) fn run(&self, console: &Console) -> Result {
        let Some(name) = &self.name else {
            experiment::work(&self.work).map_err(|why| anyhow!(why))?;
            return Ok(Exit::Ok);
        };
        let html = self.page.html.as_ref();
        let outputs = Outputs::open_beside(self.json.json.as_ref(), &[html])?;
        let html = Output::open_if_given(html, Kind::HTML)?;
        let context = Context {
            quick: self.quick,
            runs: self
                .runs
                .map_or(if self.quick { 1 } else { 3 }, usize::from),
            policies: self.policies.clone(),
            cache: self.cache()?,
            program: env::current_exe().context("cannot find the program's own file")?,
            host: &Recording { console },
        };
        let document = experiment::run(&context, |one| name == "all" || name == one);
        outputs.write(console, &document, |out| text::write(out, &document))?;
        if let Some(html) = html {
            html.write(console, html::page(&document).as_bytes())?;
        }
        for report in &document.experiments {
            for part in &report.missing {
                console.note(&format!("left out of {}: {part}", report.name));
            }
        }
        if document.is_complete() {
            Ok(Exit::Ok)
        } else {
            Ok(Exit::Incomplete)
        }
    }

    fn cache(&self) -> Result<PathBuf> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        let folder = self.cache.clone().or_else(|| {
            let base = set("XDG_CACHE_HOME").map(PathBuf::from);
            let base = base.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")));
            base.map(|base| base.join("vmarea"))
        });
        folder.ok_or_else(|| {
            let why = anyhow!("there is no directory for sources: name one with --cache DIR");
            Failure::new(Status::Usage, why)
        })
    }
}

/// Host of the experiments: records scripts, and prints notes to standard error.
struct Recording<'a> {
    console: &'a Console,
}

impl Host for Recording<'_> {
    fn note(&self, text: &str) {
        self.console.note(text);
    }

    fn record(&self, script: &str) -> std::result::Result<Recorded, String> {
        let command = ["sh", "-c", script].map(OsString::from);
        let begun = Instant::now();
        let trace = recording::to_file(self.console, &command);
        let trace = trace.map_err(|failure| failure.to_string())?;
        Ok(Recorded {
            trace,
            seconds: begun.elapsed().as_secs_f64(),
        })
    }
}
