//! Type-stable slots named by keys that carry a generation.
//!
//! # Picture
//! ```text
//! chunk 0: 64 slots │ chunk 1: 128 │ chunk 2: 256 …      never moved, never given back
//! slot:  generation : 32 │ next free : 32 │ value
//! lane:  tag : 32 │ index + 1 : 32  ──▶ slot ──▶ slot …   last freed, first taken
//!        slots that were never used: from … to
//! ```
//! Taking and freeing a slot is one compare-and-swap each; only new slots take a lock. The tag
//! moves with every change of the list's head, so that a head which went and came back is seen.
//!
//! Threads that name different lanes share no cache line that is written: the lists are a lane's own,
//! and new slots come to a lane about a page at a time. A lane without a slot takes those that others
//! have freed before the table grows. The memory of a chunk is not touched before its slots are needed,
//! and then by the lane that gets them, without a lock: others make theirs meanwhile, and wait only with
//! showing them, so that `ready` goes up in order.
//!
//! # Invariants
//! - S1  a slot's generation is odd while the slot is in use
//! - S2  a slot is in one free list, or in use, or kept unused by one lane, or above `ready`, or at its
//!   last generation
//! - S3  slots below `ready` are made and their chunks published; those from there to `used` are being
//!   made by the lanes that they were given to

use crate::SpinLock;
use crate::primitive::{AtomicPtr, AtomicU32, AtomicU64, Ordering, spin_loop};
use core::alloc::Layout;

/// Slots in the first chunk; each later chunk doubles.
const FIRST: u32 = if cfg!(loom) { 2 } else { 64 };
const CHUNKS: usize = if cfg!(loom) { 2 } else { 26 };
/// The first is for who names no lane: for them indices are dense.
const LANES: usize = if cfg!(loom) { 2 } else { 33 };
/// A slot that has reached it is not used again. Small in tests.
const LAST_GENERATION: u32 = if cfg!(any(test, loom)) {
    6
} else {
    u32::MAX - 1
};

/// Names a slot and one of its lives. Never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    index: u32,
    /// Odd while the slot is in use.
    generation: u32,
}

impl Key {
    /// The key as one nonzero number, for atomics.
    #[inline]
    pub fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key that [`to_bits`](Self::to_bits) made; `None` for 0.
    #[inline]
    pub fn from_bits(bits: u64) -> Option<Key> {
        (bits != 0).then_some(Key {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        })
    }

    /// Position of the slot: small, dense, reused.
    #[inline]
    pub fn index(self) -> u32 {
        self.index
    }
}

/// No slot can be had: no memory, or 2³² are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted;

/// A slot: what finds it first, so that this lies on the value's first cache line.
#[derive(Debug)]
#[repr(C)]
struct Slot<T> {
    /// Odd while in use.
    generation: AtomicU32,
    /// The slot after this one in the free list, plus one; 0 for none.
    next: AtomicU32,
    value: T,
}

/// A table whose slots keep their address and type for as long as it lives.
///
/// A freed slot may be taken again for another `T`-shaped thing, never for anything else, so a
/// reader that comes late reads a `T` and can find out that it is not the one it looked for.
/// `T` must therefore change through its own cells only; it is made by `Default` once per slot and
/// not dropped when the slot is freed.
///
/// A slot lives 2³¹ times and is then left alone, so a key is never valid for another life.
#[derive(Debug)]
pub struct Slots<T> {
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    lanes: [Lane; LANES],
    /// Slots that can be looked at: made, in use or not.
    ready: AtomicU32,
    /// Slots that lanes were ever given.
    used: SpinLock<u32>,
}

