//! `vmarea run`: records a program, replays it, and compares the result with the kernel's.
//!
//! The program runs first; the replay begins after it has exited and does not disturb it. The
//! replay reads the recorded trace from an unnamed file, or from a named file if the user has asked
//! to keep the trace.

use super::keep_merged;
use super::recording::RecordingArgs;
use super::replaying::{RecordedStacks, ReplayingArgs};
use crate::sink::{StackSink, TRACE, TraceSink};
use anyhow::Context;
use clap::Args;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;
use vmarea_explain::stacks::StackTable;
use vmarea_terminal::console::Console;
use vmarea_terminal::duration::{OF_PAUSES, length};
use vmarea_terminal::exit::{self, Exit, Result};
use vmarea_terminal::files::Draft;

/// Record a program, replay it, and compare every step with the kernel's result.
///
/// The program runs as usual; its output, signals and exit status are its own. After it has
/// exited, everything that it and its children did to their address spaces is replayed under
/// several policies. Under `linux` each result and each list of mappings is compared with the
/// kernel's, and the first difference is shown with its reason.
///
/// The exit status is 3 if anything differs, otherwise the program's own.
#[derive(Debug, Args)]
pub struct Run {
    /// Keep the trace in FILE, which grows while the program runs
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Do not record; merge the program and its descendants, as `merge` does, whenever one has more
    /// than N mappings (default: half of vm.max_map_count)
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
          conflicts_with_all = ["trace", "json", "html", "checkpoint", "by", "policies",
                                "leave_one_out", "differences"])]
    keep_merged: Option<Option<u64>>,

    /// With --keep-merged: longest time for which one step may stop a process (500us, 5ms, 1s)
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = length(OF_PAUSES),
          requires = "keep_merged")]
    max_pause: Duration,

    #[command(flatten)]
    replaying: ReplayingArgs,

    #[command(flatten)]
    recording: RecordingArgs,
}

/// What is known of a recorded program besides its trace.
struct Recorded {
    /// Its wait status.
    status: i32,
    stacks: RecordedStacks,
}

impl Run {
    pub(super) fn run(&self, console: &Console) -> Result {
        if let Some(threshold) = self.keep_merged {
            return keep_merged::run(self.recording.command(), threshold, self.max_pause);
        }
        let outputs = self.replaying.outputs()?;
        let (trace, Recorded { status, stacks }) = self.trace(console)?;
        let replayed = self.replaying.replay(console, trace, stacks)?;
        match self.replaying.print(console, outputs, &replayed)? {
            Exit::Ok => Ok(exit::of_program(status)),
            worse => Ok(worse),
        }
    }

    /// Records the program; returns the trace, rewound to the start, and the rest.
    fn trace(&self, console: &Console) -> Result<(File, Recorded)> {
        match &self.trace {
            Some(path) => {
                let mut draft = Draft::create(path, TRACE)?;
                let recorded = self.record(console, TraceSink::named(&mut draft));
                let recorded = draft.keep(console, recorded)?;
                let file =
                    File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
                Ok((file, recorded))
            }
            None => {
                let mut file = tempfile::tempfile().context("cannot create a temporary file")?;
                let recorded = self.record(console, TraceSink::nameless(&mut file))?;
                file.seek(SeekFrom::Start(0))?;
                Ok((file, recorded))
            }
        }
    }

    /// Records the program, with the stacks of its calls if a page shows them.
    fn record(&self, console: &Console, mut sink: TraceSink<'_>) -> Result<Recorded> {
        if !self.replaying.wants_page() {
            let outcome = self.recording.record(console, &mut sink)?;
            sink.finish()?;
            return Ok(Recorded {
                status: outcome.status,
                stacks: RecordedStacks::default(),
            });
        }
        let mut sink = StackSink {
            trace: sink,
            stacks: StackTable::default(),
        };
        let outcome = self.recording.record_stacks(console, &mut sink)?;
        sink.trace.finish()?;
        let (calls, stacks) = sink.stacks.into_parts();
        for note in &stacks.table.notes {
            console.note(note);
        }
        Ok(Recorded {
            status: outcome.status,
            stacks: RecordedStacks { calls, stacks },
        })
    }
}
