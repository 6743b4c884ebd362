//! The platform of the core: frames and their bytes, and the pages of files in the page cache.
//!
//! The core numbers its frames itself; [`FRAMES`] maps such a number to a physical frame. If memory
//! was full when a number was to get its physical frame, the number has none; the page fault that
//! maps it reports that.

use super::frames::{Frame, pointer_to};
use super::mmu::Hardware;
use crate::files::mapped;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use spin::Once;
use vmarea::types::platform::Environment;
use vmarea::types::{FrameId, Platform};
use vmarea_sync::Spin;

#[cfg(feature = "lock-aligned")]
type Lock = vmarea_sync::FlaggedVmaLock<vmarea_sync::AlignedRwLock>;
#[cfg(feature = "lock-boxed")]
type Lock = vmarea_sync::FlaggedVmaLock<vmarea_sync::BoxedRwLock>;
#[cfg(feature = "lock-flagged")]
type Lock = vmarea_sync::FlaggedVmaLock<vmarea_sync::FlaggedCount>;
#[cfg(feature = "lock-mmap")]
type Lock = vmarea_sync::MmapLockOnly;
#[cfg(not(any(
    feature = "lock-aligned",
    feature = "lock-boxed",
    feature = "lock-flagged",
    feature = "lock-mmap"
)))]
type Lock = vmarea_sync::VmaLock;

/// Name of the kind of lock in each VMA.
pub const LOCK_NAME: &str = <Lock as vmarea_sync::VmaLockKind>::NAME;

/// The environment that this kernel chooses for the core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine;

impl Environment for Machine {
    type VmaLock = Lock;
    type Platform = Memory;
    type Mmu = Hardware;
    type Wait = Spin;
}

/// Number of frame numbers that the core may use in addition to one per physical frame.
///
/// Each lane of the core holds some numbers in reserve.
const SPARE_NUMBERS: usize = 1 << 16;

/// Physical address by frame number; 0 if the number has no physical frame.
static FRAMES: Once<Vec<AtomicU64>> = Once::new();
static ZERO_PAGE: Once<Frame> = Once::new();

/// Prepares the table of frames; called once, before the core is used.
pub fn start() {
    let numbers = super::frames::total_frames() + SPARE_NUMBERS;
    FRAMES.call_once(|| (0..numbers).map(|_| AtomicU64::new(0)).collect());
    ZERO_PAGE.call_once(|| Frame::zeroed().expect("memory for the zero page"));
}

/// Returns the physical address of the shared zero page.
pub fn zero_page() -> u64 {
    ZERO_PAGE.get().map_or(0, Frame::address)
}

fn place(frame: FrameId) -> Option<&'static AtomicU64> {
    FRAMES.get()?.get(frame.index())
}

/// Returns the physical address of a frame of the core; 0 if it has no physical frame.
pub fn physical_address(frame: FrameId) -> u64 {
    // ORDERING: Acquire, pairs with the Release in `fill`.
    place(frame).map_or(0, |at| at.load(Ordering::Acquire))
}

/// Returns the number of frames of the core that have a physical frame.
pub fn frames_in_use() -> usize {
    // ORDERING: Relaxed; a count.
    let is_used = |at: &&AtomicU64| at.load(Ordering::Relaxed) != 0;
    FRAMES
        .get()
        .map_or(0, |all| all.iter().filter(is_used).count())
}

/// Assigns a physical frame to a frame of the core.
fn fill(id: FrameId, frame: Option<Frame>) {
    if let (Some(place), Some(frame)) = (place(id), frame) {
        // ORDERING: Release, pairs with the Acquire in `physical_address`.
        place.store(frame.into_address(), Ordering::Release);
    }
}

/// The physical memory of the machine, as the core uses it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory;

impl Platform for Memory {
    fn zero(&self, frame: FrameId) {
        fill(frame, Frame::zeroed());
    }

    fn copy(&self, to: FrameId, from: FrameId) {
        match physical_address(from) {
            0 => {}
            from => fill(to, Frame::copy_of(from)),
        }
    }

    fn copy_file(&self, to: FrameId, inode: u64, index: u64) {
        let file = mapped::file(inode);
        fill(to, file.and_then(|file| file.copy_of_page(index)));
    }

    fn free(&self, frame: FrameId) {
        let Some(place) = place(frame) else { return };
        // ORDERING: AcqRel; nothing uses the frame after this.
        match place.swap(0, Ordering::AcqRel) {
            0 => {}
            // SAFETY: `fill` gave up the ownership, and the swap returns the address only once.
            address => drop(unsafe { Frame::from_address(address) }),
        }
    }

    fn same(&self, one: FrameId, other: FrameId) -> bool {
        let (one, other) = (physical_address(one), physical_address(other));
        if one == 0 || other == 0 {
            return false;
        }
        // SAFETY: whole frames, which the core has made read-only for the comparison.
        let bytes = |at| unsafe { core::slice::from_raw_parts(pointer_to::<u8>(at), 4096) };
        bytes(one) == bytes(other)
    }

    fn shared_anon(&self, inode: u64, pages: u64) {
        mapped::create_nameless(inode, pages);
    }

    fn punch_hole(&self, inode: u64, first: u64, end: u64) {
        if let Some(file) = mapped::file(inode) {
            file.punch_hole(first, end);
        }
    }

    fn file_is_cached(&self, inode: u64, index: u64) -> bool {
        mapped::file(inode).is_some_and(|file| file.is_cached(index))
    }

    fn file_bring(&self, inode: u64, index: u64) {
        if let Some(file) = mapped::file(inode) {
            file.page_address(index);
        }
    }

    fn file_holds(&self, inode: u64, index: u64) -> bool {
        mapped::file(inode).is_some_and(|file| index < file.size().div_ceil(4096))
    }
}
