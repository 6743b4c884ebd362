//! Recordings of the programs that are measured.

use anyhow::{Context, anyhow};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use vmarea_explain::text::count;
use vmarea_recorder::{Options, Progress, RecordError, Sink};
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Failure, Result, Status};
use vmarea_terminal::progress::Meter;
use vmarea_trace::event::{Event, Header};
use vmarea_trace::{Error, Writer};

/// Records a command and returns the trace, rewound to its start.
///
/// # Errors
/// Fails if the command cannot be recorded, or if it fails itself.
pub fn to_file(console: &Console, command: &[OsString]) -> Result<File> {
    let mut file = tempfile::tempfile().context("cannot create a temporary file")?;
    let mut sink = Trace {
        file: file.try_clone()?,
        writer: None,
    };
    let options = Options {
        command: command.to_vec(),
        ..Options::default()
    };
    let mut meter = Meter::beside_program(console, "recording");
    let recorded = vmarea_recorder::record(&options, &mut sink, &mut |progress| {
        if let Progress::Counts(counts) = progress {
            meter.at(counts.events, || format!("{} events", count(counts.events)));
        }
    });
    drop(meter);
    let outcome = recorded.map_err(failure)?;
    console.note(&format!("recorded {} events", count(outcome.counts.events)));
    if let Some(writer) = &mut sink.writer {
        writer.flush()?;
    }
    if outcome.status != 0 {
        let status = ExitStatus::from_raw(outcome.status);
        return Err(anyhow!("the program failed ({status}): nothing is measured").into());
    }
    file.rewind()?;
    Ok(file)
}

fn failure(error: RecordError) -> Failure {
    let status = match error.is_permission() {
        true => Status::Permission,
        false => Status::Error,
    };
    Failure::new(status, error)
}

/// Writes the events to a file that only this process reads.
struct Trace {
    file: File,
    writer: Option<Writer<File>>,
}

impl Sink for Trace {
    fn header(&mut self, header: &Header) -> io::Result<()> {
        let file = self.file.try_clone()?;
        self.writer = Some(Writer::new(file, header).map_err(io::Error::other)?);
        Ok(())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        match &mut self.writer {
            Some(writer) => writer.write(event).map_err(io::Error::other),
            None => Err(io::Error::other(Error::GivenUp)),
        }
    }
}
