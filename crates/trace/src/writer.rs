//! Writer of trace files: events in, compressed blocks out.
//!
//! The writer collects events in a block and writes the block when it is full, on
//! [`Writer::flush`], and at the end. One write call writes a whole block, and each block can be
//! decoded without the others, so an interrupted recording loses at most the current block. Only
//! [`Event::End`] marks a complete file. The writer never goes back to change the file, so it can
//! write to a pipe.
//!
//! # Invariants
//! W1  Nothing follows an incomplete block: after an error the writer refuses all further events.
//! W2  Nothing follows [`Event::End`].

use crate::Error;
use crate::block::{self, FULL_BLOCK, Head, MAX_HEADER};
use crate::encode::Encoder;
use crate::event::{Event, Header};
use crate::rare_events::postcard_into;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use zstd::bulk::Compressor;

/// A fast compression level. Its ratio is nearly the best one, because events are encoded as
/// differences.
const LEVEL: i32 = 3;

/// Writes a trace.
///
/// Dropping a writer writes the pending block and ignores errors; [`Writer::finish`] returns them.
pub struct Writer<W: Write = File> {
    /// `None` only within [`Writer::finish`].
    out: Option<W>,
    encoder: Encoder,
    compressor: Compressor<'static>,
    stored: Vec<u8>,
    blocks: u32,
    events: u64,
    bytes: u64,
    stage: Stage,
}

/// State of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Open,
    Ended,
    GivenUp,
}

impl Writer<File> {
    /// Begins a trace in a new file, or replaces the file at `path`.
    ///
    /// # Errors
    /// [`Error::Create`], [`Error::Full`], [`Error::Write`], [`Error::TooLarge`] for the header.
    pub fn create(path: impl AsRef<Path>, header: &Header) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|source| Error::Create {
            path: path.to_owned(),
            source,
        })?;
        Self::new(file, header)
    }
}

impl<W: Write> Writer<W> {
    /// Begins a trace on any output. Writes are large, so the output needs no buffer.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`], [`Error::TooLarge`] for the header.
    pub fn new(out: W, header: &Header) -> Result<Self, Error> {
        let mut bytes = Vec::new();
        postcard_into(&mut bytes, header);
        if bytes.len() > MAX_HEADER {
            return Err(Error::TooLarge {
                what: "the header",
                bytes: bytes.len(),
                limit: MAX_HEADER,
            });
        }
        let mut writer = Self {
            out: Some(out),
            encoder: Encoder::default(),
            compressor: Compressor::new(LEVEL).map_err(|source| Error::from_write(source, 0))?,
            stored: Vec::new(),
            blocks: 0,
            events: 0,
            bytes: 0,
            stage: Stage::Open,
        };
        writer.put(&block::prologue(&bytes), &bytes)?;
        Ok(writer)
    }

    /// Appends an event, and writes the block if it is full.
    ///
    /// # Errors
    /// [`Error::Full`] and [`Error::Write`]; the writer then returns only [`Error::GivenUp`].
    /// [`Error::TooLarge`] and [`Error::AfterEnd`] leave the writer unchanged.
    #[inline]
    pub fn write(&mut self, event: &Event) -> Result<(), Error> {
        match self.stage {
            Stage::Open => {}
            Stage::Ended => return Err(Error::AfterEnd),
            Stage::GivenUp => return Err(Error::GivenUp),
        }
        self.encoder.push(event)?;
        self.events += 1;
        if matches!(event, Event::End { .. }) {
            self.stage = Stage::Ended;
        }
        if self.encoder.bytes().len() >= FULL_BLOCK {
            self.write_block()?;
        }
        Ok(())
    }

    /// Writes the current block, so that readers can read all events so far.
    ///
    /// # Errors
    /// The errors of [`Writer::write`].
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.stage == Stage::GivenUp {
            return Err(Error::GivenUp);
        }
        self.write_block()?;
        let written = self.bytes;
        let flushed = self.out.as_mut().map_or(Ok(()), Write::flush);
        flushed.map_err(|source| self.give_up(source, written))
    }

    /// Writes the pending block and returns the output.
    ///
    /// Without an earlier [`Event::End`], the trace counts as cut off.
    ///
    /// # Errors
    /// The errors of [`Writer::write`].
    pub fn finish(mut self) -> Result<W, Error> {
        self.flush()?;
        Ok(self.out.take().expect("only finish takes it, and once"))
    }

    /// Returns the number of accepted events.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the number of bytes written, not counting the current block.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn write_block(&mut self) -> Result<(), Error> {
        let raw = self.encoder.bytes();
        if raw.is_empty() {
            return Ok(());
        }
        let mut stored = std::mem::take(&mut self.stored);
        stored.clear();
        stored.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        if let Err(source) = self.compressor.compress_to_buffer(raw, &mut stored) {
            return Err(self.give_up(source, self.bytes));
        }
        self.blocks = self.blocks.wrapping_add(1);
        let head = Head {
            stored: stored.len() as u32,
            raw: raw.len() as u32,
            events: self.encoder.events(),
            number: self.blocks,
        };
        let result = self.put(&head.to_bytes(&stored), &stored);
        self.stored = stored;
        self.encoder.clear();
        result
    }

    /// Writes `head` and `body` as one block.
    fn put(&mut self, head: &[u8], body: &[u8]) -> Result<(), Error> {
        let whole = [head, body].concat();
        let written = self.bytes;
        let Some(out) = &mut self.out else {
            return Err(Error::GivenUp);
        };
        if let Err(source) = out.write_all(&whole) {
            return Err(self.give_up(source, written));
        }
        self.bytes += whole.len() as u64;
        Ok(())
    }

    fn give_up(&mut self, source: std::io::Error, written: u64) -> Error {
        self.stage = Stage::GivenUp;
        Error::from_write(source, written)
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        if self.out.is_some() && self.stage != Stage::GivenUp {
            // A destructor cannot report the error; readers see that the trace is cut off.
            let _ = self.flush();
        }
    }
}
