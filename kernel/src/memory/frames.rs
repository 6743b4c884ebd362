//! Physical page frames: a fixed pool.
//!
//! The free frames form a linked list; each link is stored in the first bytes of a free frame.
//! Frames that have never been used are taken from the unused part of the pool. [`Frame`] owns one
//! frame and returns it to the pool when dropped.

use crate::cpu::direct_map::pointer_to;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use spin::Mutex;

/// Size of a frame in bytes.
pub const FRAME_SIZE: usize = 4096;

/// The bytes of one page.
pub type Page = [u8; FRAME_SIZE];

struct Pool {
    /// Physical address of the first free frame on the list; 0 if the list is empty.
    list: u64,
    /// Physical addresses of the frames that have never been used.
    unused: core::ops::Range<u64>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    list: 0,
    unused: 0..0,
});
static FREE: AtomicUsize = AtomicUsize::new(0);
static TOTAL: AtomicUsize = AtomicUsize::new(0);

/// Adds the physical memory `range`, which consists of whole frames, to the pool; called once.
///
/// # Safety
/// Nothing else uses this memory from now on.
pub unsafe fn add_memory(range: core::ops::Range<u64>) {
    let frames = (range.end - range.start) as usize / FRAME_SIZE;
    POOL.lock().unused = range;
    // ORDERING: Relaxed; the other CPUs have not started yet.
    FREE.store(frames, Ordering::Relaxed);
    TOTAL.store(frames, Ordering::Relaxed);
}

/// Returns the number of free frames.
pub fn free_frames() -> usize {
    // ORDERING: Relaxed; the number may be outdated at once.
    FREE.load(Ordering::Relaxed)
}

/// Returns the number of frames in the pool.
pub fn total_frames() -> usize {
    // ORDERING: Relaxed; the number does not change any more.
    TOTAL.load(Ordering::Relaxed)
}

/// A page frame in use.
#[derive(Debug)]
pub struct Frame(u64);

impl Frame {
    /// Allocates a frame with arbitrary contents; returns `None` if all frames are in use.
    fn take() -> Option<Frame> {
        let mut pool = POOL.lock();
        let at = match pool.list {
            0 if pool.unused.start == pool.unused.end => return None,
            0 => {
                let at = pool.unused.start;
                pool.unused.start += FRAME_SIZE as u64;
                at
            }
            at => {
                // SAFETY: the first word of a free frame is the address of the next frame on the
                // list.
                pool.list = unsafe { *pointer_to::<u64>(at) };
                at
            }
        };
        // ORDERING: Relaxed; changed under the pool's lock.
        FREE.fetch_sub(1, Ordering::Relaxed);
        Some(Frame(at))
    }

    /// Allocates a frame filled with zeros; returns `None` if all frames are in use.
    pub fn zeroed() -> Option<Frame> {
        let frame = Frame::take()?;
        // SAFETY: nobody else knows the frame yet.
        unsafe { clear(pointer_to(frame.0)) };
        Some(frame)
    }

    /// Allocates a frame and copies the frame at the physical address `from` to it.
    ///
    /// If programs write to the source frame during the copy, the copy contains some of the writes.
    pub fn copy_of(from: u64) -> Option<Frame> {
        let frame = Frame::take()?;
        // SAFETY: both are whole frames, and nothing else uses the new one.
        unsafe { copy(pointer_to(frame.0), pointer_to(from)) };
        Some(frame)
    }

    /// Returns the physical address of the frame.
    pub fn address(&self) -> u64 {
        self.0
    }

    /// Returns the frame's physical address without freeing the frame.
    pub fn into_address(self) -> u64 {
        core::mem::ManuallyDrop::new(self).0
    }

    /// Takes ownership of the frame at a physical address again.
    ///
    /// # Safety
    /// `address` was returned by [`into_address`](Self::into_address) and is passed only once.
    pub unsafe fn from_address(address: u64) -> Frame {
        Frame(address)
    }

    /// Copies bytes out of the frame, starting at `offset`.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= FRAME_SIZE);
        // SAFETY: within the frame; if a program writes to the frame at the same time, the bytes
        // read are indeterminate, as the program must expect.
        unsafe {
            core::ptr::copy(
                pointer_to::<u8>(self.0).add(offset),
                to.as_mut_ptr(),
                to.len(),
            )
        };
    }

    /// Copies bytes into the frame, starting at `offset`.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= FRAME_SIZE);
        // SAFETY: as in `read`.
        unsafe {
            core::ptr::copy(
                from.as_ptr(),
                pointer_to::<u8>(self.0).add(offset),
                from.len(),
            )
        };
    }

    /// Returns the word at `offset`, which is a multiple of 4.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < FRAME_SIZE);
        // SAFETY: an aligned word in the frame, which `self` keeps.
        unsafe { &*pointer_to::<AtomicU32>(self.0 + offset as u64) }
    }
}

/// Clears a page by words, with the instruction that Linux uses on a CPU without `erms`.
///
/// # Safety
/// `page` is valid, and nothing else uses it.
#[doc(alias = "clear_page_rep")]
unsafe fn clear(page: *mut Page) {
    // SAFETY: as the caller promises; the direction flag is clear, as in all Rust code.
    unsafe {
        core::arch::asm!(
            "rep stosq",
            inout("rcx") FRAME_SIZE / 8 => _,
            inout("rdi") page => _,
            in("rax") 0,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies a page by words, with the instruction that Linux uses.
///
/// # Safety
/// Both pages are valid, and nothing else uses the page `to`.
#[doc(alias = "copy_page")]
unsafe fn copy(to: *mut Page, from: *const Page) {
    // SAFETY: as the caller promises; the direction flag is clear, as in all Rust code.
    unsafe {
        core::arch::asm!(
            "rep movsq",
            inout("rcx") FRAME_SIZE / 8 => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let mut pool = POOL.lock();
        // SAFETY: the frame is free from here on, so the list may use its first word.
        unsafe { *pointer_to::<u64>(self.0) = pool.list };
        pool.list = self.0;
        // ORDERING: Relaxed; changed under the pool's lock.
        FREE.fetch_add(1, Ordering::Relaxed);
    }
}
