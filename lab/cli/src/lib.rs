//! The command line of the laboratory: proves and measures what vmarea's libraries do.
//!
//! `vmarea-lab` is a program of its own, so that what proves is not part of what is installed. It
//! has one file or folder per command; the libraries beside this one do the work, and
//! `vmarea_terminal` writes the results.
#![forbid(unsafe_code)]

mod bench;
mod conform;
mod experiment;
mod graph;
mod recording;
#[cfg(feature = "schema")]
mod schemas;

#[cfg(feature = "schema")]
pub use crate::schemas::schemas;

use anyhow::anyhow;
use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use vmarea_process::processes;
use vmarea_terminal::console::{Console, ConsoleArgs};
use vmarea_terminal::{Program, exit};

/// Exit statuses, as `--help` shows them; they have the same meaning as those of `vmarea`.
const EXIT_STATUSES: &str = "\
Exit status:
  0  success
  1  an error
  2  wrong usage
  3  a difference from the kernel was found
  4  there is nothing to do
  5  a permission is missing; the message names it
  6  a part of an experiment was left out; a message says which and why";

/// The laboratory of vmarea: compares its core with the running kernel, and measures both.
#[derive(Debug, Parser)]
#[command(name = "vmarea-lab", version, after_help = EXIT_STATUSES, propagate_version = true)]
struct Arguments {
    #[command(flatten)]
    console: ConsoleArgs,

    #[command(subcommand)]
    command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
enum Command {
    Conform(conform::Conform),
    Graph(graph::Graph),
    /// Measure the core, and the running kernel for comparison
    #[command(subcommand)]
    Bench(bench::Bench),
    Experiment(experiment::Experiment),
}

impl Program for Arguments {
    const NAME: &'static str = "vmarea-lab";

    fn console(&self) -> &ConsoleArgs {
        &self.console
    }

    fn run(&self, console: &Console) -> exit::Result {
        if !matches!(self.command, Command::Bench(_)) && !processes::are_shown() {
            let how = "mount it: mount -t proc proc /proc";
            return Err(anyhow!("/proc shows no processes: {how}").into());
        }
        match &self.command {
            Command::Conform(conform) => conform.run(console),
            Command::Graph(graph) => graph.run(console),
            Command::Bench(bench) => bench.run(console),
            Command::Experiment(experiment) => experiment.run(console),
        }
    }
}

/// Runs the command that the process's arguments name.
pub fn run() -> ExitCode {
    vmarea_terminal::run::<Arguments>()
}

/// Returns the definition of the command line.
pub fn definition() -> clap::Command {
    Arguments::command()
}

#[cfg(test)]
mod tests {
    #[test]
    fn arguments_are_consistent() {
        super::definition().debug_assert();
    }
}
