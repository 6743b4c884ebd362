//! Basic types: plain values without state of their own.
//!
//! An address is a byte address in a `u64`, and lengths are in bytes unless the name says pages.
//! Page offsets have a separate type ([`Pgoff`]), because they are easily confused with addresses.

pub mod addr;
pub mod arch;
pub mod call_flags;
pub mod error;
pub mod file;
pub mod flags;
pub mod ids;
pub mod offsets;
pub mod pkeys;

pub use addr::{PAGE_MASK, PAGE_SHIFT, PAGE_SIZE, PMD_SIZE, Pgoff, VmRange, align_up, page_align};
pub use error::Errno;
pub use file::{File, FileId, FileKind};
pub use flags::VmFlags;
pub use ids::{AnonVmaId, FrameId, MmId, SwapId, VmaId};
pub use offsets::PageOffsets;
pub use pkeys::PkeyRights;
