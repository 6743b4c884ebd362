//! `vmarea replay`: replays a trace file and compares the results with the recorded kernel's.

use super::replaying::{RecordedStacks, ReplayingArgs};
use anyhow::Context;
use clap::Args;
use std::fs::File;
use std::path::PathBuf;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Failure, Result};

/// Replay a trace file and compare the results with the recorded kernel's.
///
/// A trace that was cut off or damaged is replayed up to that point, and the output says so. The
/// exit status is 3 if anything differs.
#[derive(Debug, Args)]
pub struct Replay {
    /// The trace file
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    #[command(flatten)]
    replaying: ReplayingArgs,
}

impl Replay {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.replaying.outputs()?;
        let cannot = || format!("cannot open {}", self.trace.display());
        let file = File::open(&self.trace).with_context(cannot)?;
        let named = |failure: Failure| failure.context(self.trace.display().to_string());
        let replayed = self
            .replaying
            .replay(console, file, RecordedStacks::default());
        self.replaying
            .print(console, outputs, &replayed.map_err(named)?)
    }
}
