//! Ordered map of disjoint ranges of addresses, each with one word.
//!
//! Readers ask for the range at or after an address; one writer at a time changes the map; gap
//! search finds room from either end. Knows nothing of VMAs: the word is the caller's (a key).
//!
//! Readers take no lock and write nothing. A reader that meets a writer in the same node looks
//! again; one that meets it elsewhere notices nothing. Nodes stay allocated until the tree is
//! dropped, so a reader needs no registration, no handle and no
//! thread-local state: that is why nodes carry versions here, and are not copied and freed after a
//! grace period. What is deliberately absent: a `remove` that takes part of a range, and any
//! notion of overlapping ranges.
//!
//! # Picture
//! ```text
//! root ─▶ inner: (start, end, largest gap inside) of each child, up to 64
//!           └▶ inner …
//!                └▶ leaf: (start, end, word) of each range, up to 64
//! ```
//! The bounds in an inner node are exact: the first start and the last end below it. So the search
//! for "the first range that ends after `addr`" goes straight down, and falls off nowhere.
//!
//! # Invariants
//! All are checked by [`validate`](RangeTree::validate).
//! - T1  ranges are disjoint and ascending, none is empty
//! - T2  a row of an inner node says exactly what its child spans, and its largest gap
//! - T3  no node is empty, all leaves are at the same depth, a root that is inner has two children
//! - T4  rows beyond a node's length have `u64::MAX` as bounds
//! - T5  no node is busy, and no node is both in the tree and free, when no writer is at work
//!
//! # Locking
//! `writer` (a spin lock) → the pool of nodes and all changes. A range found by a reader was in
//! the map at one moment between the call and its return.
//!
//! # Linux
//! The part that `lib/maple_tree.c` plays for `mm_struct.mm_mt`. Differences: readers check
//! versions where Linux copies nodes and frees them by RCU; gaps are not entries.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod balance;
mod gap;
#[cfg(all(test, loom))]
mod models;
mod node;
mod pool;
mod read;
mod validate;
mod write;

#[cfg(all(test, not(loom)))]
#[path = "../tests/compare/mod.rs"]
mod compare;
#[cfg(all(test, not(loom)))]
mod reference;

pub use read::Ranges;
pub use validate::Violation;
pub use write::Writer;

use pool::Pool;
use vmarea_sync::SpinLock;
use vmarea_sync::primitive::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// A range and its word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// The caller's word.
    pub value: u64,
}

/// No memory for a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory;

/// The reader met a writer in the same node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contended;

/// What readers look at first, on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Root(AtomicPtr<()>);

/// The map.
#[derive(Debug)]
pub struct RangeTree {
    root: Root,
    /// Odd while a change is under way. For searches that look at many nodes.
    changes: AtomicU64,
    ranges: AtomicUsize,
    writer: SpinLock<Pool>,
}

impl Default for RangeTree {
    fn default() -> Self {
        Self::new()
    }
}

impl RangeTree {
    vmarea_sync::const_fn! {
        /// An empty map. Allocates nothing.
        pub fn new() -> Self {
            RangeTree {
                root: Root(AtomicPtr::new(core::ptr::null_mut())),
                changes: AtomicU64::new(0),
                ranges: AtomicUsize::new(0),
                writer: SpinLock::new(Pool::new()),
            }
        }
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        // ORDERING: Relaxed; a number without anything behind it.
        self.ranges.load(Ordering::Relaxed)
    }

    /// True where there is no range.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all nodes, those held in reserve included.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.writer.lock().bytes()
    }

    /// Begins a change. Waits for another writer.
    #[inline]
    pub fn write(&self) -> Writer<'_> {
        Writer::new(self, self.writer.lock())
    }
}
