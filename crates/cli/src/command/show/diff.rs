//! `vmarea show diff`: what changed between two moments of a process.

use crate::command::explain;
use crate::console::Console;
use crate::exit::{Exit, Result};
use crate::outputs::JsonArg;
use clap::Args;
use std::path::PathBuf;
use vmarea_explain::since::growth;

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

impl Diff {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.json.open()?;
        let before = explain::moment(console, &self.before)?;
        let after = explain::moment(console, &self.after)?;
        let growth = growth(&before, &after);
        outputs.write(console, &growth, |out| growth.write_text(out))?;
        Ok(Exit::Ok)
    }
}
