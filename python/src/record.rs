//! `vmarea.record`: a trace file that grows while the program runs.
//!
//! The recorder waits for all children of its process and replaces its signal handlers, so
//! `vmarea/_recording.py` calls these functions in a process of their own.

use crate::failure::{Failure, Kind};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempPath;
use vmarea_recorder::{AttachOptions, Counts, Options, Outcome, RecordBy, RecordError, Sink};
use vmarea_trace::Writer;
use vmarea_trace::event::{Event, Header};

/// Longest time for which an event waits to be written.
const EVERY: Duration = Duration::from_secs(1);

/// Wait status of the program, counts by name, notes, and bytes of the trace.
type Results = (i32, Vec<(&'static str, u64)>, Vec<String>, u64);

/// Runs a program to its end and records it.
#[pyfunction]
pub(crate) fn record(
    py: Python<'_>,
    command: Vec<OsString>,
    output: PathBuf,
    checkpoint: Option<NonZeroU64>,
    by: &str,
) -> PyResult<Results> {
    let options = Options {
        command,
        checkpoint,
        by: method(by, checkpoint)?,
        ..Options::default()
    };
    let recorded = py.detach(|| {
        into_file(&output, |sink| {
            vmarea_recorder::record(&options, sink, &mut |_| {})
        })
    });
    Ok(recorded?)
}

/// Records a running process.
#[pyfunction]
pub(crate) fn attach(
    py: Python<'_>,
    pid: i32,
    output: PathBuf,
    seconds: Option<f64>,
    checkpoint: Option<NonZeroU64>,
    by: &str,
) -> PyResult<Results> {
    let duration = match seconds.map(Duration::try_from_secs_f64) {
        None => None,
        Some(Ok(duration)) if !duration.is_zero() => Some(duration),
        Some(_) => return Err(Failure::usage("a duration above zero is needed").into()),
    };
    let options = AttachOptions {
        duration,
        checkpoint,
        by: method(by, checkpoint)?,
        ..AttachOptions::new(pid)
    };
    let recorded = py.detach(|| {
        into_file(&output, |sink| {
            vmarea_recorder::attach(&options, sink, &mut |_| {})
        })
    });
    Ok(recorded?)
}

/// Reads the name of a method, and checks that the method can count calls if `checkpoint` requires it.
fn method(name: &str, checkpoint: Option<NonZeroU64>) -> Result<RecordBy, Failure> {
    match (name, checkpoint) {
        ("observing", Some(_)) => Err(Failure::usage(
            "checkpoint counts calls by stops: record by tracing",
        )),
        ("auto", _) => Ok(RecordBy::Auto),
        ("observing", _) => Ok(RecordBy::Observing),
        ("tracing", _) => Ok(RecordBy::Tracing),
        (other, _) => Err(Failure::usage(format_args!(
            "there is no method `{other}`: auto, observing or tracing"
        ))),
    }
}

/// Records with `record` into a file, which appears with its first events.
fn into_file(
    path: &Path,
    record: impl FnOnce(&mut Growing) -> Result<Outcome, RecordError>,
) -> Result<Results, Failure> {
    let cannot = |error: io::Error| {
        Failure::error(format_args!("cannot create {}: {error}", path.display()))
    };
    let mut sink = Growing::create(path).map_err(cannot)?;
    let Outcome {
        status,
        counts,
        notes,
    } = record(&mut sink).map_err(of_recorder)?;
    let bytes = sink.finish().map_err(Failure::error)?;
    sink.appear().map_err(cannot)?;
    Ok((status, named(&counts), notes, bytes))
}

fn named(counts: &Counts) -> Vec<(&'static str, u64)> {
    let Counts {
        events,
        calls,
        faults,
        touches,
        lost,
        address_spaces,
        tasks: _,
    } = *counts;
    vec![
        ("events", events),
        ("calls", calls),
        ("faults", faults),
        ("touches", touches),
        ("lost", lost),
        ("address_spaces", address_spaces),
    ]
}

fn of_recorder(error: RecordError) -> Failure {
    let kind = match &error {
        error if error.is_permission() => Kind::Permission,
        RecordError::KernelThread(_) => Kind::NothingToDo,
        _ => Kind::Error,
    };
    Failure::new(kind, error)
}

/// A trace file. It has a temporary name until its first events are written; it is readable at any
/// time from then on. An output that is not a regular file (a pipe, `/dev/null`) is written directly.
struct Growing {
    path: PathBuf,
    file: File,
    name: Option<TempPath>,
    writer: Option<Writer<File>>,
    written: Instant,
}

impl Growing {
    fn create(path: &Path) -> io::Result<Self> {
        let (file, name) = match path.metadata() {
            Ok(found) if !found.is_file() => (File::options().write(true).open(path)?, None),
            _ => Self::beside(path)?,
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            name,
            writer: None,
            written: Instant::now(),
        })
    }

    /// Creates a file with a temporary name in the folder of `path`.
    fn beside(path: &Path) -> io::Result<(File, Option<TempPath>)> {
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let mut said = None;
        let create = |path: &Path| {
            let created = File::create_new(path);
            // The kernel's own error; that of `tempfile` would name the temporary path.
            said = created.as_ref().err().and_then(io::Error::raw_os_error);
            created
        };
        let made = tempfile::Builder::new()
            .prefix(".vmarea-")
            .make_in(folder, create);
        let made = made.map_err(|error| said.map_or(error, io::Error::from_raw_os_error))?;
        let (file, name) = made.into_parts();
        Ok((file, Some(name)))
    }

    /// Gives the file its final name.
    fn appear(&mut self) -> io::Result<()> {
        if let Some(name) = self.name.take() {
            name.persist(&self.path).map_err(|error| error.error)?;
        }
        Ok(())
    }

    /// Writes what is left, and returns the size in bytes.
    fn finish(&mut self) -> Result<u64, vmarea_trace::Error> {
        let Some(writer) = &mut self.writer else {
            return Ok(0);
        };
        writer.flush()?;
        Ok(writer.bytes())
    }
}

impl Sink for Growing {
    fn header(&mut self, header: &Header) -> io::Result<()> {
        let file = self.file.try_clone()?;
        self.writer = Some(Writer::new(file, header).map_err(io::Error::other)?);
        Ok(())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        match &mut self.writer {
            Some(writer) => writer.write(event).map_err(io::Error::other),
            None => Err(io::Error::other(vmarea_trace::Error::GivenUp)),
        }
    }

    fn tick(&mut self) -> io::Result<()> {
        let Some(writer) = self.writer.as_mut().filter(|writer| writer.events() != 0) else {
            return Ok(());
        };
        if self.written.elapsed() >= EVERY {
            self.written = Instant::now();
            writer.flush().map_err(io::Error::other)?;
            self.appear()?;
        }
        Ok(())
    }
}
