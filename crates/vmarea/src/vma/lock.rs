//! The kinds of lock that a VMA can have, for [`WithVmaLock`](crate::types::WithVmaLock).
//!
//! [`VmaLock`] is what Linux has since 6.15 and what a [`Space`](crate::Space) has if nobody asks for
//! another; the others are there to be measured against it.

pub use vmarea_sync::{
    AlignedRwLock, BoxedRwLock, FlaggedCount, FlaggedVmaLock, MmapLockOnly, VmaLock, VmaLockKind,
};
