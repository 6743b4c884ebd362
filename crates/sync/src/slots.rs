//! Type-stable slots, identified by keys that carry a generation.
//!
//! Taking or freeing a slot is one compare-and-swap; only slots that have never been used require a
//! lock. The tag in a list head changes with every update, so a compare-and-swap detects a head
//! that was removed and inserted again (ABA).
//!
//! Threads that use different lanes never write to the same cache line: each lane has its own free
//! list, and takes a page of unused slots at a time from the table. A lane that runs out of
//! slots after its first page takes those freed to other lanes before the table grows. The memory
//! of a chunk is not touched until its slots are needed. The lane that takes slots initializes them
//! without a lock, in parallel with other lanes; a lane waits for other lanes only because `ready`
//! must advance in order.
//!
//! # Picture
//! ```text
//! chunk 0: 64 slots │ chunk 1: 128 │ chunk 2: 256 …      never moved, never freed
//! slot:  generation : 32 │ next free : 32 │ value
//! lane:  tag : 32 │ index + 1 : 32  ──▶ slot ──▶ slot …   last in, first out
//!        range of slots that were never used
//! ```
//!
//! # Invariants
//! - S1  a slot's generation is odd while the slot is in use
//! - S2  a slot is in one free list, or in use, or reserved by one lane and never used, or at or
//!   above `ready`, or at its last generation
//! - S3  slots below `ready` are initialized and their chunks published; slots from `ready` to
//!   `used` are being initialized by the lanes that took them

use crate::SpinLock;
use crate::primitive::{AtomicPtr, AtomicU32, AtomicU64, Ordering, spin_loop};
use core::alloc::Layout;
use core::num::NonZeroU32;

/// Number of slots in the first chunk; each later chunk has twice as many as the one before it.
const FIRST: u32 = if cfg!(loom) { 2 } else { 64 };
const CHUNKS: usize = if cfg!(loom) { 2 } else { 26 };
/// Number of lanes. Lane 0 serves callers that name no lane; if all do, the indices are dense.
const LANES: usize = if cfg!(loom) { 2 } else { 33 };
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

/// No memory is available for a new object, or the table for such objects is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory;

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

/// Table whose slots keep their address and type for as long as the table lives.
///
/// A freed slot is reused only for another `T`, so a late reader still reads a `T` and can detect
/// that the slot has been reused. Therefore a value can change only through cells inside it. A
/// value is created by `Default`, once per slot, and is not dropped when the slot is freed.
///
/// A slot is used at most 2³¹ times and is then retired, so a key never becomes valid again.
#[derive(Debug)]
pub struct Slots<T> {
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    lanes: [Lane; LANES],
    /// Number of slots that are initialized, in use or not.
    ready: AtomicU32,
    /// Number of slots that lanes have taken from the table.
    used: SpinLock<u32>,
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

impl Lane {
    fn new() -> Self {
        Lane {
            free: AtomicU64::new(0),
            unused: SpinLock::new((0, 0)),
        }
    }
}

// SAFETY: threads share values as `&T`, and the owner of the table drops them.
unsafe impl<T: Send + Sync> Sync for Slots<T> {}
// SAFETY: the table owns its chunks.
unsafe impl<T: Send> Send for Slots<T> {}

impl<T: Default> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the chunk of a slot, and the slot's position in the chunk; `number` is the slot's index
/// plus `FIRST`. Chunk `k` has the numbers from `FIRST << k` up to `FIRST << (k + 1)`.
#[inline]
fn place(number: NonZeroU32) -> (usize, usize) {
    let bits = number.ilog2();
    let chunk = (bits as usize).wrapping_sub(FIRST.ilog2() as usize);
    (chunk, (number.get() ^ 1 << bits) as usize)
}

/// Converts a lane number from a caller to the index of a lane other than lane 0.
#[inline]
fn named(number: usize) -> usize {
    1 + number % (LANES - 1)
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
        self.remove_to(key, 0)
    }

    /// Like [`remove`](Self::remove), but returns the slot to the free list of a lane; any lane
    /// number is valid.
    pub fn remove_in(&self, key: Key, lane: usize) -> bool {
        self.remove_to(key, named(lane))
    }

