//! The frame of a trace file: its first bytes, the head of a block, and their checksums.
//!
//! A file is a prologue, the header, and blocks; all integers are little-endian. A block's head
//! says how long the block is before anything is allocated for it, and its checksum covers the
//! head as well as the stored bytes. What is in a block is `encode`'s and `decode`'s affair.
//!
//! # Picture
//! ```text
//! prologue  magic 8 │ version 4 │ header length 4 │ checksum of (version, length, header) 8
//! header    postcard of event::Header
//! block     stored length 4 │ raw length 4 │ events 4 │ number 4 │ checksum 8 │ zstd frame
//! block     ...
//! ```

use twox_hash::XxHash3_64;

/// First bytes of every trace. The first is no text, the last shows a transfer that changed
/// line ends.
pub(crate) const MAGIC: [u8; 8] = *b"\x89vmarea\n";

/// The version that is written, and the newest that is read.
pub(crate) const VERSION: u32 = 1;

/// Bytes before the header.
pub(crate) const PROLOGUE_LEN: usize = 24;

/// Bytes before a block's zstd frame.
pub(crate) const HEAD_LEN: usize = 24;

/// Largest header: arguments and settings are small.
pub(crate) const MAX_HEADER: usize = 16 << 20;

/// Raw bytes at which a writer closes a block.
pub(crate) const FULL_BLOCK: usize = 256 << 10;

/// Most raw bytes of one block: the largest event that can be written.
pub(crate) const MAX_RAW: usize = 64 << 20;

/// Most stored bytes of one block; zstd never makes data longer by more than this allows.
pub(crate) const MAX_STORED: usize = MAX_RAW + (MAX_RAW >> 7) + 512;

/// Events in a block, at most: the smallest takes this many raw bytes.
pub(crate) const MIN_EVENT: usize = 2;

/// The head of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// Bytes of the zstd frame.
    pub(crate) stored: u32,
    /// Bytes that it holds.
    pub(crate) raw: u32,
    /// Events that those are.
    pub(crate) events: u32,
    /// Place in the file from 1, modulo 2^32: a block that is missing or doubled is noticed.
    pub(crate) number: u32,
}

impl Head {
    /// The head as bytes, with the checksum of itself and `stored`.
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

    /// The head that stands in `bytes`, and its checksum; or what does not fit. Lengths are
    /// within bounds afterwards, the checksum is not yet compared.
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

    /// The checksum that belongs to this head and `stored`.
    pub(crate) fn checksum(bytes: &[u8; HEAD_LEN], stored: &[u8]) -> u64 {
        checksum(&bytes[..16], stored)
    }
}

/// The prologue for a header of these bytes.
pub(crate) fn prologue(header: &[u8]) -> [u8; PROLOGUE_LEN] {
    let mut bytes = [0; PROLOGUE_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(header.len() as u32).to_le_bytes());
    let sum = checksum(&bytes[8..16], header);
    bytes[16..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// XXH3 of `head`, used as the seed for that of `body`.
pub(crate) fn checksum(head: &[u8], body: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(head), body)
}

/// The 32-bit integer at `at`.
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

/// The 64-bit integer at `at`.
pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}
