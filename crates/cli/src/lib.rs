//! The command line of vmarea: parses arguments, runs one command, returns an exit status.
//!
//! Results go to standard output, everything else to standard error. A failure is reported as one
//! line that says what to do. `command` has one file per subcommand. The libraries do the work;
//! this crate handles the terminal: colour, progress, tables, and output files that are either
//! complete or absent.
#![forbid(unsafe_code)]

#[cfg(doctest)]
mod book;
mod command;
mod console;
mod dashboard;
mod duration;
mod exit;
mod files;
mod fit;
mod interrupt;
mod outputs;
mod policy_table;
mod progress;
mod sink;
mod table;

#[cfg(feature = "schema")]
pub use crate::command::schemas::schemas;

use crate::command::Command;
use crate::console::{Console, ConsoleArgs};
use crate::exit::Failure;
use anyhow::anyhow;
use clap::{CommandFactory, Parser};
use std::io::{self, Write};
use std::process::ExitCode;
use vmarea::policy::MergePolicy;

/// Linux's virtual memory areas, outside Linux.
///
/// Explains why the mappings of a running process are not merged, and merges those that can be.
/// Records what a program does to its address spaces, replays it through vmarea's own VMA layer
/// under several policies, and compares the result with the kernel's.
#[derive(Debug, Parser)]
#[command(name = "vmarea", version, about, after_help = exit::HELP, propagate_version = true)]
struct Arguments {
    #[command(flatten)]
    console: ConsoleArgs,

    #[command(subcommand)]
    command: Command,
}

/// Runs the command that the process's arguments name.
pub fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(answer) => return say(&answer),
    };
    let console = Console::new(&arguments.console);
    match arguments.command.run(&console) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(&console),
    }
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

/// Prints help, the version, or an argument error.
fn say(answer: &clap::Error) -> ExitCode {
    let said = answer.print().and_then(|()| io::stdout().flush());
    match said {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Failure::from(anyhow!(error).context("cannot write to standard output"))
                .report(&Console::new(&ConsoleArgs::default()))
        }
        _ => ExitCode::from(answer.exit_code() as u8),
    }
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
