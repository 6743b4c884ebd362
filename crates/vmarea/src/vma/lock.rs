//! The kinds of per-VMA lock, for [`WithVmaLock`](crate::types::WithVmaLock).
//!
//! [`VmaLock`] is the lock that Linux has used since 6.15, and the default of a
//! [`Space`](crate::Space). The other kinds exist for comparison measurements.

pub use vmarea_sync::{
    AlignedRwLock, BoxedRwLock, FlaggedCount, FlaggedVmaLock, MmapLockOnly, VmaLock, VmaLockKind,
};
