//! The swap device: a fixed memory region, with one page for each of the core's swap slots.
//!
//! The core counts the references to each slot and determines which slots are in use; the device
//! only stores the pages' contents.

use super::frames::{FRAME_SIZE, Page};
use crate::cpu::direct_map::pointer_to;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use spin::Once;
use vmarea::types::SwapId;

/// Physical address range of the device.
static DEVICE: Once<Range<u64>> = Once::new();
static READS: AtomicUsize = AtomicUsize::new(0);
static WRITES: AtomicUsize = AtomicUsize::new(0);

/// Turns the physical memory `range`, which consists of whole frames, into the swap device.
///
/// # Safety
/// Nothing else uses this memory from now on.
pub unsafe fn start(range: Range<u64>) {
    DEVICE.call_once(|| range);
}

/// Returns the number of slots, or 0 if there is no device.
pub fn slots() -> usize {
    DEVICE
        .get()
        .map_or(0, |range| (range.end - range.start) as usize / FRAME_SIZE)
}

/// Returns the number of pages read from the device and the number of pages written to it.
pub fn traffic() -> (usize, usize) {
    // ORDERING: Relaxed; statistics.
    (
        READS.load(Ordering::Relaxed),
        WRITES.load(Ordering::Relaxed),
    )
}

/// Returns the physical address of a slot.
fn place(slot: SwapId) -> u64 {
    let device = DEVICE.get().expect("a page was swapped out");
    let at = device.start + u64::from(slot.number()) * FRAME_SIZE as u64;
    assert!(
        at < device.end,
        "the core keeps within `System::swap_slots`"
    );
    at
}

/// Copies the frame at the physical address `from` to a slot.
pub fn write(slot: SwapId, from: u64) {
    // SAFETY: whole frames; the core has unmapped the page from all processes, and nothing else
    // uses the slot while the core has it locked.
    unsafe { pointer_to::<Page>(place(slot)).copy_from_nonoverlapping(pointer_to(from), 1) };
    // ORDERING: Relaxed; a statistic.
    WRITES.fetch_add(1, Ordering::Relaxed);
}

/// Returns the physical address of a slot whose contents are about to be read.
pub fn read(slot: SwapId) -> u64 {
    // ORDERING: Relaxed; a statistic.
    READS.fetch_add(1, Ordering::Relaxed);
    place(slot)
}
