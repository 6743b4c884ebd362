//! Type-stable slots, identified by keys that carry a generation.
//!
//! Taking or freeing a slot is one compare-and-swap; only slots that have never been used require a
//! lock. The tag in a list head changes with every update, so a compare-and-swap detects a head
//! that was removed and inserted again (ABA).
//!
//! Threads that use different lanes never write to the same cache line: each lane has its own free
//! list, and takes a chunk of new slots at a time. A lane that runs out of slots after its first
//! chunk takes those freed to other lanes before the table grows. The lane that takes slots
//! initializes them without a lock, in parallel with other lanes.
//!
//! The memory of the slots is in `chunks`. It is returned to the allocator by [`Slots::shrink`],
//! which borrows the table mutably.
//!
//! # Picture
//! ```text
//! slot:  generation : 32 │ next free : 32 │ value
//! lane:  tag : 32 │ index + 1 : 32  ──▶ slot ──▶ slot …   last in, first out
//!        range of slots that were never used
//! ```
//!
//! # Invariants
//! - S1  a slot's generation is odd while the slot is in use
//! - S2  a slot is in one free list, or in use, or reserved by one lane and never used, or at its
//!   last generation
//! - S3  a slot in a free list, or reserved by a lane, is initialized and visible to that lane

use crate::chunks::{Chunks, OutOfMemory};
use crate::once_box::OnceBox;
use crate::primitive::{AtomicU32, AtomicU64, Ordering};
use crate::spin::SpinLock;

/// Number of lanes for callers that name one.
const LANES: usize = if cfg!(loom) { 1 } else { 32 };
/// Generation after which a slot is never used again. Tests use a small value.
const LAST_GENERATION: u32 = if cfg!(any(test, loom)) {
    6
} else {
    u32::MAX - 1
};

/// Identifies a slot and its generation. A key is never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    index: u32,
    /// Odd while the slot is in use.
    generation: u32,
}

impl Key {
    /// Returns the key as a nonzero number, for storage in an atomic.
    #[inline]
    pub fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Converts a number from [`to_bits`](Self::to_bits) back to the key; returns `None` for 0.
    #[inline]
    pub fn from_bits(bits: u64) -> Option<Key> {
        (bits != 0).then_some(Key {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        })
    }

    /// True if a slot in use can have this key. [`from_bits`](Self::from_bits) also returns keys
    /// that are not valid, for which [`Slots::get`] can return the value of a free slot.
    #[inline]
    pub fn is_valid(self) -> bool {
        self.generation & 1 == 1
    }

    /// Returns the index of the slot. Indices are small and dense, and are reused.
    #[inline]
    pub fn index(self) -> u32 {
        self.index
    }
}

/// A slot. The header that lookups read comes first, on the same cache line as the start of the
/// value.
#[derive(Debug)]
#[repr(C)]
struct Slot<T> {
    /// Odd while the slot is in use.
    generation: AtomicU32,
    /// Index of the next slot in the free list, plus one; 0 for none.
    next: AtomicU32,
    value: T,
}

impl<T: Default> Slot<T> {
    fn from_generation(generation: u32) -> Self {
        Slot {
            generation: AtomicU32::new(generation),
            next: AtomicU32::new(0),
            value: T::default(),
        }
    }
}

/// The value of a slot that was in use with some key when it was found.
#[derive(Debug)]
pub struct Found<'a, T> {
    slot: &'a Slot<T>,
    generation: u32,
}

impl<T> Clone for Found<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Found<'_, T> {}

impl<'a, T> Found<'a, T> {
    /// Returns the value, which lives as long as the table.
    #[inline]
    pub fn value(self) -> &'a T {
        &self.slot.value
    }

    /// Returns true if the slot is still in use with the same key.
    #[inline]
    pub fn is_current(self) -> bool {
        // ORDERING: Acquire, pairs with the Release in `insert`.
        self.slot.generation.load(Ordering::Acquire) == self.generation
    }
}

/// Table whose slots keep their address and type until the table is borrowed mutably.
///
/// A freed slot is reused only for another `T`, so a late reader still reads a `T` and can detect
/// that the slot has been reused. Therefore a value can change only through cells inside it. A
/// value is created by `Default`, once per slot, and is not dropped when the slot is freed.
///
/// A slot is used at most 2³¹ times and is then retired, so a key never becomes valid again.
#[derive(Debug)]
pub struct Slots<T> {
    chunks: Chunks<Slot<T>>,
    /// Serves callers that name no lane; if all do, the indices are dense.
    unnamed: Lane,
    named: OnceBox<[Lane; LANES]>,
}

/// Free and unused slots for some of the threads; see the picture in the module documentation.
#[derive(Debug)]
#[repr(align(64))]
struct Lane {
    /// Head of the free list.
    free: AtomicU64,
    /// Range of indices that have never been used: start, and end (exclusive).
    unused: SpinLock<(u32, u32)>,
}

