//! Writes the recorder's events to a trace file.
//!
//! The sink writes each block when it is full, and any pending events once a second. A trace can
//! therefore be read while the program runs, and remains readable if the recorder is killed.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};
use vmarea_explain::stacks::StackTable;
use vmarea_recorder::{CallStack, Sink};
use vmarea_terminal::files::Draft;
use vmarea_terminal::kind::Kind;
use vmarea_trace::event::{Event, Header};
use vmarea_trace::{Error, MAGIC, Writer};

/// Longest time for which an event waits to be written.
const EVERY: Duration = Duration::from_secs(1);

/// The kind of a trace file.
pub const TRACE: Kind = Kind {
    name: "a trace",
    is: |beginning| beginning.starts_with(&MAGIC),
};

/// Destination of a trace.
enum Place<'a> {
    /// A file without a name.
    Nameless(&'a mut File),
    /// A file that gets its final name when its first events are written.
    Named(&'a mut Draft),
}

/// Writes the recorder's events as a trace.
pub struct TraceSink<'a> {
    place: Place<'a>,
    writer: Option<Writer<File>>,
    written: Instant,
}

impl<'a> TraceSink<'a> {
    /// Creates a sink for a recording that only this process reads.
    pub fn nameless(file: &'a mut File) -> Self {
        Self::new(Place::Nameless(file))
    }

    /// Creates a sink for a recording that becomes a named file.
    pub fn named(draft: &'a mut Draft) -> Self {
        Self::new(Place::Named(draft))
    }

    fn new(place: Place<'a>) -> Self {
        Self {
            place,
            writer: None,
            written: Instant::now(),
        }
    }

    /// Writes pending events and returns the size of the trace in bytes.
    ///
    /// # Errors
    /// Fails if the events cannot be written.
    pub fn finish(self) -> Result<u64, Error> {
        match self.writer {
            Some(mut writer) => {
                writer.flush()?;
                Ok(writer.bytes())
            }
            None => Ok(0),
        }
    }
}

impl Sink for TraceSink<'_> {
    fn header(&mut self, header: &Header) -> io::Result<()> {
        let file = match &mut self.place {
            Place::Nameless(file) => file.try_clone()?,
            Place::Named(draft) => draft.file().try_clone()?,
        };
        self.writer = Some(Writer::new(file, header).map_err(io::Error::other)?);
        Ok(())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        match &mut self.writer {
            Some(writer) => writer.write(event).map_err(io::Error::other),
            None => Err(io::Error::other(Error::GivenUp)),
        }
    }

    fn tick(&mut self) -> io::Result<()> {
        let Some(writer) = self.writer.as_mut().filter(|writer| writer.events() != 0) else {
            return Ok(());
        };
        if self.written.elapsed() >= EVERY
            && let Place::Named(draft) = &mut self.place
        {
            self.written = Instant::now();
            writer.flush().map_err(io::Error::other)?;
            draft.appear().map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// Writes the recorder's events as a trace, and collects the stacks of its calls.
pub struct StackSink<'a> {
    /// The trace.
    pub trace: TraceSink<'a>,
    /// The stacks.
    pub stacks: StackTable,
}

impl Sink for StackSink<'_> {
    fn header(&mut self, header: &Header) -> io::Result<()> {
        self.trace.header(header)
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.trace.event(event)
    }

    fn tick(&mut self) -> io::Result<()> {
        self.trace.tick()
    }

    fn stack(&mut self, stack: &CallStack) {
        self.stacks.add(stack);
    }
}
