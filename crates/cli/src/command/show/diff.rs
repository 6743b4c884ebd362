//! `vmarea show diff`: what changed between two moments of a process.

use crate::command::explain;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use vmarea_explain::since::{Growth, growth};
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Result};
use vmarea_terminal::outputs::JsonArg;

/// Compare two moments of a process: what grew, how fast, and when the limit is met.
///
/// Each file is JSON that `vmarea explain --json` wrote, or a copy of /proc/PID/maps.
#[derive(Debug, Args)]
pub struct Diff {
    /// The earlier moment
    #[arg(value_name = "BEFORE")]
    before: PathBuf,

    /// The later moment
    #[arg(value_name = "AFTER")]
    after: PathBuf,

    #[command(flatten)]
    json: JsonArg,
}

/// What changed between two moments of a process, as `--json` writes it.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(in crate::command) struct Document<'a> {
    /// Version of the JSON schema.
    schema: u32,
    #[serde(flatten)]
    growth: &'a Growth,
}

impl Diff {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.json.open()?;
        let before = explain::moment(console, &self.before)?;
        let after = explain::moment(console, &self.after)?;
        let growth = growth(&before, &after);
        let document = Document {
            schema: 1,
            growth: &growth,
        };
        outputs.write(console, &document, |out| growth.write_text(out))?;
        Ok(Exit::Ok)
    }
}
