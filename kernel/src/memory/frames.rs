//! Physical page frames: a fixed pool, and the direct map through which the kernel reaches them.
//!
//! Free frames form a list through their own first bytes; frames that were never used are taken
//! from the end of the pool. [`Frame`] owns one frame and gives it back when dropped.

use core::sync::atomic::{AtomicUsize, Ordering};
use spin::Mutex;

/// Where the direct map begins: physical address 0.
const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// Size of a frame in bytes.
pub const FRAME_SIZE: usize = 4096;

/// The bytes of one page.
pub type Page = [u8; FRAME_SIZE];

/// Returns the address at which the kernel sees a physical address below 4 GiB.
pub fn direct(physical: u64) -> u64 {
    debug_assert!(physical >> 32 == 0);
    DIRECT_MAP + physical
}

/// Returns a pointer to a physical address below 4 GiB.
pub fn pointer_to<T>(physical: u64) -> *mut T {
    direct(physical) as *mut T
}

struct Pool {
    /// Physical address of the first free frame of the list; 0 for none.
    list: u64,
    /// Frames that were never used.
    unused: core::ops::Range<u64>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    list: 0,
    unused: 0..0,
});
static FREE: AtomicUsize = AtomicUsize::new(0);
static TOTAL: AtomicUsize = AtomicUsize::new(0);

/// Gives the physical memory `range`, whole frames, to the pool; called once.
///
/// # Safety
/// Nothing else uses the memory from now on.
pub unsafe fn add_memory(range: core::ops::Range<u64>) {
    let frames = (range.end - range.start) as usize / FRAME_SIZE;
    POOL.lock().unused = range;
    // ORDERING: Relaxed; the other CPUs have not started yet.
    FREE.store(frames, Ordering::Relaxed);
    TOTAL.store(frames, Ordering::Relaxed);
}

/// Returns the number of free frames.
pub fn free_frames() -> usize {
    // ORDERING: Relaxed; a number that may be out of date at once.
    FREE.load(Ordering::Relaxed)
}

/// True if there may be too few free frames for one fault.
pub fn is_low() -> bool {
    const RESERVE: usize = 128;
    free_frames() < RESERVE
}

/// Returns the number of frames in the pool.
pub fn total_frames() -> usize {
    // ORDERING: Relaxed; does not change.
    TOTAL.load(Ordering::Relaxed)
}

/// A page frame that is in use.
#[derive(Debug)]
pub struct Frame(u64);

impl Frame {
    /// Takes a frame with any contents; `None` if all are in use.
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
                // SAFETY: a free frame's first word is the list's next frame.
                pool.list = unsafe { *pointer_to::<u64>(at) };
                at
            }
        };
        // ORDERING: Relaxed; changed under the pool's lock.
        FREE.fetch_sub(1, Ordering::Relaxed);
        Some(Frame(at))
    }

    /// Takes a frame and fills it with zeros; `None` if all are in use.
    pub fn zeroed() -> Option<Frame> {
        let frame = Frame::take()?;
        // SAFETY: nobody else knows the frame yet.
        unsafe { pointer_to::<Page>(frame.0).write_bytes(0, 1) };
        Some(frame)
    }

    /// Takes a frame and copies the bytes of the frame at the physical address `from`.
    ///
    /// Programs may write to `from` at the same time; the copy then has some of their bytes.
    pub fn copy_of(from: u64) -> Option<Frame> {
        let frame = Frame::take()?;
        // SAFETY: both are whole frames, and the new one is nobody else's.
        unsafe { pointer_to::<Page>(frame.0).copy_from_nonoverlapping(pointer_to(from), 1) };
        Some(frame)
    }

    /// Returns the physical address.
    pub fn address(&self) -> u64 {
        self.0
    }

    /// Gives up ownership and returns the physical address.
    pub fn into_address(self) -> u64 {
        core::mem::ManuallyDrop::new(self).0
    }

    /// Takes ownership of a frame again.
    ///
    /// # Safety
    /// `address` came from [`into_address`](Self::into_address), once.
    pub unsafe fn from_address(address: u64) -> Frame {
        Frame(address)
    }

    /// Copies bytes out of the frame, from `offset` on.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= FRAME_SIZE);
        // SAFETY: within the frame; a program that writes to it at once makes the bytes
        // indeterminate, which is what it asked for.
        unsafe {
            core::ptr::copy(
                pointer_to::<u8>(self.0).add(offset),
                to.as_mut_ptr(),
                to.len(),
            )
        };
    }

    /// Copies bytes into the frame, from `offset` on.
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
}

impl Drop for Frame {
    fn drop(&mut self) {
        let mut pool = POOL.lock();
        // SAFETY: the frame is free from here on, so its first word is the list's.
        unsafe { *pointer_to::<u64>(self.0) = pool.list };
        pool.list = self.0;
        // ORDERING: Relaxed; changed under the pool's lock.
        FREE.fetch_add(1, Ordering::Relaxed);
    }
}