/// One of several places where slots come from; see the module's picture.
#[derive(Debug)]
#[repr(align(64))]
struct Lane {
    /// The free list's head.
    free: AtomicU64,
    /// Indices that were never used: the next one, and the first that is another's.
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

// SAFETY: values are shared between threads as `&T` and dropped by the table's owner.
unsafe impl<T: Send + Sync> Sync for Slots<T> {}
// SAFETY: the table owns its chunks.
unsafe impl<T: Send> Send for Slots<T> {}

impl<T: Default> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn place(index: u32) -> (usize, usize) {
    let n = index / FIRST + 1;
    let chunk = n.ilog2();
    (
        chunk as usize,
        (index - FIRST * ((1 << chunk) - 1)) as usize,
    )
}

/// The lane of a number.
#[inline]
fn named(number: usize) -> usize {
    1 + number % (LANES - 1)
}

/// The head of a free list that begins with `first` (an index plus one) and follows `before`.
fn head(before: u64, first: u32) -> u64 {
    ((before >> 32) + 1) << 32 | u64::from(first)
}

impl<T> Slots<T> {
    /// Bytes of a slot.
    pub const SLOT_BYTES: usize = size_of::<Slot<T>>();
    /// Where in its slot a value lies. Chunks begin with a cache line.
    pub const VALUE_OFFSET: usize = core::mem::offset_of!(Slot<T>, value);

    /// Looks a slot up. `None` if the key's life is over.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slot(key.index)?;
        // ORDERING: Acquire, pairs with the Release in `insert`.
        (slot.generation.load(Ordering::Acquire) == key.generation).then_some(&slot.value)
    }

    /// The key of the slot at `index` (see [`Key::index`]), if it is in use.
    #[inline]
    pub fn key_at(&self, index: u32) -> Option<Key> {
        // ORDERING: Acquire, pairs with the Release in `insert`.
        let generation = self.slot(index)?.generation.load(Ordering::Acquire);
        (generation & 1 == 1).then_some(Key { index, generation })
    }

    /// Ends the life that `key` names. False if it was over.
    pub fn remove(&self, key: Key) -> bool {
        self.remove_to(key, 0)
    }

    /// As [`remove`](Self::remove); the slot goes to this lane, whatever the number.
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
        // ORDERING: Release, pairs with the Acquire in `insert`: the next life sees this one's end.
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
            // ORDERING: Relaxed; published by the exchange.
            slot.next.store(free as u32, Ordering::Relaxed);
            let pushed = head(free, index + 1);
            // ORDERING: Release, pairs with the Acquire in `pop`: it sees `next`.
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
            // If another thread takes this slot first, `next` may be of another list; then the tag
            // has moved and the exchange fails.
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

    /// Number of slots in use. Counts them one by one: a counter would be a cache line that every
    /// insertion and removal writes.
    pub fn len(&self) -> usize {
        self.keys().count()
    }

    /// True where no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.keys().next().is_none()
    }

    /// Keys of the slots in use, in order of their index.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        // ORDERING: Relaxed; `key_at` looks for itself.
        let ready = self.ready.load(Ordering::Relaxed);
        (0..ready).filter_map(|index| self.key_at(index))
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        // ORDERING: Acquire, pairs with the Release in `grow`: the chunk and the slot are visible.
        if index >= self.ready.load(Ordering::Acquire) {
            return None;
        }
        let (chunk, at) = place(index);
        // ORDERING: Relaxed; published with `ready`.
        let base = self.chunks.get(chunk)?.load(Ordering::Relaxed);
        // SAFETY: by S3 the chunk is there, where it stays, and the slot in it is made.
        Some(unsafe { &*base.add(at) })
    }
}

impl<T: Default> Slots<T> {
    /// An empty table.
    pub fn new() -> Self {
        Self {
            chunks: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
            lanes: core::array::from_fn(|_| Lane::new()),
            ready: AtomicU32::new(0),
            used: SpinLock::new(0),
        }
    }

    /// Takes a slot. Its value is whatever its last life left there, or `T::default()`.
    ///
    /// # Errors
    /// If there is no memory for more slots, or there are 2³² of them.
    pub fn insert(&self) -> Result<Key, Exhausted> {
        self.insert_from(0)
    }

    /// As [`insert`](Self::insert), from this lane, whatever the number. Threads that take and free
    /// slots at the same time do not disturb each other where they name different ones.
    ///
    /// # Errors
    /// As for `insert`.
    #[inline]
    pub fn insert_in(&self, lane: usize) -> Result<Key, Exhausted> {
        self.insert_from(named(lane))
    }

