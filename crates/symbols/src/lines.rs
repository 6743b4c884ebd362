//! Debug information of one file: the functions at an address, inlined ones included, with lines.

use crate::Frame;
use crate::demangle::{bounded, demangle};
use addr2line::Context;
use flate2::FlushDecompress;
use gimli::{Dwarf, EndianArcSlice, LittleEndian, SectionId};
use object::{CompressedData, CompressionFormat, Object, ObjectSection};
use std::io;
use std::sync::Arc;

/// Maximum number of functions that are reported for one address.
const DEPTH: usize = 64;

type Slice = EndianArcSlice<LittleEndian>;

/// Reader of the debug information of one file.
pub(crate) struct Lines {
    context: Context<Slice>,
}

impl Lines {
    /// Reads the debug information; returns `None` if the file has none.
    ///
    /// `budget` is the number of bytes that the debug information may still occupy.
    ///
    /// # Errors
    /// A description of the damage.
    pub(crate) fn of(file: &object::File<'_>, budget: &mut u64) -> Result<Option<Lines>, String> {
        if file.section_by_name(".debug_info").is_none() {
            return Ok(None);
        }
        let dwarf = Dwarf::load(|id| section(file, id, budget))?;
        let context = Context::from_dwarf(dwarf).map_err(|error| error.to_string())?;
        Ok(Some(Lines { context }))
    }

    /// Returns the functions at a link-time address, innermost first; none if it is not described.
    ///
    /// The name of a function that has none is empty.
    ///
    /// # Errors
    /// A description of the damage.
    pub(crate) fn frames(&self, linked: u64) -> Result<Vec<Frame>, String> {
        let found = self.context.find_frames(linked).skip_all_loads();
        let mut found = found.map_err(|error| error.to_string())?;
        let mut frames = Vec::new();
        while let Some(frame) = found.next().map_err(|error| error.to_string())? {
            let function = frame.function.as_ref();
            let name = function.and_then(|function| function.raw_name().ok());
            let location = frame.location.as_ref();
            frames.push(Frame {
                function: name.map(|name| demangle(&name)).unwrap_or_default(),
                file: location.and_then(|at| at.file).map(bounded),
                line: location.and_then(|at| at.line).filter(|line| *line > 0),
                module: None,
                inlined: true,
            });
            if frames.len() == DEPTH {
                break;
            }
        }
        if let Some(last) = frames.last_mut() {
            last.inlined = false;
        }
        Ok(frames)
    }
}

/// Reads one section; an absent one is empty.
fn section(file: &object::File<'_>, id: SectionId, budget: &mut u64) -> Result<Slice, String> {
    let of = |bytes: Arc<[u8]>| Slice::new(bytes, LittleEndian);
    let Some(section) = file.section_by_name(id.name()) else {
        return Ok(of(Arc::from([])));
    };
    let data = section
        .compressed_data()
        .map_err(|error| error.to_string())?;
    *budget = budget
        .checked_sub(data.uncompressed_size)
        .ok_or("it is too large")?;
    Ok(of(bytes(data)?.into()))
}

/// Returns the bytes of a section. `object` could decompress it, but only with a second zstd decoder.
fn bytes(data: CompressedData<'_>) -> Result<Vec<u8>, String> {
    let damaged = |error: io::Error| format!("a section cannot be decompressed: {error}");
    let size = usize::try_from(data.uncompressed_size).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(size)
        .map_err(|error| error.to_string())?;
    match data.format {
        CompressionFormat::None => bytes.extend_from_slice(data.data),
        CompressionFormat::Zlib => {
            let mut decompress = flate2::Decompress::new(true);
            decompress
                .decompress_vec(data.data, &mut bytes, FlushDecompress::Finish)
                .map_err(|error| damaged(error.into()))?;
        }
        CompressionFormat::Zstandard => {
            let mut decompressor = zstd::bulk::Decompressor::new().map_err(damaged)?;
            decompressor
                .decompress_to_buffer(data.data, &mut bytes)
                .map_err(damaged)?;
        }
        other => return Err(format!("the compression {other:?} is not known")),
    }
    match bytes.len() == size {
        true => Ok(bytes),
        false => Err("a section has another size than its header says".to_owned()),
    }
}
