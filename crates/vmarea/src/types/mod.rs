//! Basic types for the merge decision and for the embedder's interface.

pub(crate) mod callee;
pub mod mempolicy;
pub mod mmu;
pub mod page_bytes;
pub mod platform;
pub mod prctl;
pub mod system;
pub mod violation;
pub mod writers;

pub use platform::{Environment, NoBytes, Platform, Standard, WithVmaLock};
pub use system::{HugePages, Overcommit, System};
pub use violation::Violation;
pub use vmarea_merge::types::*;
