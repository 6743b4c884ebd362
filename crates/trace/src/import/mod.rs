//! Importers that convert `strace` and `perf` output to events.
//!
//! The output of these tools contains less than a recording: no list of mappings, no kernel
//! release, no settings, and often no names of mapped files. The importers leave unknown fields
//! empty and report this in an [`Event::Note`]; they never guess silently. Each process is assumed
//! to begin with an empty address space.
//!
//! Lines that do not concern memory are skipped. Lines that concern memory but cannot be parsed are
//! counted and reported at the end by [`Event::Lost`] and a note. Text without a single valid line
//! is an error.

mod classify;
mod perf_script;
mod perf_trace;
mod state;
mod strace;
mod text;

use crate::Error;
use crate::event::{Event, FaultSource, Header};
use perf_script::PerfScript;
use perf_trace::PerfTrace;
use state::ImportState;
use std::io::{BufRead, Read};
use std::iter::FusedIterator;
use strace::Strace;

/// Maximum length in bytes of a line that is parsed.
const MAX_LINE: u64 = 1 << 20;

/// Maximum number of events that are held back until the first fault reveals the fault source.
const LOOK_AHEAD: usize = 10_000;

/// The program that wrote the text to import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `strace -f`, with or without `-o`, `-t`, `-tt`, `-ttt`, `-r`, `-T`, `-y`.
    ///
    /// With `-y`, paths are complete; without `-f`, children are missing.
    Strace,
    /// `perf script`, with page faults and system calls.
    ///
    /// Best used with `-F comm,pid,tid,time,event,trace,addr --show-task-events --show-mmap-events`
    /// on a recording made by `perf record -c 1 -d`.
    PerfScript,
    /// `perf trace`, with `-F all` for faults.
    PerfTrace,
}

/// Result of parsing one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    /// The line was parsed.
    Read,
    /// The line is well formed and does not concern memory.
    Other,
    /// The line is not in the format that is being imported.
    Foreign,
    /// The line concerns memory but could not be parsed.
    Unreadable,
    /// No line of this kind can be used; the message explains how to obtain usable text.
    Unusable(&'static str),
}

/// Parser of one format.
trait Parse {
    /// Parses a line without its newline, and adds its events.
    fn line(&mut self, text: &str, state: &mut ImportState) -> Line;
}

/// An import in progress: the header, and an iterator over the events.
pub struct Import<R> {
    text: R,
    parser: Box<dyn Parse + Send>,
    state: ImportState,
    header: Header,
    line: Vec<u8>,
    line_number: u64,
    read: u64,
    unreadable: u64,
    first_unreadable: u64,
    stage: Stage,
}

/// State of an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Text,
    Ended,
    Failed,
}

impl<R: BufRead> Import<R> {
    /// Starts to import `text`, and reads ahead until the header is known.
    ///
    /// # Errors
    /// [`Error::ReadText`], and [`Error::Import`] if the text does not have the format `format`.
    pub fn new(format: Format, text: R) -> Result<Self, Error> {
        let (parser, name): (Box<dyn Parse + Send>, _) = match format {
            Format::Strace => (Box::<Strace>::default(), "strace"),
            Format::PerfScript => (Box::<PerfScript>::default(), "perf script"),
            Format::PerfTrace => (Box::<PerfTrace>::default(), "perf trace"),
        };
        let mut import = Self {
            text,
            parser,
            state: ImportState::default(),
            header: Header::default(),
            line: Vec::new(),
            line_number: 0,
            read: 0,
            unreadable: 0,
            first_unreadable: 0,
            stage: Stage::Text,
        };
        import.state.note(format!(
            "imported from {name} text: mappings, kernel release and settings are unknown"
        ));
        import.look_ahead(format)?;
        import.header = Header {
            machine: "x86_64".to_owned(),
            page_size: 4096,
            command: import.state.command.clone(),
            faults: import.state.faults,
            writer: format!("vmarea-trace {} from {name}", env!("CARGO_PKG_VERSION")),
            ..Header::default()
        };
        Ok(import)
    }

    /// Returns the header; most of its fields are unknown.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Reads ahead until the fields of the header are known or will probably remain unknown.
    fn look_ahead(&mut self, format: Format) -> Result<(), Error> {
        let known = |state: &ImportState| match format {
            Format::Strace => !state.command.is_empty(),
            Format::PerfScript | Format::PerfTrace => state.faults != FaultSource::None,
        };
        while self.stage == Stage::Text
            && !known(&self.state)
            && self.state.queue.len() < LOOK_AHEAD
        {
            self.next_line()?;
        }
        Ok(())
    }

    /// Reads one line, or finds the end of the text.
    fn next_line(&mut self) -> Result<(), Error> {
        self.line.clear();
        self.line_number += 1;
        let got = (&mut self.text)
            .take(MAX_LINE)
            .read_until(b'\n', &mut self.line)
            .map_err(|source| Error::ReadText {
                line: self.line_number,
                source,
            })?;
        if got == 0 {
            return self.end();
        }
        let text = String::from_utf8_lossy(&self.line);
        match self.parser.line(text.trim_end(), &mut self.state) {
            Line::Read => self.read += 1,
            Line::Other | Line::Foreign => {}
            Line::Unreadable => {
                self.unreadable += 1;
                if self.unreadable == 1 {
                    self.first_unreadable = self.line_number;
                }
            }
            Line::Unusable(what) => {
                return Err(Error::Import {
                    line: self.line_number,
                    what,
                });
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.read == 0 {
            return Err(Error::AnotherTool);
        }
        if self.unreadable > 0 {
            self.state.queue.push_back(Event::Lost {
                count: self.unreadable,
                t: self.state.now,
            });
            self.state.note(format!(
                "{} lines about memory could not be read, the first is line {}",
                self.unreadable, self.first_unreadable
            ));
        }
        self.state.end();
        self.stage = Stage::Ended;
        Ok(())
    }
}

impl<R: BufRead> Iterator for Import<R> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.state.queue.pop_front() {
                return Some(Ok(event));
            }
            if self.stage != Stage::Text {
                return None;
            }
            if let Err(error) = self.next_line() {
                self.stage = Stage::Failed;
                return Some(Err(error));
            }
        }
    }
}

impl<R: BufRead> FusedIterator for Import<R> {}
