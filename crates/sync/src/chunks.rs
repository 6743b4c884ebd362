//! The memory of a table of slots: chunks of about a page, which are found by number in a directory.
//!
//! A lookup reads the directory and then the chunk, without a lock. The directory is replaced by one
//! of twice the size when it is full; lookups may still read the old one, which is therefore kept.
//! Chunks and old directories are freed only by a caller that borrows the table mutably, so a lookup
//! needs no registration: the borrow checker proves that none is under way.
//!
//! A freed chunk leaves a number in the directory, from which the generations of its slots continue
//! if it is allocated again, so no key becomes valid a second time.
//!
//! # Picture
//! ```text
//! directory ──▶ chunk 0 │ chunk 1 │ 2 × generation + 1 │ chunk 3 │ 1 │ 1 │ …
//!                 │                  freed                          never allocated
//!                 ▼
//!               slot │ slot │ …
//! ```
//!
//! # Invariants
//! - C1  an entry of the directory is a pointer to a chunk whose slots are all initialized, or odd
//! - C2  the current directory has an entry for every index below `bound`
//! - C3  chunks are freed, and entries become odd, only while the table is borrowed mutably

use crate::primitive::{AtomicPtr, AtomicU32, Ordering};
use crate::spin::SpinLock;
use alloc::alloc::{Layout, alloc, dealloc};
use alloc::vec::Vec;
use core::ptr::{null_mut, without_provenance_mut};

/// No memory is available for a new object, or the table for such objects is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory;

/// Number of entries in the first directory.
const FIRST_DIRECTORY: usize = if cfg!(any(test, loom)) { 1 } else { 8 };

/// Chunks of slots; see the module documentation.
#[derive(Debug)]
pub(crate) struct Chunks<S> {
    /// The entries of the current directory.
    directory: AtomicPtr<AtomicPtr<S>>,
    /// A number above every index of a slot so far.
    bound: AtomicU32,
    growth: SpinLock<Growth<S>>,
}

/// What changes when a chunk is added.
#[derive(Debug)]
struct Growth<S> {
    directory: Vec<AtomicPtr<S>>,
    /// Directories that lookups may still read.
    outgrown: Vec<Vec<AtomicPtr<S>>>,
    /// Number of the chunk to consider next; all below it are allocated or taken.
    next: usize,
}

// SAFETY: threads share slots as `&S`, and the owner of the chunks drops them.
unsafe impl<S: Send + Sync> Sync for Chunks<S> {}
// SAFETY: the table owns its chunks.
unsafe impl<S: Send> Send for Chunks<S> {}

/// Returns the entry for a chunk that is not allocated, whose generations begin at `generation`.
fn hole<S>(generation: u32) -> *mut S {
    without_provenance_mut((generation | 1) as usize)
}

/// Returns the generation in an entry, or `None` if the entry points to a chunk.
fn generation_of<S>(entry: *mut S) -> Option<u32> {
    is_hole(entry).then_some(entry.addr() as u32 & !1)
}

