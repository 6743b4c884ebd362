//! The command line of vmarea: parses arguments, runs one command, returns an exit status.
//!
//! `command` has one file per subcommand. The libraries do the work, and `vmarea_terminal` writes
//! the results; this crate says which work the arguments ask for, and has the screen of `top`.
#![forbid(unsafe_code)]

#[cfg(doctest)]
mod book;
mod command;
mod dashboard;
mod failed_calls;
mod interrupt;
mod pid;
mod policy_table;
mod sink;

#[cfg(feature = "schema")]
pub use crate::command::schemas::schemas;

use crate::command::Command;
use clap::{CommandFactory, Parser};
use std::process::ExitCode;
use vmarea::policy::MergePolicy;
use vmarea_terminal::console::{Console, ConsoleArgs};
use vmarea_terminal::{Program, exit};

/// Exit statuses, as `--help` shows them.
const EXIT_STATUSES: &str = "\
Exit status:
  0  success
  1  an error
  2  wrong usage
  3  a difference from the kernel was found, or a threshold that you gave is exceeded
  4  there is nothing to do
  5  a permission is missing; the message names it
  6  a trace of a comparison was left out; a message says which and why
  7  a signal (SIGINT, SIGTERM, SIGHUP) interrupted a repair: the step at hand was
     finished, the process runs, and a message says what is left

`run` and `record` exit with the status of the program (128 + N if signal N ended it),
unless one of 1 to 5 applies. In that case a line on standard error that begins with
`vmarea:` gives the reason.";

/// Linux's virtual memory areas, outside Linux.
///
/// Explains why the mappings of a running process are not merged, and merges those that can be.
/// Records what a program does to its address spaces, replays it through vmarea's own VMA layer
/// under several policies, and compares the result with the kernel's.
#[derive(Debug, Parser)]
#[command(name = "vmarea", version, after_help = EXIT_STATUSES, propagate_version = true)]
struct Arguments {
    #[command(flatten)]
    console: ConsoleArgs,

    #[command(subcommand)]
    command: Command,
}

impl Program for Arguments {
    const NAME: &'static str = "vmarea";

    fn console(&self) -> &ConsoleArgs {
        &self.console
    }

    fn run(&self, console: &Console) -> exit::Result {
        self.command.run(console)
    }
}

/// Runs the command that the process's arguments name.
pub fn run() -> ExitCode {
    vmarea_terminal::run::<Arguments>()
}

/// Runs the command that the process's arguments name; policies can also be rules of one's own.
///
/// A rule's name stands for it wherever a policy is named, also with switches, and as the base of a
/// policy file.
pub fn run_with(own: &[&'static dyn MergePolicy]) -> ExitCode {
    vmarea_replay::register(own);
    run()
}

/// Returns the definition of the command line, from which man pages and completions are made.
pub fn definition() -> clap::Command {
    Arguments::command()
}

#[cfg(test)]
mod tests {
    #[test]
    fn arguments_are_consistent() {
        super::definition().debug_assert();
    }

    #[test]
    fn every_command_says_in_its_help_what_the_list_of_commands_says_and_more() {
        fn check(command: &clap::Command) {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name} has no help");
            let many_words = command.get_arguments().count() > 6;
            if many_words && command.get_subcommands().next().is_none() {
                let long = command.get_long_about();
                assert!(long.is_some(), "{name} hides its explanation");
            }
            command.get_subcommands().for_each(check);
        }
        super::definition().get_subcommands().for_each(check);
    }
}
