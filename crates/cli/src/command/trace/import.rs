//! `vmarea trace import`: converts another tool's log to a trace.

use super::failure;
use crate::failed_calls::Collector;
use crate::sink::TRACE;
use anyhow::Context;
use clap::{Args, ValueEnum};
use std::io::BufReader;
use std::path::PathBuf;
use vmarea_explain::text::count;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Result};
use vmarea_terminal::files::Draft;
use vmarea_trace::Writer;
use vmarea_trace::event::Event;
use vmarea_trace::import::{Format, Import as Imported};
use vmarea_trace::inputs;

/// Maximum size of a log. It is read line by line, so the limit is one of time, not of memory.
const LOG_BYTES: u64 = 16 << 30;

/// Convert a log of strace or perf to a trace.
///
/// Such a log contains less than a recording: it has no lists of mappings to compare with, and a
/// strace log has no page faults. Notes say what is missing.
#[derive(Debug, Args)]
pub struct Import {
    /// The tool that wrote the log
    #[arg(long, value_name = "TOOL")]
    from: Source,

    /// The log, a file of at most 16 GiB, or `-` for standard input
    #[arg(value_name = "LOG")]
    log: PathBuf,

    /// The trace file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Tools whose logs can be imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Source {
    /// `strace -f`; add `-y` so that the files can be told apart
    Strace,
    /// `perf script`, with page faults and system calls
    PerfScript,
    /// `perf trace`, with `-F all` for page faults
    PerfTrace,
}

impl From<Source> for Format {
    fn from(source: Source) -> Self {
        match source {
            Source::Strace => Self::Strace,
            Source::PerfScript => Self::PerfScript,
            Source::PerfTrace => Self::PerfTrace,
        }
    }
}

impl Import {
    pub(super) fn run(&self, console: &Console) -> Result {
        let log = inputs::open(&self.log, LOG_BYTES)
            .with_context(|| format!("cannot read {}", self.log.display()))?;
        let unreadable = |error| failure(&self.log, error);
        let imported = Imported::new(self.from.into(), BufReader::new(log)).map_err(unreadable)?;

        let mut draft = Draft::create(&self.output, TRACE)?;
        let mut writer = Writer::new(draft.file(), imported.header())?;
        let mut failed = Collector::new(imported.header());
        for event in imported {
            let event = event.map_err(unreadable)?;
            if let Event::Note(note) = &event {
                console.note(note);
            }
            writer.write(&event)?;
            failed.event(&event);
        }
        writer.flush()?;
        let (events, bytes) = (writer.events(), writer.bytes());
        drop(writer);
        draft.publish()?;
        console.note(&format!(
            "wrote {} events, {} to {}",
            count(events),
            console.size(bytes),
            self.output.display()
        ));
        let failed: u64 = failed.finish().iter().map(|group| group.count).sum();
        if failed > 0 {
            console.note(&format!(
                "{} memory calls failed: vmarea trace info {} lists them",
                count(failed),
                self.output.display()
            ));
        }
        Ok(Exit::Ok)
    }
}
