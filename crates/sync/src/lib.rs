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
//! Slots<T>: chunk 0 │ chunk 1 │ …   memory keeps its type, and is freed only by a mutable borrow;
//!           a Key names a slot and a generation, so a stale key finds nothing
//! ```
//!
//! # Examples
//! ```
//! use core::sync::atomic::{AtomicU64, Ordering};
//! use vmarea_sync::{Found, Key, Slots};
//!
//! let slots = Slots::<AtomicU64>::new();
//! let key = slots.insert()?;
//! slots.get(key).expect("in use").store(7, Ordering::Relaxed);
//! assert_eq!(Key::from_bits(key.to_bits()), Some(key));
//! assert_eq!(slots.key_at(key.index()), Some(key));
//!
//! let found: Found<'_, _> = slots.find(key).expect("in use");
//! assert_eq!(found.value().load(Ordering::Relaxed), 7);
//!
//! assert!(slots.remove(key));
//! assert!(!found.is_current());
//! assert!(slots.get(key).is_none(), "a stale key finds nothing");
//! // Threads with lanes of their own do not disturb each other.
//! let next = slots.insert_in(3)?;
//! assert!(next != key && slots.remove_in(next, 3));
//! # Ok::<(), vmarea_sync::OutOfMemory>(())
//! ```
#![no_std]
extern crate alloc;

#[cfg(any(test, feature = "std"))]
extern crate std;

#[cfg(not(target_has_atomic = "64"))]
compile_error!("vmarea-sync needs 64-bit atomics, which this target does not have");

mod big_reader;
mod chunks;
mod guarded;
mod lock;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, loom))]
mod models_memory;
#[cfg(all(test, loom))]
mod models_parted;
mod once_box;
mod parted;
pub mod primitive;
mod rank;
mod raw;
mod slots;
mod spin;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod tests_memory;
#[cfg(all(test, not(loom)))]
mod tests_parted;
mod vma;
mod wait;

pub use big_reader::{BigReadGuard, BigReaderLock, BigWriteGuard};
pub use chunks::OutOfMemory;
pub use guarded::Guarded;
pub use lock::{
    CachePaddedLock, ExclusiveGuard, Lock, LockGuard, LockId, OwnerLock, ReadGuard, Speculation,
    WriteGuard,
};
pub use once_box::OnceBox;
pub use parted::{AllGuard, AllReadGuard, Nesting, PartedLock};
pub use rank::{Callback, Rank, Subclass};
pub use slots::{Found, Key, Slots};
pub use spin::{Held, HeldAndNumber, SpinFlag, SpinGuard, SpinLock};
pub use vma::{
    AlignedRwLock, BoxedRwLock, FlaggedCount, FlaggedVmaLock, MmapLockOnly, ReadWrite, Refused,
    VmaCell, VmaLock, VmaLockKind, VmaReadGuard,
};
pub use wait::{Spin, Wait};
