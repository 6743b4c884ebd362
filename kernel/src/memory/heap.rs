//! The kernel's own heap: a fixed memory region, with a count of the bytes that are free.
//!
//! A failed allocation stops the kernel, because most of Rust's collections cannot report the
//! failure. Therefore, calls that need kernel memory are refused when little of the heap is free
//! ([`is_low`]), and a page fault first kills a process when almost nothing is free
//! ([`is_exhausted`]). Free memory may be in small pieces, so allocations of more than a few
//! kilobytes report their failure ([`zeroed`], `try_reserve`).

use crate::failure::Failure;
use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicUsize, Ordering};
use linux_raw_sys::errno::ENOMEM;
use talc::base::Talc;
use talc::source::Manual;
use talc::{DefaultBinning, TalcLock};

struct Counting {
    heap: TalcLock<spin::Mutex<()>, Manual>,
    /// Number of free bytes: excludes what the allocator itself needs for each allocation, which
    /// for small ones is as much as a half.
    free: AtomicUsize,
}

#[global_allocator]
static HEAP: Counting = Counting {
    heap: TalcLock::new(Manual),
    free: AtomicUsize::new(0),
};
static SIZE: AtomicUsize = AtomicUsize::new(0);

impl Counting {
    /// Calls `f` with the locked allocator, then stores the number of free bytes.
    fn with<R>(&self, f: impl FnOnce(&mut Talc<Manual, DefaultBinning>) -> R) -> R {
        let mut heap = self.heap.lock();
        let result = f(&mut heap);
        // ORDERING: Relaxed; a statistic, written under the lock.
        self.free
            .store(heap.counters().available_bytes, Ordering::Relaxed);
        result
    }
}

// SAFETY: every call goes to `Talc`, which is an allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let pointer = self.with(|heap| unsafe { heap.allocate(layout) });
        pointer.map_or(null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        self.with(|heap| unsafe { heap.deallocate(pointer, layout) });
    }
}

/// Gives the memory at `start` to the heap; must be called only once.
///
/// # Safety
/// The memory is mapped and nothing else uses it.
pub unsafe fn start(start: *mut u8, size: usize) {
    // SAFETY: as the caller promises.
    HEAP.with(|heap| unsafe { heap.claim(start, size) });
    // ORDERING: Relaxed; the other CPUs have not started yet.
    SIZE.store(size, Ordering::Relaxed);
}

/// True if less than `1 / parts` of the heap is free.
fn has_less_than(parts: usize) -> bool {
    // ORDERING: Relaxed; a statistic.
    HEAP.free.load(Ordering::Relaxed) < size() / parts
}

/// Returns the number of bytes of the heap.
pub fn size() -> usize {
    // ORDERING: Relaxed; does not change any more.
    SIZE.load(Ordering::Relaxed)
}

/// Returns the number of bytes of the heap that are in use.
pub fn bytes_in_use() -> usize {
    // ORDERING: Relaxed; a statistic.
    size() - HEAP.free.load(Ordering::Relaxed)
}

/// True if so little of the heap is free that calls that need kernel memory are refused.
pub fn is_low() -> bool {
    has_less_than(6)
}

/// True if so little of the heap is free that even a page fault must first free some memory.
pub fn is_exhausted() -> bool {
    has_less_than(32)
}

/// Returns a vector of `len` zero bytes.
///
/// # Errors
/// ENOMEM.
pub fn zeroed(len: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| ENOMEM)?;
    bytes.resize(len, 0);
    Ok(bytes)
}
