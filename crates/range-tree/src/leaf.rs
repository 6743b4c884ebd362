//! Leaf: up to 15 ranges, whose ends are in order, and whose starts and words are in slots that do not
//! move.
//!
//! # Picture
//! ```text
//! place:      0      1      2    …   15
//! ends[0..]   order  end    end      end      in ascending order
//! rows[0..]   head   start  start    start    in any order
//!             –      word   word     word
//!
//! order:      len : 4 │ slot of the first range : 4 │ … │ slot of the last range : 4 │ free slots
//! ```
//! Places beyond `len` have `u64::MAX` as their end. A search makes three comparisons that select
//! four ends, and three within these. An insertion moves the higher ends up, takes the slot at the
//! end of the order word, and shifts the slots of higher ranks by four bits; a removal is the
//! reverse.

use crate::Entry;
use crate::node::{Versioned, rank, shift_down, shift_up};
use vmarea_sync::primitive::{AtomicU64, Ordering};

/// Number of ranges in a leaf; small in tests, so that splits and merges are common. One less than
/// a power of four, so that it is also the mask of a slot's number.
pub(crate) const LEAF: usize = if cfg!(any(test, loom)) { 3 } else { 15 };

/// Maximum total number of ranges at which two neighbouring leaves are merged. One of them then
/// holds at most half as many, so only the removal of a range from such a leaf can lead to a merge.
pub(crate) const MERGEABLE: usize = LEAF - LEAF.div_ceil(4);

/// Number of bits of a slot's number in the order word.
const BITS: usize = 4;
/// All bits of the order word that are in use.
const USED: u64 = u64::MAX >> (64 - BITS * (LEAF + 1));

/// Returns the gap between a range that ends at `below` and the next one, which starts at `start`.
/// If `below` is 0, there is no range below, and the gap is not counted.
#[inline]
pub(crate) fn gap_between(below: u64, start: u64) -> u64 {
    if below == 0 {
        0
    } else {
        start.saturating_sub(below)
    }
}

/// Slots of a leaf by rank, and the number of ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order(u64);

impl Order {
    /// Order of an empty leaf.
    fn new() -> Self {
        Order((1..=LEAF).fold(0, |order, slot| order | (slot as u64) << (BITS * slot)))
    }

    #[inline]
    pub fn len(self) -> usize {
        (self.0 & 15) as usize
    }

    /// Returns the slot of the range with the given rank, which must be less than `LEAF`.
    #[inline]
    pub fn slot(self, rank: usize) -> usize {
        (self.0 >> (BITS * rank + BITS)) as usize & LEAF
    }

    /// Returns the slots of the ranges from the given rank on upwards, and then others.
    #[inline]
    pub fn upwards(self, rank: usize) -> impl Iterator<Item = usize> {
        let mut slots = self.0.unbounded_shr((BITS * rank) as u32);
        core::iter::from_fn(move || {
            slots >>= BITS;
            Some(slots as usize & LEAF)
        })
    }

    /// Returns the slots of the ranges from the given rank on downwards, and then others.
    #[inline]
    pub fn downwards(self, rank: usize) -> impl Iterator<Item = usize> {
        let mut slots = self.0.rotate_right((BITS * rank + BITS) as u32);
        core::iter::from_fn(move || {
            let slot = slots as usize & LEAF;
            slots = slots.rotate_left(BITS as u32);
            Some(slot)
        })
    }

    /// Returns the order with another length. The slots after the last range become free, or those
    /// that were free are taken.
    #[inline]
    fn with_len(self, len: usize) -> Order {
        debug_assert!(len <= LEAF);
        Order(self.0 & !15 | len as u64)
    }

    /// Returns the order after an insertion, and the slot of the new range.
    #[inline]
    fn inserted(self, rank: usize) -> (Order, usize) {
        let slot = self.slot(LEAF - 1);
        let at = BITS * rank + BITS;
        let lower = self.0 & ((1 << at) - 1);
        let higher = (self.0 - lower) << BITS;
        let order = (lower | higher | (slot as u64) << at) + 1;
        (Order(order & USED), slot)
    }

    /// Returns the order after a removal.
    #[inline]
    fn removed(self, rank: usize) -> Order {
        let slot = self.slot(rank);
        let at = BITS * rank + BITS;
        let lower = self.0 & ((1 << at) - 1);
        let higher = (self.0 >> BITS) & (u64::MAX << at);
        let order = (lower | higher | (slot as u64) << (BITS * LEAF)) - 1;
        Order(order)
    }

    /// Returns true if the word contains each slot once.
    fn is_complete(self) -> bool {
        (1..=LEAF).all(|slot| (0..LEAF).any(|rank| self.slot(rank) == slot)) && self.len() <= LEAF
    }
}

/// Node that contains ranges; see the picture in the module documentation.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Leaf {
    ends: [AtomicU64; LEAF + 1],
    rows: [[AtomicU64; 2]; LEAF + 1],
}

impl Versioned for Leaf {
    #[inline]
    fn head(&self) -> &AtomicU64 {
        &self.rows[0][0]
    }
}

impl Leaf {
    /// Creates an empty leaf.
    pub fn new() -> Self {
        let leaf = Leaf {
            ends: core::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            rows: core::array::from_fn(|_| [AtomicU64::new(0), AtomicU64::new(0)]),
        };
        leaf.set_order(Order::new());
        leaf
    }

