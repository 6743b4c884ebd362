//! Reader of trace files: an iterator of events that ends with at most one error.
//!
//! The reader holds one block at a time. It returns every event before the first damage; then one
//! [`Error`] names the block and its offset, and the iterator ends. A trace without [`Event::End`]
//! ends with [`Error::CutOff`]. The reader does not check whether the ids in events are consistent.
//!
//! # Invariants
//! R1  Every length is bounded before memory is allocated for it (`block`); memory for stored bytes
//!     grows only as these bytes arrive.
//! R2  Nothing follows [`Event::End`] or an error.

use crate::Error;
use crate::block::{self, HEAD_LEN, Head, MAGIC, MAX_HEADER, PROLOGUE_LEN, VERSION};
use crate::decode::Decoder;
use crate::event::{Event, Header};
use crate::previous;
use std::fs::File;
use std::io::{self, Read};
use std::iter::FusedIterator;
use std::path::Path;
use zstd::bulk::Decompressor;

/// Reads a trace.
pub struct Reader<R: Read = File> {
    source: R,
    header: Header,
    decompressor: Decompressor<'static>,
    stored: Vec<u8>,
    raw: Vec<u8>,
    decoder: Decoder,
    /// Number of events in the current block that have not been returned yet.
    left: u32,
    /// Number of the block in `raw`, counted from 1; 0 is the header.
    block: u64,
    /// Offset of the block in `raw`.
    offset: u64,
    /// Offset of the next block.
    next_offset: u64,
    stage: Stage,
}

/// State of the iterator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Open,
    /// [`Event::End`] has been returned.
    Ended,
    /// The iterator has ended.
    Over,
}

impl Reader<File> {
    /// Opens the trace at `path` and reads its header.
    ///
    /// # Errors
    /// [`Error::Open`], and the errors of [`Reader::new`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })?;
        Self::new(file)
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header of a trace. Reads are large, so the source needs no buffer.
    ///
    /// # Errors
    /// [`Error::NotATrace`], [`Error::Newer`], [`Error::Older`], [`Error::CutOff`],
    /// [`Error::Damaged`] with block 0, [`Error::Read`].
    pub fn new(mut source: R) -> Result<Self, Error> {
        let (header, len) = read_header(&mut source)?;
        let decompressor = Decompressor::new().map_err(|source| Error::Read {
            block: 0,
            offset: 0,
            source,
        })?;
        Ok(Self {
            source,
            header,
            decompressor,
            stored: Vec::new(),
            raw: Vec::new(),
            decoder: Decoder::default(),
            left: 0,
            block: 0,
            offset: 0,
            next_offset: len,
            stage: Stage::Open,
        })
    }

    /// Returns the trace's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the number of the last returned event's block, counted from 1; 0 before the first
    /// event.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Returns the next event; reads the next block if all events of the current one have been
    /// returned.
    #[inline]
    fn read(&mut self) -> Result<Option<Event>, Error> {
        if self.left == 0 {
            self.next_block()?;
            if self.stage == Stage::Over {
                return Ok(None);
            }
        }
        let event = self
            .decoder
            .next(&self.raw)
            .map_err(|malformed| self.damaged(malformed.0))?;
        self.left -= 1;
        if self.left == 0 && !self.decoder.is_at_end(&self.raw) {
            return Err(self.damaged("bytes follow its last event"));
        }
        if matches!(event, Event::End { .. }) {
            if self.left > 0 {
                return Err(self.damaged("events follow the end"));
            }
            self.stage = Stage::Ended;
        }
        Ok(Some(event))
    }

    /// Reads and checks the next block, or finds the end of the trace.
    #[cold]
    fn next_block(&mut self) -> Result<(), Error> {
        self.block += 1;
        self.offset = self.next_offset;
        let mut head = [0; HEAD_LEN];
        let got = self.fill_head(&mut head)?;
        if self.stage == Stage::Ended {
            if got > 0 {
                return Err(self.damaged("bytes follow the end of the trace"));
            }
            self.stage = Stage::Over;
            return Ok(());
        }
        if got < HEAD_LEN {
            return Err(self.cut_off(got));
        }
        let (fields, sum) = Head::from_bytes(&head).map_err(|what| self.damaged(what))?;
        if fields.number != self.block as u32 {
            return Err(self.damaged("its number is not the next one"));
        }
        self.fill_stored(fields.stored)?;
        if Head::checksum(&head, &self.stored) != sum {
            return Err(self.damaged("its checksum does not fit"));
        }
        self.expand(fields.raw)?;
        self.decoder.clear();
        self.left = fields.events;
        self.next_offset += (HEAD_LEN + self.stored.len()) as u64;
        Ok(())
    }