impl Default for Lane {
    fn default() -> Self {
        Lane {
            free: AtomicU64::new(0),
            unused: SpinLock::new((0, 0)),
        }
    }
}

impl Lane {
    /// Forgets the lane's slots, and makes `free` its list.
    fn reset(&mut self, free: u32) {
        // ORDERING: Relaxed; the table is borrowed mutably.
        let before = self.free.load(Ordering::Relaxed);
        self.free.store(head(before, free), Ordering::Relaxed);
        *self.unused.lock() = (0, 0);
    }
}

impl<T: Default> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the free-list head that replaces `before` and points to `first` (an index plus one).
fn head(before: u64, first: u32) -> u64 {
    ((before >> 32) + 1) << 32 | u64::from(first)
}

impl<T> Slots<T> {
    /// Size of a slot in bytes.
    pub const SLOT_BYTES: usize = size_of::<Slot<T>>();
    /// Offset of the value in its slot. Chunks are aligned to cache lines.
    pub const VALUE_OFFSET: usize = core::mem::offset_of!(Slot<T>, value);

    /// Returns the value of a slot, or `None` if the key is stale.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.find(key).map(Found::value)
    }

    /// Like [`get`](Self::get), for a caller that checks the key again later.
    #[inline]
    pub fn find(&self, key: Key) -> Option<Found<'_, T>> {
        let slot = self.slot(key.index)?;
        let generation = key.generation;
        let found = Found { slot, generation };
        found.is_current().then_some(found)
    }

    /// Returns the key of the slot at `index` (see [`Key::index`]) if the slot is in use.
    #[inline]
    pub fn key_at(&self, index: u32) -> Option<Key> {
        // ORDERING: Acquire, pairs with the Release in `insert`.
        let generation = self.slot(index)?.generation.load(Ordering::Acquire);
        (generation & 1 == 1).then_some(Key { index, generation })
    }

    /// Frees the slot of `key`. Returns false if the key is stale.
    pub fn remove(&self, key: Key) -> bool {
        self.remove_to(key, &self.unnamed)
    }

    /// Like [`remove`](Self::remove), but returns the slot to the free list of a lane; any lane
    /// number is valid.
    pub fn remove_in(&self, key: Key, lane: usize) -> bool {
        self.remove_to(key, self.lane(lane))
    }

    /// Returns the lane with a number from a caller. Until there is memory for lanes, all callers
    /// use the same one.
    #[inline]
    fn lane(&self, number: usize) -> &Lane {
        match self.named.get_or_make() {
            Ok(named) => &named[number % LANES],
            Err(OutOfMemory) => &self.unnamed,
        }
    }

    #[inline]
    fn remove_to(&self, key: Key, lane: &Lane) -> bool {
        let Some(slot) = self.slot(key.index).filter(|_| key.is_valid()) else {
            return false;
        };
        let (now, then) = (key.generation, key.generation.wrapping_add(1));
        // ORDERING: Release, pairs with the Acquire in `insert`: the next user sees the writes of
        // this user.
        let ended =
            slot.generation
                .compare_exchange(now, then, Ordering::Release, Ordering::Relaxed);
        if ended.is_err() {
            return false;
        }
        if then < LAST_GENERATION {
            Self::push(lane, key.index, slot);
        }
        true
    }

    fn push(lane: &Lane, index: u32, slot: &Slot<T>) {
        let mut free = lane.free.load(Ordering::Relaxed);
        loop {
            // ORDERING: Relaxed; published by the compare-and-swap.
            slot.next.store(free as u32, Ordering::Relaxed);
            let pushed = head(free, index + 1);
            // ORDERING: Release, pairs with the Acquire in `pop`, which reads `next`.
            match lane.free.compare_exchange_weak(
                free,
                pushed,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(other) => free = other,
            }
        }
    }

    fn pop(&self, lane: &Lane) -> Option<(u32, &Slot<T>)> {
        // ORDERING: Acquire, here and below, pairs with the Release in `push`.
        let mut free = lane.free.load(Ordering::Acquire);
        loop {
            let index = (free as u32).checked_sub(1)?;
            // If another thread takes this slot first, `next` may belong to another list. The tag
            // has changed then, and the compare-and-swap fails.
            let slot = self.slot(index)?;
            let popped = head(free, slot.next.load(Ordering::Relaxed));
            match lane.free.compare_exchange_weak(
                free,
                popped,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some((index, slot)),
                Err(other) => free = other,
            }
        }
    }

    /// Returns the number of slots in use.
    ///
    /// The slots are counted individually. With a counter, every insertion and removal would write
    /// the same cache line.
    pub fn len(&self) -> usize {
        self.keys().count()
    }

    /// Returns a number that is higher than every index in use so far. It never decreases.
    pub fn bound(&self) -> u32 {
        self.chunks.bound()
    }

    /// Returns true if no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.keys().next().is_none()
    }

    /// Returns the keys of the slots in use, in ascending order of index.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        (0..self.bound()).filter_map(|index| self.key_at(index))
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        self.chunks.get(index)
    }
}

