//! Framing of a trace file: prologue, block heads and checksums.
//!
//! A file consists of a prologue, a header and blocks; all integers are little-endian. A reader
//! gets a block's length from the block's head before it allocates memory for the block. The
//! checksum covers the head as well as the stored bytes. `encode` and `decode` handle the content
//! of a block.
//!
//! # Picture
//! ```text
//! prologue  magic 8 │ version 4 │ header length 4 │ checksum of (version, length, header) 8
//! header    postcard of event::Header
//! block     stored length 4 │ raw length 4 │ events 4 │ number 4 │ checksum 8 │ zstd frame
//! block     ...
//! ```

use twox_hash::XxHash3_64;

/// First bytes of every trace.
///
/// The first byte is not ASCII, so no program mistakes the file for text. The last byte is a line
/// feed, which reveals a transfer that changed line endings.
pub const MAGIC: [u8; 8] = *b"\x89vmarea\n";

/// Format version of written files. The reader also accepts the [previous](crate::previous) one.
pub(crate) const VERSION: u32 = 2;

/// Number of bytes before the header.
pub(crate) const PROLOGUE_LEN: usize = 24;

/// Number of bytes before a block's zstd frame.
pub(crate) const HEAD_LEN: usize = 24;

/// Maximum size of the header in bytes. Real headers are much smaller.
pub(crate) const MAX_HEADER: usize = 16 << 20;

/// Raw size in bytes at which a writer closes a block.
pub(crate) const FULL_BLOCK: usize = 256 << 10;

/// Maximum raw size of a block in bytes; no event can be larger.
pub(crate) const MAX_RAW: usize = 64 << 20;

/// Maximum stored size of a block in bytes; zstd never expands data beyond this size.
pub(crate) const MAX_STORED: usize = MAX_RAW + (MAX_RAW >> 7) + 512;

/// Minimum raw size of an event in bytes, which bounds the number of events in a block.
pub(crate) const MIN_EVENT: usize = 2;

/// The head of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// Size of the zstd frame in bytes.
    pub(crate) stored: u32,
    /// Size of the uncompressed content in bytes.
    pub(crate) raw: u32,
    /// Number of events in the block.
    pub(crate) events: u32,
    /// Position of the block in the file, counted from 1, modulo 2^32; reveals missing or repeated
    /// blocks.
    pub(crate) number: u32,
}

impl Head {
    /// Returns the head as bytes, including the checksum over the head and `stored`.
    pub(crate) fn to_bytes(self, stored: &[u8]) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        for (place, field) in
            bytes
                .chunks_exact_mut(4)
                .zip([self.stored, self.raw, self.events, self.number])
        {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let sum = checksum(&bytes[..16], stored);
        bytes[16..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Parses a head and its checksum, or returns a description of the error.
    ///
    /// The returned lengths are within bounds; the checksum has not been verified yet.
    pub(crate) fn from_bytes(bytes: &[u8; HEAD_LEN]) -> Result<(Self, u64), &'static str> {
        let head = Self {
            stored: le32(bytes, 0),
            raw: le32(bytes, 4),
            events: le32(bytes, 8),
            number: le32(bytes, 12),
        };
        if head.stored as usize > MAX_STORED || head.raw as usize > MAX_RAW {
            return Err("its length is larger than any block");
        }
        if head.events == 0 || head.events as usize > head.raw as usize / MIN_EVENT {
            return Err("its number of events does not fit its length");
        }
        Ok((head, le64(bytes, 16)))
    }

    /// Computes the checksum over this head and `stored`.
    pub(crate) fn checksum(bytes: &[u8; HEAD_LEN], stored: &[u8]) -> u64 {
        checksum(&bytes[..16], stored)
    }
}

/// Returns the prologue of a file with the given header bytes.
pub(crate) fn prologue(header: &[u8]) -> [u8; PROLOGUE_LEN] {
    let mut bytes = [0; PROLOGUE_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(header.len() as u32).to_le_bytes());
    let sum = checksum(&bytes[8..16], header);
    bytes[16..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Computes the XXH3 of `body`, seeded with the XXH3 of `head`.
pub(crate) fn checksum(head: &[u8], body: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(head), body)
}

/// Returns the 32-bit integer at offset `at`.
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

/// Returns the 64-bit integer at offset `at`.
pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}
