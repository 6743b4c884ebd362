//! The interface of the crate `memory_set` 0.4, implemented with vmarea.
//!
//! To switch from `memory_set`, a kernel changes one line, `use vmarea_memory_set::…`; its areas
//! are then VMAs of the core and are found in the core's index. If the flags of two neighbouring
//! parts of an area become equal again, the parts become one area again.
//!
//! # Picture
//! ```text
//! MemorySet ──▶ Space: one VMA for each area, which maps "file" n
//!     │
//!     └──────▶ records: n ──▶ backend and flags of the area
//! ```
//! Two VMAs merge if they map one file at contiguous offsets, so a file represents the flags of one
//! area, and an offset is the distance from the address at which the area originally started.
//!
//! # Differences from `memory_set`
//! - Addresses and sizes must be multiples of 4 KiB, or the error is
//!   [`MappingError::InvalidParam`].
//! - `Flags` must be comparable, and areas are returned by value.
//! - Running out of memory is an error ([`MappingError::NoMemory`]).
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

/// Reason why an operation on a [`MemorySet`] failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappingError {
    /// An address or a size is not a multiple of the page size, or the range is empty or wraps
    /// around.
    InvalidParam,
    /// The range overlaps an existing area.
    AlreadyExists,
    /// A backend rejected the operation.
    BadState,
    /// Not enough memory is available for another area.
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