    fn fill_head(&mut self, head: &mut [u8; HEAD_LEN]) -> Result<usize, Error> {
        fill(&mut self.source, head).map_err(|source| self.unreadable(source))
    }

    fn fill_stored(&mut self, len: u32) -> Result<(), Error> {
        self.stored.clear();
        let got = (&mut self.source)
            .take(u64::from(len))
            .read_to_end(&mut self.stored)
            .map_err(|source| self.unreadable(source))?;
        if got < len as usize {
            return Err(self.cut_off(HEAD_LEN + got));
        }
        Ok(())
    }

    /// Decompresses the stored bytes into `raw`.
    fn expand(&mut self, raw: u32) -> Result<(), Error> {
        self.raw.clear();
        self.raw.reserve_exact(raw as usize);
        let result = self
            .decompressor
            .decompress_to_buffer(&self.stored[..], &mut self.raw);
        match result {
            Ok(len) if len == raw as usize => Ok(()),
            Ok(_) => Err(self.damaged("it is shorter than it says")),
            Err(_) => Err(self.damaged("its compressed bytes do not fit")),
        }
    }

    #[cold]
    fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged {
            block: self.block,
            offset: self.offset,
            what,
        }
    }

    #[cold]
    fn cut_off(&self, got: usize) -> Error {
        Error::CutOff {
            block: self.block,
            offset: self.offset + got as u64,
        }
    }

    #[cold]
    fn unreadable(&self, source: io::Error) -> Error {
        Error::Read {
            block: self.block,
            offset: self.offset,
            source,
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.stage == Stage::Over {
            return None;
        }
        match self.read() {
            Ok(event) => event.map(Ok),
            Err(error) => {
                self.stage = Stage::Over;
                Some(Err(error))
            }
        }
    }
}

impl<R: Read> FusedIterator for Reader<R> {}

/// Reads the header. Returns the header, and the combined length of prologue and header.
fn read_header(source: &mut impl Read) -> Result<(Header, u64), Error> {
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::IsADirectory => Error::Folder,
        _ => Error::Read {
            block: 0,
            offset: 0,
            source,
        },
    };
    let damaged = |what| Error::Damaged {
        block: 0,
        offset: 0,
        what,
    };
    let cut_off = |offset| Error::CutOff {
        block: 0,
        offset: offset as u64,
    };
    let mut prologue = [0; PROLOGUE_LEN];
    let got = fill(source, &mut prologue).map_err(unreadable)?;
    if got < MAGIC.len() || prologue[..MAGIC.len()] != MAGIC {
        return Err(Error::NotATrace);
    }
    let version = block::le32(&prologue, 8);
    if got >= 12 {
        check(version)?;
    }
    if got < PROLOGUE_LEN {
        return Err(cut_off(got));
    }
    let len = block::le32(&prologue, 12) as usize;
    if len > MAX_HEADER {
        return Err(damaged("its header is larger than any"));
    }
    let mut bytes = Vec::new();
    let got = source
        .take(len as u64)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if got < len {
        return Err(cut_off(PROLOGUE_LEN + got));
    }
    if block::checksum(&prologue[8..16], &bytes) != block::le64(&prologue, 16) {
        return Err(damaged("the checksum of its header does not fit"));
    }
    let header = match version {
        previous::VERSION => previous::header(&bytes),
        _ => postcard::from_bytes(&bytes),
    };
    let header = header.map_err(|_| damaged("its header has an impossible field"))?;
    Ok((header, (PROLOGUE_LEN + len) as u64))
}

/// Fails for a version that this reader does not know.
fn check(found: u32) -> Result<(), Error> {
    match found {
        previous::VERSION | VERSION => Ok(()),
        _ if found > VERSION => Err(Error::Newer {
            found,
            known: VERSION,
        }),
        _ => Err(Error::Older {
            found,
            known: VERSION,
        }),
    }
}

/// Reads until `buffer` is full or the source ends. Returns how many bytes were read.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match source.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
