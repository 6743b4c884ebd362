//! Explains a recording at the moment when the program had the most mappings.
//!
//! The recording is made by the command, or is a trace that exists: then nothing is known of the calls' stacks. A process
//! that runs on after its recording shows what no recording has, such as where its stack pointers are.

use super::{Explain, Explained};
use crate::command::recording::{self, Attached, Started};
use crate::sink::{StackSink, TraceSink};
use anyhow::{Context, anyhow};
use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::Path;
use vmarea_explain::explain_recorded;
use vmarea_explain::profile::Profile;
use vmarea_explain::recorded::{CallStacks, Recorded, RecordedError, at_peak};
use vmarea_explain::stacks::{self, StackTable};
use vmarea_explain::text::{count, plural};
use vmarea_process::evidence::Evidence;
use vmarea_process::processes;
use vmarea_recorder::Stacks;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Failure, Result, Status};
use vmarea_terminal::kind::Kind;
use vmarea_terminal::outputs::Output;

impl Explain {
    /// Explains a trace.
    ///
    /// # Errors
    /// Fails if the trace cannot be replayed, or if a part of it is asked for.
    pub(super) fn of_trace(&self, console: &Console, path: &Path) -> Result<Explained> {
        let name = path.display().to_string();
        if self.range.is_some() {
            let whole = anyhow!("{name} is a trace, which is explained whole: leave out --range");
            return Err(Failure::new(Status::Usage, whole));
        }
        let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
        let calls = CallStacks::default();
        let mut recorded = peak(console, &file, calls).map_err(|failure| failure.context(name))?;
        recorded.process.limit = self.limit.or(recorded.process.limit);
        Ok(self.explained(recorded, stacks::Stacks::default()))
    }

    /// Records the program to its end, or the process for a while, and explains the recording.
    pub(super) fn of_recording(&self, console: &Console) -> Result<Explained> {
        let mut file = tempfile::tempfile().context("cannot create a temporary file")?;
        let folded = Output::open_if_given(self.folded.as_ref(), Kind::FOLDED)?;
        let pprof = Output::open_if_given(self.pprof.as_ref(), Kind::PPROF)?;
        let begun = self.pid.and_then(start_time);
        let (calls, stacks) = self.record_into(console, &mut file)?;
        let evidence = evidence(
            self.pid
                .filter(|pid| begun.is_some() && start_time(*pid) == begun),
        );
        let mut recorded = peak(console, &file, calls)?;
        recorded.evidence = evidence;
        let profile = Profile {
            recorded: &recorded,
            stacks: &stacks,
        };
        let mut text = Vec::new();
        if let Some(output) = folded {
            profile.write_folded(&mut text)?;
            output.write(console, &text)?;
        }
        if let Some(output) = pprof {
            text.clear();
            profile.write_pprof(&mut text)?;
            output.write(console, &text)?;
        }
        Ok(self.explained(recorded, stacks))
    }

    fn explained(&self, recorded: Recorded, stacks: stacks::Stacks) -> Explained {
        Explained {
            report: explain_recorded(&recorded, &stacks, self.list()),
            process: recorded.process,
            origins: recorded.origins,
            stacks,
        }
    }

    /// True if the stacks of the calls are shown or written.
    pub(super) fn needs_stacks(&self) -> bool {
        self.stacks || self.folded.is_some() || self.pprof.is_some()
    }

    /// Records into `file`, and returns the call stacks.
    fn record_into(
        &self,
        console: &Console,
        file: &mut File,
    ) -> Result<(CallStacks, stacks::Stacks)> {
        let mut sink = StackSink {
            trace: TraceSink::nameless(file),
            stacks: StackTable::default(),
        };
        let stacks = if self.needs_stacks() || self.page.html.is_some() {
            Stacks::Copy
        } else {
            Stacks::Skip
        };
        let outcome = match self.pid {
            Some(pid) => {
                let attached = Attached {
                    pid,
                    duration: self.record,
                    checkpoint: None,
                    stacks,
                    by: self.by,
                };
                recording::attach(console, attached, &mut sink)?
            }
            None => {
                let started = Started {
                    command: &self.command,
                    checkpoint: None,
                    stacks,
                    by: self.by,
                };
                recording::record(console, started, &mut sink)?
            }
        };
        for note in &outcome.notes {
            console.note(note);
        }
        sink.trace.finish()?;
        let (calls, stacks) = sink.stacks.into_parts();
        for note in &stacks.table.notes {
            console.note(note);
        }
        Ok((calls, stacks))
    }
}

/// Returns what identifies a process together with its number.
fn start_time(pid: i32) -> Option<u64> {
    Some(processes::stat(pid).ok()?.started)
}

/// Prepares to read the facts of a process that still runs, and reads those that change soonest.
fn evidence(pid: Option<i32>) -> Evidence {
    let evidence = Evidence::of(pid);
    evidence.stack_pointers();
    evidence
}

/// Replays a trace up to the moment with the most mappings, and says what limits the result.
fn peak(console: &Console, file: &File, calls: CallStacks) -> Result<Recorded> {
    let open = || {
        let mut again = file;
        again.rewind()?;
        Ok(BufReader::new(again))
    };
    let recorded = at_peak(open, calls).map_err(of_recorded)?;
    for note in &recorded.process.notes {
        console.note(note);
    }
    if recorded.differences > 0 {
        console.note(&format!(
            "the replay differs from the kernel in {} places (`vmarea run` shows where): the \
             reasons given there may be wrong",
            count(recorded.differences)
        ));
    }
    if recorded.spaces.count() > 1 {
        console.note(&format!(
            "{} recorded; this is the one that had the most mappings",
            plural(recorded.spaces.count(), "address space")
        ));
    }
    if recorded.spaces.restarts() > 0 {
        console.note("the recording restarted: earlier mappings count as older than the recording");
    }
    Ok(recorded)
}

/// Returns the failure, with its exit status, for a recording that cannot be explained.
pub(crate) fn of_recorded(error: RecordedError) -> Failure {
    let status = match &error {
        RecordedError::Empty => Status::NothingToDo,
        _ => Status::Error,
    };
    Failure::new(status, error)
}