    #[inline]
    fn remove_to(&self, key: Key, lane: usize) -> bool {
        let lane = &self.lanes[lane];
        let Some(slot) = self.slot(key.index) else {
            return false;
        };
        let (now, then) = (key.generation, key.generation.wrapping_add(1));
        // ORDERING: Release, pairs with the Acquire in `insert`: the next user sees the writes of
        // this user.
        let ended =
            slot.generation
                .compare_exchange(now, then, Ordering::Release, Ordering::Relaxed);
        if ended.is_err() || now & 1 == 0 {
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

    fn pop(&self, lane: &Lane) -> Option<u32> {
        // ORDERING: Acquire, here and below, pairs with the Release in `push`.
        let mut free = lane.free.load(Ordering::Acquire);
        loop {
            let index = (free as u32).checked_sub(1)?;
            // If another thread takes this slot first, `next` may belong to another list. The tag
            // has changed then, and the compare-and-swap fails.
            let next = self.slot(index)?.next.load(Ordering::Relaxed);
            let popped = head(free, next);
            match lane.free.compare_exchange_weak(
                free,
                popped,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(index),
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

    /// Returns a number that is higher than every index in use so far.
    pub fn bound(&self) -> u32 {
        // ORDERING: Relaxed; a thread that knows a key has seen the slots become ready.
        self.ready.load(Ordering::Relaxed)
    }

    /// Returns true if no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.keys().next().is_none()
    }

    /// Returns the keys of the slots in use, in ascending order of index.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        // ORDERING: Relaxed; `key_at` does its own Acquire load.
        let ready = self.ready.load(Ordering::Relaxed);
        (0..ready).filter_map(|index| self.key_at(index))
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        // ORDERING: Acquire, pairs with the Release in `grow`: the chunk and the slot are visible.
        if index >= self.ready.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: `take` has seen that the sum does not overflow for any index below `ready`.
        let number = unsafe { NonZeroU32::new_unchecked(index.wrapping_add(FIRST)) };
        let (chunk, at) = place(number);
        debug_assert!(chunk < CHUNKS);
        // SAFETY: by S3 the chunk exists, so its number is less than `CHUNKS`.
        let chunk = unsafe { self.chunks.get_unchecked(chunk) };
        // ORDERING: Relaxed; published with `ready`.
        let base = chunk.load(Ordering::Relaxed);
        // SAFETY: by S3 the chunk exists, never moves, and the slot in it is initialized.
        unsafe {
            core::hint::assert_unchecked(!base.is_null());
            Some(&*base.add(at))
        }
    }
}

impl<T: Default> Slots<T> {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self {
            chunks: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
            lanes: core::array::from_fn(|_| Lane::new()),
            ready: AtomicU32::new(0),
            used: SpinLock::new(0),
        }
    }

    /// Takes a slot, which has the value that its previous user left, or `T::default()`.
    ///
    /// # Errors
    /// If the allocator has no memory for more slots, or there are 2³² slots.
    pub fn insert(&self) -> Result<Key, OutOfMemory> {
        self.insert_from(0)
    }

    /// Like [`insert`](Self::insert), but takes the slot from a lane; any lane number is valid.
    ///
    /// Threads with different lanes do not contend when they take and free slots.
    ///
    /// # Errors
    /// Like `insert`.
    #[inline]
    pub fn insert_in(&self, lane: usize) -> Result<Key, OutOfMemory> {
        self.insert_from(named(lane))
    }

    fn insert_from(&self, number: usize) -> Result<Key, OutOfMemory> {
        let index = match self.pop(&self.lanes[number]) {
            Some(index) => index,
            None => self.fresh(number)?,
        };
        let slot = self.slot(index).ok_or(OutOfMemory)?;
        // ORDERING: Acquire, pairs with the Release in `remove`.
        let generation = slot.generation.load(Ordering::Acquire) + 1;
        // ORDERING: Release, pairs with the Acquire in `get`.
        slot.generation.store(generation, Ordering::Release);
        Ok(Key { index, generation })
    }

    /// Returns a slot for a lane whose free list is empty.
    #[cold]
    fn fresh(&self, number: usize) -> Result<u32, OutOfMemory> {
        let lane = &self.lanes[number];
        let mut unused = lane.unused.lock();
        let (next, end) = *unused;
        if next < end {
            *unused = (next + 1, end);
            return Ok(next);
        }
        // Slots of others are on cache lines that others use.
        let had_own = end != 0;
        // While this thread waited, a slot may have been freed to this lane or to another lane.
        if had_own && let Some(index) = self.lanes.iter().find_map(|lane| self.pop(lane)) {
            return Ok(index);
        }
        let (first, end) = self.grow(Self::BATCH)?;
        *unused = (first + 1, end);
        Ok(first)
    }

    /// Number of new slots that a lane takes at a time: a page of them, or one if a slot is larger.
    const BATCH: u32 = match 4096 / Self::SLOT_BYTES {
        _ if cfg!(any(test, loom)) => 2,
        0 => 1,
        batch => batch as u32,
    };

    /// Initializes up to `count` new slots in one chunk, and returns the range of their indices.
    fn grow(&self, count: u32) -> Result<(u32, u32), OutOfMemory> {
        let (base, first, end) = self.take(count)?;
        for at in 0..end - first {
            let slot = Slot {
                generation: AtomicU32::new(0),
                next: AtomicU32::new(0),
                value: T::default(),
            };
            // SAFETY: the slot is within the chunk's memory, and by S3 no other thread accesses it
            // yet.
            unsafe { base.add(at as usize).write(slot) };
        }
        // ORDERING: Acquire, pairs with the Release below: a thread that sees these slots as ready
        // also sees the ones before them.
        while self.ready.load(Ordering::Acquire) != first {
            spin_loop();
        }
        // ORDERING: Release, pairs with the Acquire in `slot`.
        self.ready.store(end, Ordering::Release);
        Ok((first, end))
    }

    /// Reserves up to `count` indices and the memory for their slots.
    fn take(&self, count: u32) -> Result<(*mut Slot<T>, u32, u32), OutOfMemory> {
        let mut used = self.used.lock();
        let first = *used;
        let number = first.checked_add(FIRST).and_then(NonZeroU32::new);
        let (chunk, at) = place(number.ok_or(OutOfMemory)?);
        let cell = self.chunks.get(chunk).ok_or(OutOfMemory)?;
        let len = FIRST << chunk;
        // ORDERING: Relaxed, here and below; written under the lock, published with `ready`.
        let mut base = cell.load(Ordering::Relaxed);
        if base.is_null() {
            base = Self::allocate(len as usize)?;
            cell.store(base, Ordering::Relaxed);
        }
        *used = first + count.min(len - at as u32);
        // SAFETY: `at` is less than the length of the chunk.
        Ok((unsafe { base.add(at) }, first, *used))
    }

    /// Allocates memory for a chunk, aligned to a cache line.
    fn allocate(len: usize) -> Result<*mut Slot<T>, OutOfMemory> {
        let layout = chunk_layout::<T>(len).ok_or(OutOfMemory)?;
        // SAFETY: a slot has at least its generation, so the layout is not empty.
        let base: *mut Slot<T> = unsafe { alloc::alloc::alloc(layout) }.cast();
        if base.is_null() {
            return Err(OutOfMemory);
        }
        Ok(base)
    }
}

/// Returns the layout of a chunk, which is aligned to a cache line.
///
/// Slots whose size divides the size of a cache line, or is a multiple of it, touch as few lines as
/// possible.
fn chunk_layout<T>(len: usize) -> Option<Layout> {
    Layout::array::<Slot<T>>(len).ok()?.align_to(64).ok()
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        let mut left = self.ready.load(Ordering::Relaxed) as usize;
        for (chunk, cell) in self.chunks.iter().enumerate() {
            let base = cell.load(Ordering::Relaxed);
            if !base.is_null() {
                let len = (FIRST as usize) << chunk;
                let made = left.min(len);
                left -= made;
                let slots = core::ptr::slice_from_raw_parts_mut(base, made);
                // SAFETY: by S3 this many slots are initialized, and the table is borrowed mutably.
                unsafe { slots.drop_in_place() };
                if let Some(layout) = chunk_layout::<T>(len) {
                    // SAFETY: the chunk was allocated with this layout.
                    unsafe { alloc::alloc::dealloc(base.cast(), layout) };
                }
            }
        }
    }
}
