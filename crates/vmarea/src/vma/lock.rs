//! The kinds of per-VMA lock, for [`WithVmaLock`](crate::types::WithVmaLock).
//!
//! [`VmaLock`], which Linux has used since 6.15, is the default in a [`Space`](crate::Space). The
//! other kinds exist for comparison in measurements.

pub use vmarea_sync::{
    AlignedRwLock, BoxedRwLock, FlaggedCount, FlaggedVmaLock, MmapLockOnly, VmaLock, VmaLockKind,
};
