//! Where a result goes: text to standard output, other forms of it to files or in the text's place.
//!
//! A place is opened before the work begins, so that one that cannot be written is known at once.
//! How a file comes to be whole or not at all is `files`.

use crate::console::Console;
use crate::exit::{Failure, Result, Status};
use crate::files::Draft;
use anyhow::{Context, anyhow};
use clap::Args;
use serde::Serialize;
use std::convert::Infallible;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::str::FromStr;

/// What an option such as `--json` names: a file, or standard output for `-`.
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

/// `--json`, which every command takes in this one form: with its file always, so that no other argument
/// can be mistaken for it.
#[derive(Debug, Args)]
pub struct JsonArg {
    /// Write the result as JSON to FILE, or with `-` to standard output in place of the text
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<Target>,
}

impl JsonArg {
    /// Opens what it names.
    ///
    /// # Errors
    /// Where nothing can be created there.
    pub fn open(&self) -> Result<Outputs> {
        Outputs::open(self.json.as_ref())
    }
}

/// A place that can be written to.
#[derive(Debug)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// A file.
    Draft(Draft),
}

impl Output {
    /// Opens a target.
    ///
    /// # Errors
    /// Where nothing can be created there.
    pub fn open(target: &Target) -> Result<Output> {
        Ok(match target {
            Target::Stdout => Output::Stdout,
            Target::Path(path) => Output::Draft(Draft::create(path)?),
        })
    }

    /// Writes a text, whole or not at all.
    ///
    /// # Errors
    /// Where the target takes no more.
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

    /// Writes a value as one line of JSON, whole or not at all.
    ///
    /// # Errors
    /// Where the target takes no more.
    pub fn write_json(self, console: &Console, value: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        self.write(console, &text)
    }
}

/// Where a result goes that can be had as JSON and as text.
#[derive(Debug)]
pub struct Outputs {
    json: Option<Output>,
    text_is_wanted: bool,
}

impl Outputs {
    /// Opens what `--json` names; where that is standard output, it takes the place of the text.
    ///
    /// # Errors
    /// Where nothing can be created there.
    pub fn open(json: Option<&Target>) -> Result<Outputs> {
        Outputs::open_beside(json, &[])
    }

    /// The same where there are still other forms, any of which may take the place of the text.
    ///
    /// # Errors
    /// Two forms that go to standard output; where nothing can be created.
    pub fn open_beside(json: Option<&Target>, others: &[Option<&Target>]) -> Result<Outputs> {
        let on_stdout = |target: &&Option<&Target>| **target == Some(&Target::Stdout);
        let in_place_of_text = [json].iter().chain(others).filter(on_stdout).count();
        if in_place_of_text > 1 {
            let what =
                anyhow!("only one form can go to standard output: name a file for the others");
            return Err(Failure::new(Status::Usage, what));
        }
        Ok(Outputs {
            json: json.map(Output::open).transpose()?,
            text_is_wanted: in_place_of_text == 0,
        })
    }

    /// Writes both forms, as far as they are wanted.
    ///
    /// # Errors
    /// Where a target takes no more.
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
            to_stdout(console, text)?;
        }
        Ok(())
    }
}

/// Writes data to standard output.
///
/// # Errors
/// Where it takes no more.
pub fn to_stdout(
    console: &Console,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let mut out = BufWriter::new(console.data());
    write(&mut out)?;
    out.flush()?;
    Ok(())
}
