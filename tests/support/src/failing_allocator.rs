//! Global allocator for tests, which counts bytes, and in which a chosen allocation fails.
//!
//! A test makes [`FailingAllocator`] its global allocator, lists the allocations of an operation
//! with [`record`], and repeats the operation with [`fail`] once per listed allocation, or compares
//! [`allocated_bytes`]. Only allocations of the calling thread count.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};

/// The system's allocator, with allocations that fail on demand.
#[derive(Debug)]
pub struct FailingAllocator;

#[derive(Clone, Copy)]
enum Mode {
    Pass,
    Record,
    /// The allocation that follows this number of successful ones fails.
    Fail(usize),
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Pass) };
    static SITES: RefCell<Vec<Site>> = const { RefCell::new(Vec::new()) };
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

/// Returns the number of bytes that the calling thread has allocated, less those that it has freed.
pub fn allocated_bytes() -> isize {
    BYTES.get()
}

fn count(allocated: usize, freed: usize) {
    BYTES.set(BYTES.get() + allocated as isize - freed as isize);
}

/// The functions that led to an allocation, innermost first.
#[derive(Clone, Debug)]
pub struct Site(Vec<String>);

impl Site {
    fn here() -> Site {
        let text = Backtrace::force_capture().to_string();
        // Every second line names only the file of the function above it.
        let name = |line: &str| Some(line.trim_start().split_once(": ")?.1.to_owned());
        Site(text.lines().filter_map(name).collect())
    }

    /// Returns true if a function whose name contains `name` led to the allocation.
    pub fn passes(&self, name: &str) -> bool {
        self.0.iter().any(|function| function.contains(name))
    }

    /// Returns the innermost function that belongs to a crate of this project.
    pub fn function(&self) -> &str {
        self.function_besides(&[])
    }

    /// Returns the innermost function of this project that is none of `others`.
    pub fn function_besides(&self, others: &[&str]) -> &str {
        let ours = |name: &&String| {
            name.contains("vmarea")
                && !name.contains("failing_allocator")
                && !others.iter().any(|other| name.contains(other))
        };
        self.0.iter().find(ours).map_or("", String::as_str)
    }
}

/// Runs `work` and returns the sites of its allocations, in order.
pub fn record<R>(work: impl FnOnce() -> R) -> (R, Vec<Site>) {
    MODE.set(Mode::Record);
    let result = work();
    MODE.set(Mode::Pass);
    (result, SITES.take())
}

/// Runs `work`, in which the allocation with the number `nth`, counted from 0, fails.
pub fn fail<R>(nth: usize, work: impl FnOnce() -> R) -> R {
    MODE.set(Mode::Fail(nth));
    let result = work();
    MODE.set(Mode::Pass);
    result
}

/// Counts an allocation; returns false if it must fail. Allocations during a panic are not counted:
/// capturing their backtrace would deadlock with the backtrace that the panic is printing.
fn succeeds() -> bool {
    match MODE.get() {
        Mode::Pass => true,
        _ if std::thread::panicking() => true,
        Mode::Record => {
            MODE.set(Mode::Pass);
            let site = Site::here();
            SITES.with_borrow_mut(|sites| sites.push(site));
            MODE.set(Mode::Record);
            true
        }
        Mode::Fail(0) => {
            MODE.set(Mode::Pass);
            false
        }
        Mode::Fail(left) => {
            MODE.set(Mode::Fail(left - 1));
            true
        }
    }
}

// SAFETY: each method passes its arguments on to the system's allocator, or returns null, which
// means that there is no memory.
unsafe impl GlobalAlloc for FailingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !succeeds() {
            return std::ptr::null_mut();
        }
        count(layout.size(), 0);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !succeeds() {
            return std::ptr::null_mut();
        }
        count(layout.size(), 0);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Shrinking a block needs no memory and never fails.
        if size > layout.size() && !succeeds() {
            return std::ptr::null_mut();
        }
        count(size, layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}
