//! Destinations of results: standard output or files.
//!
//! A command opens its destinations before it begins its work, so a destination that cannot be
//! written fails at once. The module `files` ensures that a file is complete or absent.

use crate::console::Console;
use crate::exit::{Failure, Result, Status};
use crate::files::Draft;
use crate::fit::{self, Fitted};
use crate::kind::Kind;
use anyhow::{Context, anyhow};
use clap::Args;
use serde::Serialize;
use std::convert::Infallible;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::str::FromStr;

/// The destination that an option such as `--json` names: a file, or standard output for `-`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A file.
    Path(PathBuf),
}

impl FromStr for Target {
    type Err = Infallible;

    fn from_str(argument: &str) -> std::result::Result<Self, Infallible> {
        Ok(match argument {
            "-" => Self::Stdout,
            path => Self::Path(path.into()),
        })
    }
}

/// The `--json` option, which has the same form in every command.
///
/// FILE follows after `=`, so that no other argument is taken for it.
#[derive(Debug, Args)]
pub struct JsonArg {
    /// Write the result as JSON to FILE, or without FILE (or with `-`) to standard output in place
    /// of the text
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = "-")]
    pub json: Option<Target>,
}

impl JsonArg {
    /// Opens the destination.
    ///
    /// # Errors
    /// Fails if the file cannot be created.
    pub fn open(&self) -> Result<Outputs> {
        Outputs::open(self.json.as_ref())
    }
}

/// The `--html` option, which has the same form in every command.
#[derive(Debug, Args)]
pub struct PageArg {
    /// Write the result as a page with pictures to FILE, or with `-` to standard output in place of
    /// the text: one file that needs no network
    #[arg(long, value_name = "FILE|-")]
    pub html: Option<Target>,
}

/// An open destination.
#[derive(Debug)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// A file.
    Draft(Draft),
}

impl Output {
    /// Opens a destination.
    ///
    /// # Errors
    /// Fails if there is a file of another kind, or if the file cannot be created.
    pub fn open(target: &Target, kind: Kind) -> Result<Output> {
        Ok(match target {
            Target::Stdout => Output::Stdout,
            Target::Path(path) => Output::Draft(Draft::create(path, kind)?),
        })
    }

    /// Opens the destination of an option that may be absent.
    ///
    /// # Errors
    /// The errors of [`Output::open`].
    pub fn open_if_given(target: Option<&Target>, kind: Kind) -> Result<Option<Output>> {
        target.map(|target| Output::open(target, kind)).transpose()
    }

    /// Writes a complete text.
    ///
    /// # Errors
    /// Fails if the destination cannot be written.
    pub fn write(self, console: &Console, text: &[u8]) -> Result<()> {
        match self {
            Output::Stdout => to_stdout(console, |out| out.write_all(text)),
            Output::Draft(mut draft) => {
                let written = draft.file().write_all(text);
                written.with_context(|| format!("cannot write {}", draft.path().display()))?;
                draft.publish()
            }
        }
    }

    /// Writes a value as one line of JSON.
    ///
    /// # Errors
    /// Fails if the destination cannot be written.
    pub fn write_json(self, console: &Console, value: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        self.write(console, &text)
    }
}

/// Destinations of a result that can be written both as JSON and as text.
#[derive(Debug)]
pub struct Outputs {
    json: Option<Output>,
    text_is_wanted: bool,
}

impl Outputs {
    /// Opens the destination of `--json`; JSON on standard output replaces the text.
    ///
    /// # Errors
    /// Fails if the file cannot be created.
    pub fn open(json: Option<&Target>) -> Result<Outputs> {
        Outputs::open_beside(json, &[])
    }

    /// Opens destinations like [`Outputs::open`]; an output in `others` can also replace the text.
    ///
    /// # Errors
    /// Fails if two outputs go to standard output, or if a file cannot be created.
    pub fn open_beside(json: Option<&Target>, others: &[Option<&Target>]) -> Result<Outputs> {
        let on_stdout = |target: &&Option<&Target>| **target == Some(&Target::Stdout);
        let in_place_of_text = [json].iter().chain(others).filter(on_stdout).count();
        if in_place_of_text > 1 {
            return Err(only_one_on_stdout());
        }
        Ok(Outputs {
            json: Output::open_if_given(json, Kind::JSON)?,
            text_is_wanted: in_place_of_text == 0,
        })
    }

    /// Writes the result in the requested formats.
    ///
    /// # Errors
    /// Fails if a destination cannot be written.
    pub fn write(
        self,
        console: &Console,
        value: &impl Serialize,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        if let Some(json) = self.json {
            json.write_json(console, value)?;
        }
        if self.text_is_wanted {
            text_to_stdout(console, text)?;
        }
        Ok(())
    }
}

/// Returns the failure of a command with two results for standard output.
pub fn only_one_on_stdout() -> Failure {
    let what = anyhow!("only one result can go to standard output: name a file for the others");
    Failure::new(Status::Usage, what)
}

/// Writes text to standard output, in lines that fit the terminal.
///
/// # Errors
/// Fails if standard output cannot be written.
pub fn text_to_stdout(
    console: &Console,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    to_stdout(console, |out| {
        let mut out = Fitted::new(out, fit::width(&io::stdout()));
        write(&mut out)?;
        out.finish()
    })
}

/// Writes data to standard output.
///
/// # Errors
/// Fails if standard output cannot be written.
pub fn to_stdout(
    console: &Console,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let mut out = BufWriter::new(console.data());
    write(&mut out)?;
    out.flush()?;
    Ok(())
}
