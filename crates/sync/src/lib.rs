//! Locks, guarded cells and type-stable slots: the ground that `vmarea` stands on.
//!
//! Everything that needs `unsafe` to share an address space between threads lives here, behind
//! interfaces that safe code cannot misuse into undefined behaviour. How a thread waits is the
//! embedder's affair; the default spins. Nothing here knows of VMAs.
//!
//! # Picture
//! ```text
//! Lock ──────guard (read | write)──┐ carries the lock's id
//!                                  ▼
//! Guarded<T> { owner: lock id, T } ── get(&guard) → &T,  get_mut(&mut write guard) → &mut T
//!
//! Slots<T>: chunk 0 │ chunk 1 │ …   memory never goes back and never changes its type;
//!           a Key names slot and generation, so that a stale key finds nothing
//! ```
#![no_std]
extern crate alloc;

#[cfg(any(test, feature = "std"))]
extern crate std;

mod guarded;
mod lock;
#[cfg(all(test, loom))]
mod models;
pub mod primitive;
mod rank;
mod raw;
mod slots;
mod spin;
#[cfg(all(test, not(loom)))]
mod tests;
mod vma;
mod wait;

pub use guarded::Guarded;
pub use lock::{
    CachePaddedLock, ExclusiveGuard, Lock, LockGuard, LockId, OwnerLock, ReadGuard, Speculation,
    WriteGuard,
};
pub use rank::{Rank, Subclass};
pub use slots::{Exhausted, Key, Slots};
pub use spin::{SpinGuard, SpinLock};
pub use vma::{
    AlignedRwLock, BoxedRwLock, FlaggedCount, FlaggedVmaLock, MmapLockOnly, ReadWrite, Refused,
    VmaCell, VmaLock, VmaLockKind, VmaReadGuard,
};
pub use wait::{Spin, Wait};
