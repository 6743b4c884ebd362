//! The interface of the crate `memory_set` 0.4 on vmarea: areas of an address space with backends.
//!
//! A kernel that uses `memory_set` changes one line, `use vmarea_memory_set::…`, and its areas are
//! VMAs of the core, found through its index. Parts of an area that get equal flags again become
//! one area again.
//!
//! # Picture
//! ```text
//! MemorySet ──▶ Space: one VMA for each area, which maps "file" n
//!     │
//!     └──────▶ records: n ──▶ backend and flags of the area
//! ```
//! Two VMAs merge if they map one file at contiguous offsets, so a file stands for the flags of one
//! area, and an offset is the distance from the start of the area as it was mapped.
//!
//! # Differences from `memory_set`
//! - Addresses and sizes are multiples of 4 KiB; others are [`MappingError::InvalidParam`].
//! - `Flags` can be compared, and areas are returned by value.
//! - A lack of memory is an error: [`MappingError::NoMemory`].
//! - The return value of [`MappingBackend::protect`] is not ignored.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod area;
mod records;
mod set;

pub use area::{MappingBackend, MemoryArea};
pub use set::MemorySet;

use vmarea::types::Errno;

/// Why an operation on a [`MemorySet`] failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappingError {
    /// An address or a size is not a multiple of the page size, or the range is empty or wraps.
    InvalidParam,
    /// The range overlaps an area.
    AlreadyExists,
    /// A backend refused the operation.
    BadState,
    /// There is no memory for another area.
    NoMemory,
}

impl From<Errno> for MappingError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ENOMEM => MappingError::NoMemory,
            _ => MappingError::InvalidParam,
        }
    }
}

/// The result of an operation on a [`MemorySet`].
pub type MappingResult<T = ()> = Result<T, MappingError>;
