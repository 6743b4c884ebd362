//! The memory of a table of slots: chunks of about a page, which are found by number in a directory.
//!
//! A lookup reads the directory and then the chunk, without a lock. The directory is replaced by one
//! of twice the size when it is full; lookups may still read the old one, which is therefore kept.
//! Chunks and old directories are freed only by a caller that borrows the table mutably, so a lookup
//! needs no registration: the borrow checker proves that none is under way.
//!
//! A freed chunk leaves its number and the generation from which its slots continue if it is
//! allocated again, so no key becomes valid a second time. Until then, its entry points to the
//! *graveyard*: a chunk whose slots are never in use. A lookup thus need not tell freed chunks apart.
//!
//! # Picture
//! ```text
//! directory ──▶ chunk 0 │ chunk 1 │ graveyard │ chunk 3 │ null │ null │ …
//!                 │                   freed              not below `bound`
//!                 ▼
//!               slot │ slot │ …
//! ```
//!
//! # Invariants
//! - C1  an entry for an index below `bound` points to a chunk whose slots are all initialized
//! - C2  the current directory has an entry for every index below `bound`
//! - C3  chunks are freed, and entries change to the graveyard, only while the table is borrowed
//!   mutably

use crate::primitive::{AtomicPtr, AtomicU32, Ordering};
use crate::spin::SpinLock;
use alloc::alloc::{Layout, alloc, dealloc};
use alloc::vec::Vec;
use core::ptr::null_mut;

/// No memory is available for a new object, or the table for such objects is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory;

/// Number of entries in the first directory.
const FIRST_DIRECTORY: usize = if cfg!(any(test, loom)) { 1 } else { 8 };

/// Chunks of slots; see the module documentation.
#[derive(Debug)]
pub(crate) struct Chunks<S> {
    /// The entries of the current directory. An entry is the address that slot 0 would have if the
    /// chunk continued below its first slot, so that a lookup adds the whole index to it.
    directory: AtomicPtr<AtomicPtr<S>>,
    /// A number above every index of a slot so far.
    bound: AtomicU32,
    growth: SpinLock<Growth<S>>,
}

/// What changes when a chunk is added.
#[derive(Debug)]
struct Growth<S> {
    directory: Vec<AtomicPtr<S>>,
    /// For each freed chunk, the generation from which its slots continue.
    generations: Vec<u32>,
    /// Directories that lookups may still read.
    outgrown: Vec<Vec<AtomicPtr<S>>>,
    /// Number of the chunk to consider next; all below it are allocated.
    next: usize,
    /// The chunk to which the entries of freed chunks point; null until one has been freed.
    graveyard: *mut S,
}

// SAFETY: threads share slots as `&S`, and the owner of the chunks drops them.
unsafe impl<S: Send + Sync> Sync for Chunks<S> {}
// SAFETY: the table owns its chunks.
unsafe impl<S: Send> Send for Chunks<S> {}

impl<S> Growth<S> {
    /// Returns the chunk with a number; null if it was never allocated.
    fn chunk(&self, number: usize) -> *mut S {
        // ORDERING: Relaxed; the caller holds the lock, under which entries change.
        let entry = self.directory[number].load(Ordering::Relaxed);
        match entry.is_null() {
            true => entry,
            false => entry.wrapping_add(number * Chunks::<S>::LEN as usize),
        }
    }

    /// True if the chunk with a number is not allocated.
    fn is_hole(&self, number: usize) -> bool {
        let chunk = self.chunk(number);
        chunk.is_null() || chunk == self.graveyard
    }

    fn set(&self, number: usize, chunk: *mut S) {
        let entry = chunk.wrapping_sub(number * Chunks::<S>::LEN as usize);
        // ORDERING: Release, pairs with the Acquire in `get`: the slots are visible.
        self.directory[number].store(entry, Ordering::Release);
    }
}

