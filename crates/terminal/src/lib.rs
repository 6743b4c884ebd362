//! What `vmarea` and `vmarea-lab` share of the terminal: messages, results, progress, exit statuses.
//!
//! A program defines its arguments as a [`Program`] and calls [`run`]. Results go to standard
//! output, everything else to standard error. A failure is reported as one line that says what to
//! do. The crate does not know what a mapping is.
#![forbid(unsafe_code)]

pub mod console;
pub mod duration;
pub mod exit;
pub mod files;
pub mod fit;
pub mod kind;
pub mod outputs;
pub mod progress;
#[cfg(feature = "schema")]
pub mod schema;
pub mod table;
mod usage;
mod words;

use crate::console::{Console, ConsoleArgs};
use crate::exit::{Failure, Status};
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
        Err(answer) if answer.use_stderr() => return refuse::<P>(answer),
        Err(answer) => return say(P::NAME, &answer),
    };
    let console = Console::new(P::NAME, program.console());
    if let Some(hint) = usage::json_elsewhere(&arguments()) {
        return Failure::new(Status::Usage, anyhow!(hint)).report(&console);
    }
    match program.run(&console) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(&console),
    }
}

fn arguments() -> Vec<String> {
    let words = std::env::args_os().skip(1);
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// Prints an error about arguments.
fn refuse<P: Program>(error: clap::Error) -> ExitCode {
    let status = ExitCode::from(error.exit_code() as u8);
    let text = usage::text(error, &P::command(), &arguments());
    // If standard error is closed, no one can read it.
    let _ = write!(anstream::stderr(), "{text}");
    status
}

/// Prints help or the version.
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