#[inline]
fn is_hole<S>(entry: *mut S) -> bool {
    entry.addr() & 1 != 0
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
        const {
            assert!(
                align_of::<S>() > 1,
                "the lowest bit of an address tells holes apart"
            )
        };
        Chunks {
            directory: AtomicPtr::new(null_mut()),
            bound: AtomicU32::new(0),
            growth: SpinLock::new(Growth {
                directory: Vec::new(),
                outgrown: Vec::new(),
                next: 0,
            }),
        }
    }

    /// Returns a number above every index of a slot so far. It never decreases.
    #[inline]
    pub(crate) fn bound(&self) -> u32 {
        // ORDERING: Acquire, pairs with the Release in `reserve`: by C2, the directory that is read
        // next has an entry for each index below the bound.
        self.bound.load(Ordering::Acquire)
    }

    /// Returns the slot at `index`, or `None` if its chunk is not allocated.
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
        // ORDERING: Acquire, pairs with the Release in `grow`: the slots are visible.
        let chunk = entry.load(Ordering::Acquire);
        if is_hole(chunk) {
            return None;
        }
        // SAFETY: by C1 the slot is initialized, and by C3 it is not freed while `self` is borrowed.
        Some(unsafe { &*chunk.add((index % Self::LEN) as usize) })
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
        let (number, generation) = self.reserve().inspect_err(|_| {
            // SAFETY: just allocated with this layout.
            unsafe { dealloc(chunk.cast(), layout) };
        })?;
        for at in 0..Self::LEN as usize {
            // SAFETY: the slot is within the chunk, which no other thread knows yet.
            unsafe { chunk.add(at).write(make(generation)) };
        }
        // ORDERING: Release, pairs with the Acquire in `get`. Under the lock, because otherwise the
        // entry could be copied to a larger directory before it is stored.
        self.growth.lock().directory[number].store(chunk, Ordering::Release);
        Ok(number as u32 * Self::LEN)
    }

    /// Takes the number of a chunk that is not allocated; returns its generation, too.
    fn reserve(&self) -> Result<(usize, u32), OutOfMemory> {
        let mut growth = self.growth.lock();
        loop {
            let number = growth.next;
            let above = u32::try_from(number + 1).ok();
            let above = above.and_then(|above| above.checked_mul(Self::LEN));
            let above = above.ok_or(OutOfMemory)?;
            if number == growth.directory.len() {
                self.enlarge(&mut growth)?;
            }
            growth.next += 1;
            // ORDERING: Relaxed, here and below; only a holder of the lock changes these.
            let entry = growth.directory[number].load(Ordering::Relaxed);
            let Some(generation) = generation_of(entry) else {
                continue;
            };
            if self.bound.load(Ordering::Relaxed) < above {
                // ORDERING: Release, pairs with the Acquire in `bound`.
                self.bound.store(above, Ordering::Release);
            }
            return Ok((number, generation));
        }
    }

    fn enlarge(&self, growth: &mut Growth<S>) -> Result<(), OutOfMemory> {
        let len = FIRST_DIRECTORY.max(2 * growth.directory.len());
        let mut larger = Vec::new();
        let room = larger.try_reserve_exact(len);
        let place = growth.outgrown.try_reserve(1);
        room.and(place).map_err(|_| OutOfMemory)?;
        // ORDERING: Relaxed; the lock is held.
        let entries = growth.directory.iter().map(|e| e.load(Ordering::Relaxed));
        larger.extend(entries.map(AtomicPtr::new));
        larger.resize_with(len, || AtomicPtr::new(hole(0)));
        // ORDERING: Release, pairs with the Acquire in `get`.
        self.directory
            .store(larger.as_ptr().cast_mut(), Ordering::Release);
        let before = core::mem::replace(&mut growth.directory, larger);
        growth.outgrown.push(before);
        Ok(())
    }

    /// Frees the chunks for which `judge` returns the generation from which their slots continue, and
    /// old directories. `judge` gets each chunk with the index of its first slot, highest first.
    pub(crate) fn shrink(&mut self, mut judge: impl FnMut(u32, &mut [S]) -> Option<u32>) {
        let mut growth = self.growth.lock();
        growth.outgrown = Vec::new();
        growth.next = 0;
        for (number, entry) in growth.directory.iter().enumerate().rev() {
            // ORDERING: Relaxed, here and below; the table is borrowed mutably.
            let chunk = entry.load(Ordering::Relaxed);
            if is_hole(chunk) {
                continue;
            }
            // SAFETY: by C1 the slots are initialized, and the table is borrowed mutably.
            let slots = unsafe { core::slice::from_raw_parts_mut(chunk, Self::LEN as usize) };
            if let Some(generation) = judge(number as u32 * Self::LEN, slots) {
                entry.store(hole(generation), Ordering::Relaxed);
                // SAFETY: the table is borrowed mutably, and the directory no longer has the chunk.
                unsafe { Self::free(chunk) };
            }
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
        self.shrink(|_, _| Some(0));
    }
}
