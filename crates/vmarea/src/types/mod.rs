//! The ground: plain values without any state of their own.
//!
//! Addresses are bytes in a `u64`; lengths are bytes unless a name says pages. Page offsets have a
//! type of their own ([`Pgoff`]), because mixing them up with addresses is the classic mistake.

pub mod addr;
pub mod call_flags;
pub mod error;
pub mod file;
pub mod flags;
pub mod ids;
pub mod mempolicy;
pub mod pkeys;
pub mod platform;

pub use addr::{PAGE_MASK, PAGE_SHIFT, PAGE_SIZE, PMD_SIZE, Pgoff, VmRange, align_up, page_align};
pub use error::Errno;
pub use file::{File, FileId, FileKind};
pub use flags::VmFlags;
pub use ids::{AnonVmaId, FrameId, MmId, SwapId, VmaId};
pub use pkeys::PkeyRights;
pub use platform::{Environment, NoBytes, Platform, Standard, WithVmaLock};
