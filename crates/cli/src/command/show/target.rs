//! Selects the address space to show: in a running process, a recording, or a command to record.

use crate::command::explain;
use crate::command::recording::RecordingArgs;
use crate::command::trace;
use crate::pid::pid;
use crate::sink::TraceSink;
use anyhow::{Context, anyhow};
use clap::{ArgGroup, Args};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use vmarea_process::{AskKernel, Smaps};
use vmarea_report::shown::{Choice, Finder, Moment, Shown};
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Failure, Result, Status};
use vmarea_trace::event::{Event, Header, MmId};
use vmarea_trace::{Error as TraceError, Reader};

/// Arguments that select a process.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("target").required(true).args(["pid", "trace", "command"]))]
pub struct TargetArgs {
    /// A running process
    #[arg(short, long, value_name = "PID", value_parser = pid)]
    pid: Option<i32>,

    /// A process of a trace file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Moment to show in a recording: `exec`, `end`, or N for the last list of mappings up to event
    /// N
    #[arg(
        long,
        value_name = "exec|end|N",
        default_value = "end",
        value_parser = parse_moment,
        conflicts_with = "pid"
    )]
    at: Moment,

    /// Address space to show in a recording, by its number in `vmarea trace dump` [default: that of
    /// the command itself]
    #[arg(long, value_name = "N", conflicts_with = "pid", value_parser = parse_mm)]
    mm: Option<u32>,

    /// Do not read the kernel's own data with BPF
    #[arg(long, requires = "pid")]
    no_bpf: bool,

    /// A command to run and record
    #[arg(last = true, value_name = "-- COMMAND")]
    command: Vec<OsString>,
}

/// Parses a moment: one of two given words, or the number of an event.
pub(super) fn moment<M: Copy>(
    text: &str,
    words: [(&str, M); 2],
    event: fn(u64) -> M,
) -> std::result::Result<M, String> {
    match words.iter().find(|(word, _)| *word == text) {
        Some((_, moment)) => Ok(*moment),
        None => text.parse().map(event).map_err(|_| {
            let [(one, _), (other, _)] = words;
            format!("`{one}`, `{other}` or the number of an event is needed")
        }),
    }
}

fn parse_moment(text: &str) -> std::result::Result<Moment, String> {
    let words = [("exec", Moment::Exec), ("end", Moment::End)];
    moment(text, words, Moment::Event)
}

/// Parses the number of an address space, with or without the prefix `mm`.
fn parse_mm(text: &str) -> std::result::Result<u32, String> {
    let digits = text.strip_prefix("mm").unwrap_or(text);
    digits
        .parse()
        .map_err(|_| format!("`{text}` is not the number of an address space"))
}

impl TargetArgs {
    /// True if the command shows a trace.
    pub(super) fn reads_a_file(&self) -> bool {
        self.trace.is_some()
    }

    /// Returns the process to show.
    ///
    /// # Errors
    /// Fails if the process cannot be read, or if the recording does not contain it.
    pub fn shown(&self, console: &Console, smaps: Smaps) -> Result<Shown> {
        if let Some(pid) = self.pid {
            let kernel = if self.no_bpf {
                AskKernel::Never
            } else {
                AskKernel::Try
            };
            return Shown::live(pid, kernel, smaps).map_err(explain::failure);
        }
        let source = Source::open(console, self.trace.as_deref(), &self.command)?;
        let choice = Choice {
            moment: self.at,
            mm: self.mm.map(MmId),
        };
        let mut finder = Finder::new(&source.header()?, choice);
        source.events(console, |event| {
            finder.event(event);
            Ok(true)
        })?;
        finder.finish().ok_or_else(|| {
            let what = match self.mm {
                Some(mm) => {
                    format!("the recording has no list of mappings of mm{mm} at this moment")
                }
                None => "the recording has no list of mappings at this moment".to_owned(),
            };
            Failure::new(
                Status::NothingToDo,
                anyhow!("{what}: see `vmarea trace dump`"),
            )
        })
    }
}

/// A recording that can be read more than once.
#[derive(Debug)]
pub struct Source {
    file: File,
    name: Option<PathBuf>,
}

impl Source {
    /// Opens a trace, or records a command into an unnamed file.
    ///
    /// # Errors
    /// Fails if the trace cannot be opened, or if the command cannot be recorded.
    pub fn open(console: &Console, trace: Option<&Path>, command: &[OsString]) -> Result<Source> {
        if let Some(path) = trace {
            let cannot = || format!("cannot open {}", path.display());
            return Ok(Source {
                file: File::open(path).with_context(cannot)?,
                name: Some(path.to_owned()),
            });
        }
        let mut file = tempfile::tempfile().context("cannot create a temporary file")?;
        let mut sink = TraceSink::nameless(&mut file);
        let outcome = RecordingArgs::of(command.to_vec()).record(console, &mut sink)?;
        sink.finish()?;
        for note in &outcome.notes {
            console.note(note);
        }
        Ok(Source { file, name: None })
    }

    fn reader(&self) -> Result<Reader<File>> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(0))
            .context("the trace must be a file that can be read twice, not a pipe")?;
        Reader::new(file).map_err(|error| self.failure(error))
    }

    /// Returns the header of the trace.
    ///
    /// # Errors
    /// Fails if the file is not a trace.
    pub fn header(&self) -> Result<Header> {
        Ok(self.reader()?.header().clone())
    }

    /// Calls `f` with every event until it returns false.
    ///
    /// If the trace is cut off or damaged, the iteration ends at that point, and a note says so.
    ///
    /// # Errors
    /// Returns the errors of `f`, and fails if the trace has no events.
    pub fn events(
        &self,
        console: &Console,
        mut f: impl FnMut(&Event) -> Result<bool>,
    ) -> Result<()> {
        let mut any = false;
        for event in self.reader()? {
            match event {
                Ok(event) => {
                    any = true;
                    if !f(&event)? {
                        break;
                    }
                }
                Err(end @ (TraceError::CutOff { .. } | TraceError::Damaged { .. })) if any => {
                    console.note(&end.to_string());
                    break;
                }
                Err(error) => return Err(self.failure(error)),
            }
        }
        if any {
            return Ok(());
        }
        let what = anyhow!("the trace has no events");
        Err(Failure::new(Status::NothingToDo, what))
    }

    fn failure(&self, error: TraceError) -> Failure {
        match &self.name {
            Some(path) => trace::failure(path, error),
            None => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_address_spaces_are_read_as_people_write_them() {
        assert_eq!(parse_moment("exec"), Ok(Moment::Exec));
        assert_eq!(parse_moment("17"), Ok(Moment::Event(17)));
        assert!(parse_moment("soon").is_err());
        assert_eq!(parse_mm("mm3"), Ok(3));
        assert_eq!(parse_mm("3"), Ok(3));
        assert!(parse_mm("mm").is_err());
    }
}
