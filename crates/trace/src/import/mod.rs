//! Importers: what `strace` and `perf` print becomes events.
//!
//! Such text knows less than a recording: no list of mappings, no kernel release, no settings,
//! and often not which file is mapped. What is unknown is left empty, and a [`Event::Note`] says
//! so; nothing is guessed in silence. A process begins with an empty address space.
//!
//! Lines that say nothing of memory are passed over. Lines that do and cannot be read are
//! counted, and named at the end by [`Event::Lost`] and a note. Text in which no line at all
//! could be read is an error.

mod perf_script;
mod perf_trace;
mod shaping;
mod strace;
mod text;
mod world;

use crate::Error;
use crate::event::{Event, FaultSource, Header};
use perf_script::PerfScript;
use perf_trace::PerfTrace;
use std::io::{BufRead, Read};
use std::iter::FusedIterator;
use strace::Strace;
use world::World;

/// Bytes of the longest line that is looked at.
const MAX_LINE: u64 = 1 << 20;

/// Events that are held back at most until the first fault tells where faults come from.
const LOOK_AHEAD: usize = 10_000;

/// Who wrote the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `strace -f`, with or without `-o`, `-t`, `-tt`, `-ttt`, `-r`, `-T`, `-y`. With `-y` paths
    /// are whole; without `-f` children are missing.
    Strace,
    /// `perf script`, of page faults and of system calls. Best with
    /// `-F comm,pid,tid,time,event,trace,addr --show-task-events --show-mmap-events` of a
    /// recording made with `perf record -c 1 -d`.
    PerfScript,
    /// `perf trace`, with `-F all` for faults.
    PerfTrace,
}

/// What one line was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    /// It was read.
    Read,
    /// It has the right form and is not about memory.
    Other,
    /// It does not have the form at all.
    Foreign,
    /// It is about memory, and could not be read.
    Unreadable,
    /// No line of this kind can be used; the text says what to do.
    Unusable(&'static str),
}

/// One of the importers.
trait Parse {
    /// Takes a line, without its end, and makes events of it.
    fn line(&mut self, text: &str, world: &mut World) -> Line;
}

/// A text that is being imported: its header, and an iterator over its events.
pub struct Import<R> {
    text: R,
    parser: Box<dyn Parse + Send>,
    world: World,
    header: Header,
    line: Vec<u8>,
    line_number: u64,
    read: u64,
    unreadable: u64,
    first_unreadable: u64,
    stage: Stage,
}

/// How far an import is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Text,
    Ended,
    Failed,
}

impl<R: BufRead> Import<R> {
    /// Begins to import `text`. So much of it is read that the header can be told.
    ///
    /// # Errors
    /// [`Error::ReadText`], and [`Error::Import`] where the text is not what `format` says.
    pub fn new(format: Format, text: R) -> Result<Self, Error> {
        let (parser, name): (Box<dyn Parse + Send>, _) = match format {
            Format::Strace => (Box::<Strace>::default(), "strace"),
            Format::PerfScript => (Box::<PerfScript>::default(), "perf script"),
            Format::PerfTrace => (Box::<PerfTrace>::default(), "perf trace"),
        };
        let mut import = Self {
            text,
            parser,
            world: World::default(),
            header: Header::default(),
            line: Vec::new(),
            line_number: 0,
            read: 0,
            unreadable: 0,
            first_unreadable: 0,
            stage: Stage::Text,
        };
        import.world.note(format!(
            "imported from {name} text: no mappings, kernel release and settings are known"
        ));
        import.look_ahead(format)?;
        import.header = Header {
            machine: "x86_64".to_owned(),
            page_size: 4096,
            command: import.world.command.clone(),
            faults: import.world.faults,
            writer: format!("vmarea-trace {} from {name}", env!("CARGO_PKG_VERSION")),
            ..Header::default()
        };
        Ok(import)
    }

    /// What is known of the recording: little.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Reads until the header's fields are known, or are likely to stay unknown.
    fn look_ahead(&mut self, format: Format) -> Result<(), Error> {
        let known = |world: &World| match format {
            Format::Strace => !world.command.is_empty(),
            Format::PerfScript | Format::PerfTrace => world.faults != FaultSource::None,
        };
        while self.stage == Stage::Text
            && !known(&self.world)
            && self.world.queue.len() < LOOK_AHEAD
        {
            self.next_line()?;
        }
        Ok(())
    }

    /// Reads one line, or finds that there is none.
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
        match self.parser.line(text.trim_end(), &mut self.world) {
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
            return Err(Error::Import {
                line: self.line_number,
                what: "no line of the text has the form that was asked for",
            });
        }
        if self.unreadable > 0 {
            self.world.queue.push_back(Event::Lost {
                count: self.unreadable,
                t: self.world.now,
            });
            self.world.note(format!(
                "{} lines about memory could not be read, the first is line {}",
                self.unreadable, self.first_unreadable
            ));
        }
        self.world.end();
        self.stage = Stage::Ended;
        Ok(())
    }
}

impl<R: BufRead> Iterator for Import<R> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.world.queue.pop_front() {
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
