//! The core's platform: frames and their contents, and file pages in the page cache.
//!
//! If no physical frame is free when one of the core's frame numbers needs one ([`frame_numbers`]),
//! the core's page fault or call fails.

use super::frame_numbers::{address_of, fill, physical_address};
use super::frames::Frame;
use super::mmu::Hardware;
use super::{frame_numbers, mapped, swap};
use crate::cpu::direct_map::pointer_to;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering;
use vmarea::types::mmu::MappedPage;
use vmarea::types::page_bytes::PageBytes;
use vmarea::types::platform::Environment;
use vmarea::types::{Errno, FrameId, Platform, SwapId};
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

/// Name of the kind of per-VMA lock.
pub const LOCK_NAME: &str = <Lock as vmarea_sync::VmaLockKind>::NAME;

/// The types that this kernel supplies to the core as its environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine;

impl Environment for Machine {
    type VmaLock = Lock;
    type Platform = Memory;
    type Mmu = Hardware;
    type Wait = Spin;
    type Writers = vmarea::types::writers::OneWriter;
}

/// The machine's physical memory, as the core uses it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory;

impl Platform for Memory {
    fn zero(&self, frame: FrameId) -> Result<(), Errno> {
        fill(frame, Frame::zeroed())
    }

    fn copy(&self, to: FrameId, from: FrameId) -> Result<(), Errno> {
        fill(to, Frame::copy_of(physical_address(from)))
    }

    fn copy_file(&self, to: FrameId, inode: u64, index: u64) -> Result<(), Errno> {
        let file = mapped::file(inode);
        fill(to, file.and_then(|file| file.copy_of_page(index)))
    }

    fn free(&self, frame: FrameId) {
        drop(frame_numbers::take(frame));
    }

    fn same(&self, one: FrameId, other: FrameId) -> bool {
        // SAFETY: whole frames, which the core has made read-only for the comparison.
        let bytes = |at| unsafe { core::slice::from_raw_parts(pointer_to::<u8>(at), 4096) };
        bytes(physical_address(one)) == bytes(physical_address(other))
    }

    fn swap_out(&self, slot: SwapId, frame: FrameId) -> Result<(), Errno> {
        swap::write(slot, physical_address(frame));
        Ok(())
    }

    fn swap_in(&self, frame: FrameId, slot: SwapId) -> Result<(), Errno> {
        fill(frame, Frame::copy_of(swap::read(slot)))
    }

    fn shared_anon(&self, inode: u64, pages: u64) -> Result<(), Errno> {
        mapped::create_nameless(inode, pages);
        Ok(())
    }

    fn punch_hole(&self, inode: u64, first: u64, end: u64) -> Result<(), Errno> {
        if let Some(file) = mapped::file(inode) {
            file.punch_hole(first, end);
        }
        Ok(())
    }

    fn file_is_cached(&self, inode: u64, index: u64) -> bool {
        mapped::file(inode).is_some_and(|file| file.is_cached(index))
    }

    fn file_bring(&self, inode: u64, index: u64) -> Result<(), Errno> {
        match mapped::file(inode).and_then(|file| file.page_address(index)) {
            Some(_) => Ok(()),
            None if self.file_holds(inode, index) => Err(Errno::ENOMEM),
            None => Err(Errno::EIO),
        }
    }

    fn file_released(&self, inode: u64) {
        mapped::release(inode);
    }

    fn file_holds(&self, inode: u64, index: u64) -> bool {
        mapped::file(inode).is_some_and(|file| index < file.size().div_ceil(4096))
    }
}

impl PageBytes for Memory {
    fn read(&self, page: MappedPage, offset: usize, to: &mut [u8]) {
        with_frame(page, |frame| frame.read(offset, to));
    }

    fn write(&self, page: MappedPage, offset: usize, from: &[u8]) {
        with_frame(page, |frame| frame.write(offset, from));
    }

    fn load(&self, page: MappedPage, offset: usize) -> u32 {
        // ORDERING: SeqCst, as programs expect of a futex.
        with_frame(page, |frame| frame.word(offset).load(Ordering::SeqCst)).unwrap_or(0)
    }

    fn compare_exchange(&self, page: MappedPage, offset: usize, current: u32, new: u32) -> u32 {
        let old = with_frame(page, |frame| {
            let word = frame.word(offset);
            // ORDERING: SeqCst, as programs expect of a futex.
            let done = word.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst);
            done.unwrap_or_else(|old| old)
        });
        old.unwrap_or(0)
    }
}

/// Calls `f` with the frame of a page whose entry is locked.
///
/// Returns `None` if the page is no longer part of its file.
fn with_frame<R>(page: MappedPage, f: impl FnOnce(&Frame) -> R) -> Option<R> {
    let address = address_of(page);
    if address == 0 {
        return None;
    }
    // SAFETY: the locked entry keeps the frame, and its ownership is not taken.
    let frame = ManuallyDrop::new(unsafe { Frame::from_address(address) });
    Some(f(&frame))
}
