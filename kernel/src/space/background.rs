//! The work of Linux's kernel threads for compaction and KSM: one pass for each request.
//!
//! A program requests a pass by writing to `/proc/sys/vm/compact_memory` or
//! `/sys/kernel/mm/ksm/run`. In Linux, writing to the second file starts a thread that runs until
//! it is stopped.

use super::{reclaim, space};
use crate::cpu::direct_map::pointer_to;
use crate::memory::{frame_numbers, frames};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering};
use vmarea::types::{FrameId, MmId, PAGE_SIZE, VmFlags, VmRange};

/// Moves every anonymous page to another frame; returns the number of pages moved.
pub fn migrate_all() -> usize {
    let frames = super::all().into_iter().flat_map(frames_of);
    let moved = frames.filter(|&frame| frames::free_frames() >= reclaim::MIN && migrate(frame));
    moved.count()
}

fn migrate(frame: FrameId) -> bool {
    let begun = space().migrate_begin(frame);
    begun.is_ok_and(|migrating| matches!(space().migrate_end(migrating), Ok(Some(_))))
}

fn frames_of(mm: MmId) -> Vec<FrameId> {
    let mut frames = Vec::new();
    if let Some(r) = space().mmap_read_lock(mm) {
        r.pages().for_each(VmRange::new(0, u64::MAX), |_, entry| {
            frames.extend(entry.frame());
            ControlFlow::Continue(())
        });
    }
    frames
}

/// Merges equal pages in mergeable mappings; returns the number of pages merged.
pub fn merge_equal() -> usize {
    let mut first: BTreeMap<u64, (MmId, u64)> = BTreeMap::new();
    let mut merged = 0;
    for mm in super::all() {
        for (addr, sum) in mergeable_pages(mm) {
            let other = *first.entry(sum).or_insert((mm, addr));
            if other != (mm, addr) && frames::free_frames() >= reclaim::MIN {
                merged += usize::from(space().ksm_merge(other, (mm, addr)).is_ok());
            }
        }
    }
    merged
}

/// Returns the address and the checksum of each page in the mergeable mappings.
fn mergeable_pages(mm: MmId) -> Vec<(u64, u64)> {
    let mut pages = Vec::new();
    let Some(r) = space().mmap_read_lock(mm) else {
        return pages;
    };
    let mergeable = |vma: &vmarea::vma::VmaView| vma.body.flags.contains(VmFlags::MERGEABLE);
    for vma in r.vmas().filter(mergeable) {
        for addr in (vma.range.start..vma.range.end).step_by(PAGE_SIZE as usize) {
            // The entry is locked, so that the frame is not freed.
            let sum = r.pages().peek(addr, |entry| entry.frame().map(checksum));
            pages.extend(sum.map(|sum| (addr, sum)));
        }
    }
    pages
}

/// Returns a checksum of a frame, which a program may be changing at the same time.
fn checksum(frame: FrameId) -> u64 {
    let address = frame_numbers::physical_address(frame);
    if address == 0 {
        return 0;
    }
    // SAFETY: a whole frame in the direct map; its words are read as atomics.
    let words = unsafe { &*pointer_to::<[AtomicU64; frames::FRAME_SIZE / 8]>(address) };
    words.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
        // ORDERING: Relaxed; the core compares the pages again before it merges them.
        (sum ^ word.load(Ordering::Relaxed)).wrapping_mul(0x100_0000_01b3)
    })
}