impl<S> Chunks<S> {
    /// Number of slots in a chunk: as many as fit in a page, rounded down to a power of two, or one
    /// if few fit, because most tables of large objects have few of them.
    pub(crate) const LEN: u32 = match 4096 / size_of::<S>() {
        _ if cfg!(any(test, loom)) => 2,
        0..8 => 1,
        many => 1 << many.ilog2(),
    };

    pub(crate) fn new() -> Self {
        Chunks {
            directory: AtomicPtr::new(null_mut()),
            bound: AtomicU32::new(0),
            growth: SpinLock::new(Growth {
                directory: Vec::new(),
                generations: Vec::new(),
                outgrown: Vec::new(),
                next: 0,
                graveyard: null_mut(),
            }),
        }
    }

    /// Returns a number above every index of a slot so far. It never decreases.
    #[inline]
    pub(crate) fn bound(&self) -> u32 {
        // ORDERING: Acquire, pairs with the Release in `place`: by C1 and C2, the directory that is
        // read next has a chunk for each index below the bound.
        self.bound.load(Ordering::Acquire)
    }

    /// Returns the slot at `index`; one that is not in use if its chunk is freed, and `None` if its
    /// chunk was never allocated.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&S> {
        if index >= self.bound() {
            return None;
        }
        // ORDERING: Acquire, pairs with the Release in `enlarge`: the entries are visible.
        let directory = self.directory.load(Ordering::Acquire);
        // SAFETY: by C2 the directory has this entry, and by C3 it is not freed while `self` is
        // borrowed.
        let entry = unsafe { &*directory.add((index / Self::LEN) as usize) };
        // ORDERING: Acquire, pairs with the Release in `set`: the slots are visible.
        let slot = entry.load(Ordering::Acquire).wrapping_add(index as usize);
        // SAFETY: by C1 the slot is initialized, and by C3 it is not freed while `self` is borrowed.
        Some(unsafe { &*slot })
    }

    /// Adds a chunk, and returns the index of its first slot. `make` gets the generation with which
    /// each slot begins.
    #[cold]
    pub(crate) fn grow(&self, make: impl Fn(u32) -> S) -> Result<u32, OutOfMemory> {
        let layout = Self::layout();
        // SAFETY: a slot has at least its generation, so the layout is not empty.
        let chunk: *mut S = unsafe { alloc(layout) }.cast();
        if chunk.is_null() {
            return Err(OutOfMemory);
        }
        for at in 0..Self::LEN as usize {
            // SAFETY: the slot is within the chunk, which no other thread knows yet.
            unsafe { chunk.add(at).write(make(0)) };
        }
        self.place(chunk, make).inspect_err(|_| {
            // SAFETY: just made, and not in the directory.
            unsafe { Self::free(chunk) };
        })
    }

    /// Gives a new chunk the lowest number that is not allocated; returns the index of its first slot.
    fn place(&self, chunk: *mut S, make: impl Fn(u32) -> S) -> Result<u32, OutOfMemory> {
        let mut growth = self.growth.lock();
        let len = growth.directory.len();
        let number = (growth.next..len).find(|number| growth.is_hole(*number));
        let number = number.unwrap_or(len);
        let above = u32::try_from(number + 1).ok();
        let above = above.and_then(|above| above.checked_mul(Self::LEN));
        let above = above.ok_or(OutOfMemory)?;
        if number == len {
            self.enlarge(&mut growth)?;
        }
        let generation = growth.generations[number];
        if generation != 0 {
            // SAFETY: the slots are initialized, and no other thread knows the chunk yet.
            let slots = unsafe { core::slice::from_raw_parts_mut(chunk, Self::LEN as usize) };
            slots.fill_with(|| make(generation));
        }
        growth.set(number, chunk);
        growth.next = number + 1;
        // ORDERING: Relaxed; changes only under the lock.
        if self.bound.load(Ordering::Relaxed) < above {
            // ORDERING: Release, pairs with the Acquire in `bound`.
            self.bound.store(above, Ordering::Release);
        }
        Ok(above - Self::LEN)
    }

    fn enlarge(&self, growth: &mut Growth<S>) -> Result<(), OutOfMemory> {
        let len = FIRST_DIRECTORY.max(2 * growth.directory.len());
        let mut larger = Vec::new();
        let more = len - growth.generations.len();
        let room = larger.try_reserve_exact(len);
        let room = room.and(growth.generations.try_reserve_exact(more));
        let room = room.and(growth.outgrown.try_reserve(1));
        room.map_err(|_| OutOfMemory)?;
        growth.generations.resize(len, 0);
        // ORDERING: Relaxed; the lock is held.
        let entries = growth.directory.iter().map(|e| e.load(Ordering::Relaxed));
        larger.extend(entries.map(AtomicPtr::new));
        larger.resize_with(len, || AtomicPtr::new(null_mut()));
        // ORDERING: Release, pairs with the Acquire in `get`.
        self.directory
            .store(larger.as_ptr().cast_mut(), Ordering::Release);
        let before = core::mem::replace(&mut growth.directory, larger);
        growth.outgrown.push(before);
        Ok(())
    }

    /// Frees the chunks for which `judge` returns the generation from which their slots continue, and
    /// old directories. `judge` gets each chunk with the index of its first slot, highest first. The
    /// first chunk to be freed becomes the graveyard, with slots from `make`.
    pub(crate) fn shrink(
        &mut self,
        make: impl Fn(u32) -> S,
        mut judge: impl FnMut(u32, &mut [S]) -> Option<u32>,
    ) {
        let mut growth = self.growth.lock();
        growth.outgrown = Vec::new();
        growth.next = 0;
        for number in (0..growth.directory.len()).rev() {
            if growth.is_hole(number) {
                continue;
            }
            let chunk = growth.chunk(number);
            // SAFETY: by C1 the slots are initialized, and the table is borrowed mutably.
            let slots = unsafe { core::slice::from_raw_parts_mut(chunk, Self::LEN as usize) };
            let Some(generation) = judge(number as u32 * Self::LEN, slots) else {
                continue;
            };
            growth.generations[number] = generation;
            if growth.graveyard.is_null() {
                slots.fill_with(|| make(0));
                growth.graveyard = chunk;
                continue;
            }
            growth.set(number, growth.graveyard);
            // SAFETY: the table is borrowed mutably, and the directory no longer has the chunk.
            unsafe { Self::free(chunk) };
        }
    }

    /// Drops the slots of a chunk and frees its memory.
    ///
    /// # Safety
    /// `grow` made the chunk, and nothing refers to it.
    unsafe fn free(chunk: *mut S) {
        let slots = core::ptr::slice_from_raw_parts_mut(chunk, Self::LEN as usize);
        // SAFETY: the caller's promise; the slots are initialized, by C1.
        unsafe {
            slots.drop_in_place();
            dealloc(chunk.cast(), Self::layout());
        }
    }

    /// Returns the layout of a chunk, which is aligned to a cache line: slots whose size divides the
    /// size of a cache line, or is a multiple of it, touch as few lines as possible.
    fn layout() -> Layout {
        let slots = Layout::array::<S>(Self::LEN as usize);
        let aligned = slots.and_then(|slots| slots.align_to(64));
        aligned.expect("a chunk is about a page")
    }
}

impl<S> Drop for Chunks<S> {
    fn drop(&mut self) {
        let growth = self.growth.lock();
        let numbers = 0..growth.directory.len();
        let allocated = numbers.filter(|number| !growth.is_hole(*number));
        let graveyard = Some(growth.graveyard).filter(|chunk| !chunk.is_null());
        for chunk in allocated
            .map(|number| growth.chunk(number))
            .chain(graveyard)
        {
            // SAFETY: the table is borrowed mutably, and nobody uses its directory any more.
            unsafe { Self::free(chunk) };
        }
    }
}
