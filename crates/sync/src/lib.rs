//! Locks, guarded cells and type-stable slots for address spaces.
//!
//! This crate contains all `unsafe` code that `vmarea` needs to share an address space between
//! threads. Safe code that uses its interfaces cannot cause undefined behaviour. The embedder
//! chooses how a thread waits ([`Wait`]); the default is to spin. The crate has a lock for VMAs
//! ([`VmaCell`]), but does not know what a VMA contains.
//!
//! # Picture
//! ```text
//! Lock ──────guard (read | write)──┐ carries the lock's id
//!                                  ▼
//! Guarded<T> { owner: lock id, T } ── get(&guard) → &T,  get_mut(&mut write guard) → &mut T
//!
//! Slots<T>: chunk 0 │ chunk 1 │ …   memory is never freed and never changes its type;
//!           a Key names a slot and a generation, so a stale key finds nothing
//! ```
#![no_std]
extern crate alloc;

#[cfg(any(test, feature = "std"))]
extern crate std;

#[cfg(not(target_has_atomic = "64"))]
compile_error!("vmarea-sync needs 64-bit atomics, which this target does not have");

mod guarded;
mod lock;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, loom))]
mod models_parted;
mod parted;
pub mod primitive;
mod rank;
mod raw;
mod slots;
mod spin;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod tests_parted;
mod vma;
mod wait;

pub use guarded::Guarded;
pub use lock::{
    CachePaddedLock, ExclusiveGuard, Lock, LockGuard, LockId, OwnerLock, ReadGuard, Speculation,
    WriteGuard,
};
pub use parted::{AllGuard, AllReadGuard, Nesting, PartedLock};
pub use rank::{Rank, Subclass};
pub use slots::{Found, Key, OutOfMemory, Slots};
pub use spin::{SpinGuard, SpinLock};
pub use vma::{
    AlignedRwLock, BoxedRwLock, FlaggedCount, FlaggedVmaLock, MmapLockOnly, ReadWrite, Refused,
    VmaCell, VmaLock, VmaLockKind, VmaReadGuard,
};
pub use wait::{Spin, Wait};