impl<T: Default> Slots<T> {
    /// Creates an empty table. Allocates nothing.
    pub fn new() -> Self {
        Self {
            chunks: Chunks::new(),
            unnamed: Lane::default(),
            named: OnceBox::new(),
        }
    }

    /// Takes a slot, which has the value that its previous user left, or `T::default()`.
    ///
    /// # Errors
    /// If the allocator has no memory for more slots, or there are 2³² slots.
    pub fn insert(&self) -> Result<Key, OutOfMemory> {
        self.insert_from(&self.unnamed)
    }

    /// Like [`insert`](Self::insert), but takes the slot from a lane; any lane number is valid.
    ///
    /// Threads with different lanes do not contend when they take and free slots.
    ///
    /// # Errors
    /// Like `insert`.
    #[inline]
    pub fn insert_in(&self, lane: usize) -> Result<Key, OutOfMemory> {
        self.insert_from(self.lane(lane))
    }

    fn insert_from(&self, lane: &Lane) -> Result<Key, OutOfMemory> {
        let (index, slot) = match self.pop(lane) {
            Some(free) => free,
            None => self.fresh(lane)?,
        };
        // ORDERING: Acquire, pairs with the Release in `remove`.
        let generation = slot.generation.load(Ordering::Acquire) + 1;
        // ORDERING: Release, pairs with the Acquire in `get`.
        slot.generation.store(generation, Ordering::Release);
        Ok(Key { index, generation })
    }

    /// Returns a slot for a lane whose free list is empty.
    #[cold]
    fn fresh(&self, lane: &Lane) -> Result<(u32, &Slot<T>), OutOfMemory> {
        let mut unused = lane.unused.lock();
        let (mut next, mut end) = *unused;
        if next == end {
            // Slots of others are on cache lines that others use.
            let had_own = end != 0;
            let named = self.named.get().into_iter().flatten();
            let mut lanes = core::iter::once(&self.unnamed).chain(named);
            // While this thread waited, a slot may have been freed to this lane or to another lane.
            if had_own && let Some(free) = lanes.find_map(|lane| self.pop(lane)) {
                return Ok(free);
            }
            next = self.chunks.grow(Slot::from_generation)?;
            end = next + Chunks::<Slot<T>>::LEN;
        }
        *unused = (next + 1, end);
        Ok((next, self.slot(next).ok_or(OutOfMemory)?))
    }

    /// Returns the memory of unused slots to the allocator, and calls `in_use` with the value of
    /// each slot that is in use.
    ///
    /// A chunk of slots is freed if none is in use. The values of the other free slots are replaced
    /// by new ones, so what they own is freed, too. Keys remain valid or stale as they were.
    ///
    /// ```
    /// use vmarea_sync::Slots;
    ///
    /// let mut slots = Slots::<u64>::new();
    /// let stale = slots.insert()?;
    /// slots.remove(stale);
    /// slots.shrink(|_| unreachable!("no slot is in use"));
    /// let key = slots.insert()?;
    /// assert_eq!(key.index(), stale.index());
    /// assert!(slots.get(stale).is_none() && slots.get(key).is_some());
    /// # Ok::<(), vmarea_sync::OutOfMemory>(())
    /// ```
    pub fn shrink(&mut self, mut in_use: impl FnMut(&mut T)) {
        let mut free = 0;
        self.chunks.shrink(Slot::from_generation, |first, slots| {
            // ORDERING: Relaxed, here and below; the table is borrowed mutably.
            let generation = |slot: &Slot<T>| slot.generation.load(Ordering::Relaxed);
            let last = slots.iter().map(generation).fold(0, u32::max);
            if last < LAST_GENERATION && slots.iter().all(|slot| generation(slot) & 1 == 0) {
                return Some(last);
            }
            // The list begins with the lowest index, so that the highest chunks become unused.
            for (at, slot) in slots.iter_mut().enumerate().rev() {
                match generation(slot) {
                    odd if odd & 1 == 1 => in_use(&mut slot.value),
                    before => {
                        slot.value = T::default();
                        if before < LAST_GENERATION {
                            slot.next.store(free, Ordering::Relaxed);
                            free = first + at as u32 + 1;
                        }
                    }
                }
            }
            None
        });
        self.unnamed.reset(free);
        let named = self.named.get_mut().into_iter().flatten();
        named.for_each(|lane| lane.reset(0));
    }
}
