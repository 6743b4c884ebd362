//! `vmarea record`: records a program into a trace file.

use super::recording::RecordingArgs;
use crate::console::Console;
use crate::exit::{self, Result};
use crate::files::Draft;
use crate::sink::TraceSink;
use clap::Args;
use std::path::PathBuf;

/// Record a program into a trace file.
///
/// The exit status is the program's own. The file grows while the program runs, and remains
/// readable if the disk becomes full or vmarea is killed.
#[derive(Debug, Args)]
pub struct Record {
    /// The trace file
    #[arg(short, long, value_name = "FILE", default_value = "vmarea.vmtrace")]
    output: PathBuf,

    #[command(flatten)]
    recording: RecordingArgs,
}

impl Record {
    pub(super) fn run(&self, console: &Console) -> Result {
        let mut draft = Draft::create(&self.output)?;
        let recorded = self.record(console, &mut draft);
        let (status, bytes) = draft.keep(console, recorded)?;
        console.note(&format!(
            "wrote {} to {path}; next: vmarea replay {path}",
            console.size(bytes),
            path = self.output.display()
        ));
        Ok(exit::of_program(status))
    }

    fn record(&self, console: &Console, draft: &mut Draft) -> Result<(i32, u64)> {
        let mut sink = TraceSink::named(draft);
        let outcome = self.recording.record(console, &mut sink)?;
        for note in &outcome.notes {
            console.note(note);
        }
        let bytes = sink.finish()?;
        Ok((outcome.status, bytes))
    }
}
