//! What `vmarea` and `vmarea-lab` share of the terminal: messages, results, progress, exit statuses.
//!
//! A program defines its arguments as a [`Program`] and calls [`run`]. Results go to standard
//! output, everything else to standard error. A failure is reported as one line that says what to
//! do. The crate does not know what a mapping is.
#![forbid(unsafe_code)]

pub mod console;
pub mod exit;
pub mod files;
pub mod fit;
pub mod kind;
pub mod outputs;
pub mod progress;
#[cfg(feature = "schema")]
pub mod schema;
pub mod table;

use crate::console::{Console, ConsoleArgs};
use crate::exit::Failure;
use anyhow::anyhow;
use clap::Parser;
use std::io::{self, Write};
use std::process::ExitCode;

/// A program: the definition of its command line, and what it does.
pub trait Program: Parser {
    /// Name of the program, with which its messages begin.
    const NAME: &'static str;

    /// Returns the options that every command has.
    fn console(&self) -> &ConsoleArgs;

    /// Runs the command that the arguments name.
    ///
    /// # Errors
    /// Fails if the command fails; the failure carries its exit status.
    fn run(&self, console: &Console) -> exit::Result;
}

/// Runs the program with the process's arguments.
pub fn run<P: Program>() -> ExitCode {
    let program = match P::try_parse() {
        Ok(program) => program,
        Err(answer) => return say(P::NAME, &answer),
    };
    let console = Console::new(P::NAME, program.console());
    match program.run(&console) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(&console),
    }
}

/// Prints help, the version, or an argument error.
fn say(name: &'static str, answer: &clap::Error) -> ExitCode {
    let said = answer.print().and_then(|()| io::stdout().flush());
    match said {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Failure::from(anyhow!(error).context("cannot write to standard output"))
                .report(&Console::new(name, &ConsoleArgs::default()))
        }
        _ => ExitCode::from(answer.exit_code() as u8),
    }
}
