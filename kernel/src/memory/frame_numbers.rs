//! The physical pages behind the core's frame numbers and file pages.
//!
//! The core assigns frame numbers itself; [`FRAMES`] maps a frame number to a physical frame.

use super::frames::{self, Frame};
use super::mapped;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use spin::Once;
use vmarea::types::mmu::MappedPage;
use vmarea::types::{Errno, FrameId};

/// Number of frame numbers that the core may use beyond one for each physical frame.
///
/// They are needed because each of the core's lanes holds some unused numbers in reserve.
const SPARE_NUMBERS: usize = 1 << 16;

/// Physical address for each frame number; 0 if the number is not in use.
static FRAMES: Once<Vec<AtomicU64>> = Once::new();
static ZERO_PAGE: Once<Frame> = Once::new();

/// Initializes the frame table; called once, before the core is used.
pub fn start() {
    let numbers = frames::total_frames() + SPARE_NUMBERS;
    FRAMES.call_once(|| (0..numbers).map(|_| AtomicU64::new(0)).collect());
    ZERO_PAGE.call_once(|| Frame::zeroed().expect("memory for the zero page"));
}

/// Returns the physical address of the shared zero page.
#[inline]
pub fn zero_page() -> u64 {
    ZERO_PAGE.get().map_or(0, Frame::address)
}

#[inline]
fn place(frame: FrameId) -> Option<&'static AtomicU64> {
    FRAMES.get()?.get(frame.index())
}

/// Returns the physical address of one of the core's frames, or 0 if the frame is not in use.
#[inline]
pub fn physical_address(frame: FrameId) -> u64 {
    // ORDERING: Acquire, pairs with the Release in `fill`.
    place(frame).map_or(0, |at| at.load(Ordering::Acquire))
}

/// Returns the number of the core's frames that have a physical frame.
pub fn frames_in_use() -> usize {
    // ORDERING: Relaxed; a count.
    let is_used = |at: &&AtomicU64| at.load(Ordering::Relaxed) != 0;
    FRAMES
        .get()
        .map_or(0, |all| all.iter().filter(is_used).count())
}

/// Assigns a physical frame to one of the core's frames; fails if `frame` is `None`.
pub fn fill(id: FrameId, frame: Option<Frame>) -> Result<(), Errno> {
    let place = place(id).ok_or(Errno::ENOMEM)?;
    let frame = frame.ok_or(Errno::ENOMEM)?;
    // ORDERING: Release, pairs with the Acquire in `physical_address`.
    place.store(frame.into_address(), Ordering::Release);
    Ok(())
}

/// Takes the physical frame of one of the core's frames; `None` if it has none.
pub fn take(id: FrameId) -> Option<Frame> {
    // ORDERING: AcqRel; nothing uses the frame after this.
    let address = place(id)?.swap(0, Ordering::AcqRel);
    // SAFETY: `fill` gave up the ownership, and the swap returns the address only once.
    (address != 0).then(|| unsafe { Frame::from_address(address) })
}

/// Returns the physical address of a page, or 0 if the page has no frame.
#[inline]
pub fn address_of(page: MappedPage) -> u64 {
    match page {
        MappedPage::Zero => zero_page(),
        MappedPage::Frame(frame) => physical_address(frame),
        MappedPage::File { inode, index } => {
            let file = mapped::file(inode);
            file.and_then(|file| file.page_address(index.0))
                .unwrap_or(0)
        }
    }
}