    fn insert_from(&self, number: usize) -> Result<Key, Exhausted> {
        let index = match self.pop(&self.lanes[number]) {
            Some(index) => index,
            None => self.fresh(number)?,
        };
        let slot = self.slot(index).ok_or(Exhausted)?;
        // ORDERING: Acquire, pairs with the Release in `remove`.
        let generation = slot.generation.load(Ordering::Acquire) + 1;
        // ORDERING: Release, pairs with the Acquire in `get`.
        slot.generation.store(generation, Ordering::Release);
        Ok(Key { index, generation })
    }

    /// A slot for a lane that has no free one.
    #[cold]
    fn fresh(&self, number: usize) -> Result<u32, Exhausted> {
        let lane = &self.lanes[number];
        let mut unused = lane.unused.lock();
        let (next, end) = *unused;
        if next < end {
            *unused = (next + 1, end);
            return Ok(next);
        }
        // Another thread may have freed one while we waited, or freed it to another lane.
        if let Some(index) = self.lanes.iter().find_map(|lane| self.pop(lane)) {
            return Ok(index);
        }
        let (first, end) = self.grow(if number == 0 { 1 } else { Self::BATCH })?;
        *unused = (first + 1, end);
        Ok(first)
    }

    /// New slots that a lane with a number takes at a time: about a page of them.
    const BATCH: u32 = if cfg!(any(test, loom)) {
        2
    } else if Self::SLOT_BYTES < 4096 / 32 {
        (4096 / Self::SLOT_BYTES) as u32
    } else {
        32
    };

    /// Makes slots that no lane has had: up to `count` of them, those of one chunk.
    fn grow(&self, count: u32) -> Result<(u32, u32), Exhausted> {
        let (base, first, end) = self.take(count)?;
        for at in 0..end - first {
            let slot = Slot {
                generation: AtomicU32::new(0),
                next: AtomicU32::new(0),
                value: T::default(),
            };
            // SAFETY: within the chunk's memory, and by S3 nobody else looks there yet.
            unsafe { base.add(at as usize).write(slot) };
        }
        // ORDERING: Acquire, pairs with the Release below: what is ready before ours stays visible to
        // who sees that ours is.
        while self.ready.load(Ordering::Acquire) != first {
            spin_loop();
        }
        // ORDERING: Release, pairs with the Acquire in `slot`.
        self.ready.store(end, Ordering::Release);
        Ok((first, end))
    }

    /// Gives out indices, and the memory for their slots.
    fn take(&self, count: u32) -> Result<(*mut Slot<T>, u32, u32), Exhausted> {
        let mut used = self.used.lock();
        let first = *used;
        let (chunk, at) = place(first);
        let cell = self.chunks.get(chunk).ok_or(Exhausted)?;
        let len = FIRST << chunk;
        // ORDERING: Relaxed, here and below; changed under the lock, published with `ready`.
        let mut base = cell.load(Ordering::Relaxed);
        if base.is_null() {
            base = Self::allocate(len as usize)?;
            cell.store(base, Ordering::Relaxed);
        }
        *used = first + count.min(len - at as u32);
        // SAFETY: `at` is below the chunk's length.
        Ok((unsafe { base.add(at) }, first, *used))
    }

    /// Memory for a chunk, at the beginning of a cache line.
    fn allocate(len: usize) -> Result<*mut Slot<T>, Exhausted> {
        let layout = chunk_layout::<T>(len).ok_or(Exhausted)?;
        // SAFETY: a slot has at least its generation, so the layout is not empty.
        let base: *mut Slot<T> = unsafe { alloc::alloc::alloc(layout) }.cast();
        if base.is_null() {
            return Err(Exhausted);
        }
        Ok(base)
    }
}

/// The layout of a chunk: slots whose size divides that of a cache line, or is a multiple of it, lie
/// in as few lines as they can.
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
                // SAFETY: by S3 so many were made, and nobody borrows us.
                unsafe { slots.drop_in_place() };
                if let Some(layout) = chunk_layout::<T>(len) {
                    // SAFETY: allocated with this layout, which could be had then.
                    unsafe { alloc::alloc::dealloc(base.cast(), layout) };
                }
            }
        }
    }
}
