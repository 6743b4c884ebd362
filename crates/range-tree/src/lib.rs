//! Ordered map from disjoint address ranges to one word each.
//!
//! Readers look up the range at or after an address; one writer at a time changes the map; gap
//! search finds the lowest or the highest free space. The map does not interpret the words; a
//! caller may, for example, store keys of VMAs in them. Ranges never overlap, and only whole ranges
//! can be removed.
//!
//! Readers take no lock and write nothing (optimistic lock coupling). A reader that meets the
//! writer in the same node retries; a writer elsewhere does not disturb it. Nodes stay allocated
//! until the tree is borrowed mutably, so a reader needs no registration, handle, or thread-local
//! state.
//! Because nodes carry versions, the writer changes them in place; there are no old copies to be
//! freed after a grace period.
//!
//! # Examples
//! ```
//! use vmarea_range_tree::{Entry, RangeTree, Writer};
//!
//! let tree = RangeTree::new();
//! let mut writer: Writer<'_> = tree.write();
//! // The changes below cannot fail, because their memory is reserved.
//! writer.reserve(3)?;
//! writer.insert(Entry { start: 0x1000, end: 0x3000, value: 7 });
//! writer.insert(Entry { start: 0x8000, end: 0x9000, value: 8 });
//! writer.resize(0x8000, 0x8000, 0xa000);
//! drop(writer);
//!
//! assert_eq!(tree.get(0x2fff).map(|found| found.value), Some(7));
//! assert_eq!(tree.get(0x3000), None);
//! assert_eq!(tree.find(0x3000).map(|found| found.value), Some(8));
//! assert_eq!(tree.try_find(0x3000), Ok(tree.find(0x3000)));
//! assert_eq!(tree.prev(0x8000).map(|found| found.value), Some(7));
//! assert_eq!(tree.ranges(0x2000, 0x9000).count(), 2);
//! assert_eq!(tree.gap_lowest(0x1000, 0x10000, 0x2000), Some((0x3000, 0x8000)));
//! assert_eq!(tree.gap_highest(0x1000, 0x10000, 0x2000), Some((0xa000, 0x10000)));
//!
//! let [below, above] = tree.touching(0x3000, 0x8000);
//! assert_eq!((below, above), (tree.get(0x1000), tree.get(0x8000)));
//!
//! // One range becomes two, and these become one again.
//! let mut writer = tree.write();
//! writer.reserve(1)?;
//! let upper = Entry { start: 0x2000, end: 0x3000, value: 9 };
//! writer.cut(0x1000, &[Entry { start: 0x1000, end: 0x2000, value: 7 }, upper]);
//! assert_eq!(tree.get(0x2000), Some(upper));
//! writer.absorb(0x1000, 0x1000, 0x3000);
//! assert_eq!(writer.remove(0x1000).map(|gone| gone.value), Some(7));
//! assert_eq!(tree.len(), 1);
//! # Ok::<(), vmarea_range_tree::OutOfMemory>(())
//! ```
//!
//! # Picture
//! ```text
//! root ─▶ inner: (end, room) of each child in ascending order, up to 64
//!           └▶ inner …
//!                └▶ leaf: (start, end, word) of each range, up to 15, and the order of the ranges
//! ```
//! The end in an inner node is exact: the last end below it. Therefore the search for the first
//! range that ends after `addr` descends to one leaf without backtracking, and that leaf contains
//! the range. The room is a bound: at least the largest gap before a range below it, not counting
//! the gap before the first range of the map. A gap search enters a child only if its room is large
//! enough, and lowers rooms that turn out to be too large.
//!
//! A range stays in its slot of the leaf; one word contains the order of the slots. Most changes
//! write one slot and this word, and no inner node.
//!
//! # Invariants
//! [`validate`](RangeTree::validate) checks all of them.
//! - T1  ranges are disjoint, ascending and not empty
//! - T2  a row of an inner node has exactly the end of its child, and a room that is at least each
//!   room in the child, or each gap before a range in the child
//! - T3  no node is empty, all leaves have the same depth, an inner root has at least two children
//! - T4  unused rows and slots have `u64::MAX` as their end, unused rows have no child, and the order
//!   of a leaf contains each slot once
//! - T5  without an active writer, no node is busy, and no node is both in the tree and free
//!
//! # Locking
//! `writer` (a spin lock) guards the node pool and serializes all changes. A gap search takes it only
//! to lower rooms that misled it, and if it does not succeed while the map changes. A range that a
//! reader returns was in the map at some moment between the call and its return.
//!
//! # Linux
//! Corresponds to `lib/maple_tree.c` as used for `mm_struct.mm_mt`. Differences: readers check
//! versions, whereas Linux copies nodes and frees them by RCU; gaps are not entries.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod balance;
mod build;
mod gap;
mod join;
mod leaf;
#[cfg(all(test, loom))]
mod models;
mod node;
mod path;
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
pub use vmarea_sync::OutOfMemory;
pub use write::Writer;

use pool::Pool;
use vmarea_sync::SpinLock;
use vmarea_sync::primitive::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// A range and its word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// First address of the range.
    pub start: u64,
    /// First address after the range.
    pub end: u64,
    /// The caller's word.
    pub value: u64,
}

/// The reader met a writer in the same node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contended;

/// Pointer to the root, on a separate cache line. Every reader loads this pointer first.
#[derive(Debug)]
#[repr(align(64))]
struct Root(AtomicPtr<()>);

/// Map of disjoint address ranges; see the crate documentation.
#[derive(Debug)]
pub struct RangeTree {
    root: Root,
    /// Change counter, which is odd during a change. Searches that visit many nodes check it.
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
        /// Creates an empty map. Allocates nothing.
        pub fn new() -> Self {
            RangeTree {
                root: Root(AtomicPtr::new(core::ptr::null_mut())),
                changes: AtomicU64::new(0),
                ranges: AtomicUsize::new(0),
                writer: SpinLock::new(Pool::new()),
            }
        }
    }

    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        // ORDERING: Relaxed; the count publishes no other data.
        self.ranges.load(Ordering::Relaxed)
    }

    /// Returns true if there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of the map and all its nodes in bytes, including reserved nodes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.writer.lock().bytes()
    }

    /// Returns the memory of nodes that are not in the tree to the allocator.
    ///
    /// ```
    /// use vmarea_range_tree::{Entry, RangeTree};
    ///
    /// let mut tree = RangeTree::new();
    /// let empty = tree.bytes();
    /// let mut writer = tree.write();
    /// writer.reserve(1)?;
    /// writer.insert(Entry { start: 0x1000, end: 0x2000, value: 7 });
    /// writer.remove(0x1000);
    /// drop(writer);
    /// assert!(tree.bytes() > empty);
    /// tree.shrink();
    /// assert_eq!(tree.bytes(), empty);
    /// # Ok::<(), vmarea_range_tree::OutOfMemory>(())
    /// ```
    pub fn shrink(&mut self) {
        self.writer.lock().shrink();
    }

    /// Starts changing the map; waits while there is another writer.
    #[inline]
    pub fn write(&self) -> Writer<'_> {
        Writer::new(self, self.writer.lock())
    }
}
