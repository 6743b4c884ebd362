//! The kernel's own heap: a fixed memory region, with a count of the bytes in use.
//!
//! A failed allocation stops the kernel, because Rust's collections cannot report the failure.
//! Therefore, calls that need kernel memory are refused when little of the heap is free
//! ([`is_low`]), and a page fault first kills a process when almost nothing is free
//! ([`is_exhausted`]).

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};
use talc::TalcLock;
use talc::source::Manual;

struct Counting {
    heap: TalcLock<spin::Mutex<()>, Manual>,
    used: AtomicUsize,
}

#[global_allocator]
static HEAP: Counting = Counting {
    heap: TalcLock::new(Manual),
    used: AtomicUsize::new(0),
};
static SIZE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to `TalcLock`, which is an allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let pointer = unsafe { self.heap.alloc(layout) };
        if !pointer.is_null() {
            // ORDERING: Relaxed; a statistic.
            self.used.fetch_add(layout.size(), Ordering::Relaxed);
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // ORDERING: Relaxed; a statistic.
        self.used.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { self.heap.dealloc(pointer, layout) };
    }
}

/// Gives the memory at `start` to the heap; must be called only once.
///
/// # Safety
/// The memory is mapped and nothing else uses it.
pub unsafe fn start(start: *mut u8, size: usize) {
    // SAFETY: as the caller promises.
    unsafe { HEAP.heap.lock().claim(start, size) };
    // ORDERING: Relaxed; the other CPUs have not started yet.
    SIZE.store(size, Ordering::Relaxed);
}

/// Returns the number of bytes in use.
pub fn used() -> usize {
    // ORDERING: Relaxed; a statistic.
    HEAP.used.load(Ordering::Relaxed)
}

/// True if less than `1 / parts` of the heap is free.
fn has_less_than(parts: usize) -> bool {
    // ORDERING: Relaxed; the size does not change any more.
    let size = SIZE.load(Ordering::Relaxed);
    used() > size - size / parts
}

/// True if so little of the heap is free that calls that need kernel memory are refused.
pub fn is_low() -> bool {
    has_less_than(6)
}

/// True if so little of the heap is free that even a page fault must first free some memory.
pub fn is_exhausted() -> bool {
    has_less_than(32)
}
