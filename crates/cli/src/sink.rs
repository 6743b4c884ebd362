//! The recorder's events on their way into a trace file.

use std::fs::File;
use std::io;
use vmarea_host::record::Sink;
use vmarea_trace::event::{Event, Header};
use vmarea_trace::{Error, Writer};

/// Writes what the recorder gives it as a trace.
pub struct TraceSink<'a> {
    /// Where the trace goes, until the header is there.
    file: Option<&'a mut File>,
    writer: Option<Writer<&'a mut File>>,
}

impl<'a> TraceSink<'a> {
    /// A sink for one recording.
    pub fn new(file: &'a mut File) -> Self {
        Self {
            file: Some(file),
            writer: None,
        }
    }

    /// Writes what is pending and returns the size of the trace in bytes.
    ///
    /// # Errors
    /// Where the rest cannot be written.
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
        let file = self
            .file
            .take()
            .ok_or_else(|| io::Error::other(Error::GivenUp))?;
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