    // Methods for readers. They may run concurrently with the writer.

    #[inline]
    pub fn order(&self) -> Order {
        // ORDERING: Relaxed here and below; the accesses to the leaf's head order these.
        Order(self.ends[0].load(Ordering::Relaxed))
    }

    /// Returns the rank of the first range that ends after `addr`; `len` or more if there is none.
    #[inline]
    pub fn first_ending_after(&self, addr: u64) -> usize {
        rank(&self.ends, addr)
    }

    #[inline]
    pub fn start(&self, order: Order, rank: usize) -> u64 {
        self.start_in(order.slot(rank))
    }

    /// Returns the start of the range in a slot.
    #[inline]
    pub fn start_in(&self, slot: usize) -> u64 {
        self.rows[slot & LEAF][0].load(Ordering::Relaxed)
    }

    /// Returns the end of the range before the one with the given rank, which must not be 0.
    #[inline]
    pub fn end_before(&self, rank: usize) -> u64 {
        self.ends[rank & LEAF].load(Ordering::Relaxed)
    }

    /// Returns the end of the range before the one with the given rank, or `floor` for the first.
    #[inline]
    pub fn end_below(&self, rank: usize, floor: u64) -> u64 {
        match rank {
            0 => floor,
            _ => self.end_before(rank),
        }
    }

    /// Returns the range with the given rank, which must be less than `LEAF`.
    #[inline]
    pub fn entry(&self, order: Order, rank: usize) -> Entry {
        let [start, value] = &self.rows[order.slot(rank)];
        Entry {
            start: start.load(Ordering::Relaxed),
            end: self.ends[(rank + 1) & LEAF].load(Ordering::Relaxed),
            value: value.load(Ordering::Relaxed),
        }
    }

    /// Returns the end of the last range; 0 if there is none.
    #[inline]
    pub fn last_end(&self) -> u64 {
        self.end_below(self.order().len(), 0)
    }

    // Methods for the writer. Only the tree's single writer may call them, and the leaf must be
    // busy while they change it.

    #[inline]
    fn set_order(&self, order: Order) {
        self.ends[0].store(order.0, Ordering::Relaxed);
    }

    /// Writes the range with the given rank.
    #[inline]
    pub fn set(&self, order: Order, rank: usize, e: Entry) {
        self.rows[order.slot(rank)][1].store(e.value, Ordering::Relaxed);
        self.set_bounds(order, rank, (e.start, e.end));
    }

    /// Writes the bounds of the range with the given rank.
    #[inline]
    pub fn set_bounds(&self, order: Order, rank: usize, (start, end): (u64, u64)) {
        self.rows[order.slot(rank)][0].store(start, Ordering::Relaxed);
        self.ends[(rank + 1) & LEAF].store(end, Ordering::Relaxed);
    }

    /// Inserts a range, which then has the given rank, into a leaf that has the given order.
    #[inline]
    pub fn insert(&self, order: Order, rank: usize, e: Entry) {
        shift_up(&self.ends[rank + 1..order.len() + 2]);
        let (order, slot) = order.inserted(rank);
        let [start, value] = &self.rows[slot];
        start.store(e.start, Ordering::Relaxed);
        value.store(e.value, Ordering::Relaxed);
        self.ends[(rank + 1) & LEAF].store(e.end, Ordering::Relaxed);
        self.set_order(order);
    }

    /// Adds a range above all others.
    pub fn push(&self, e: Entry) {
        let order = self.order();
        self.set(order, order.len(), e);
        self.set_order(order.with_len(order.len() + 1));
    }

    /// Removes the range with the given rank from a leaf that has the given order.
    #[inline]
    pub fn remove(&self, order: Order, rank: usize) {
        let len = order.len();
        shift_down(&self.ends[rank + 1..len + 1]);
        self.ends[len & LEAF].store(u64::MAX, Ordering::Relaxed);
        self.set_order(order.removed(rank));
    }

    /// Returns the range with the given rank.
    pub fn ranked(&self, rank: usize) -> Entry {
        self.entry(self.order(), rank)
    }

    /// Moves the ranges of `source` from rank `from` on to the end of this leaf.
    pub fn take(&self, source: &Self, from: usize) {
        let (order, theirs) = (self.order(), source.order());
        let mut len = order.len();
        for rank in from..theirs.len() {
            self.set(order, len, source.entry(theirs, rank));
            source.ends[(rank + 1) & LEAF].store(u64::MAX, Ordering::Relaxed);
            len += 1;
        }
        self.set_order(order.with_len(len));
        source.set_order(theirs.with_len(from));
    }

    /// Returns the largest gap before a range with a rank in `ranks`, where `floor` is the end of
    /// the last range in the previous leaf; 0 if there is none, and then there is no gap before the
    /// first range.
    pub fn largest_gap(&self, ranks: core::ops::Range<usize>, floor: u64) -> u64 {
        let order = self.order();
        let gaps =
            ranks.map(|rank| gap_between(self.end_below(rank, floor), self.start(order, rank)));
        gaps.max().unwrap_or(0)
    }

    /// Returns true if the order word is valid, and the unused ends are `u64::MAX`.
    pub fn is_tidy(&self) -> bool {
        let order = self.order();
        let unused = &self.ends[order.len() + 1..];
        order.is_complete()
            && unused
                .iter()
                .all(|end| end.load(Ordering::Relaxed) == u64::MAX)
    }
}
