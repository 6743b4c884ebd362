//! Frames and the page cache of the software platform.

use super::failure::Failure;
use super::files::Files;
use super::mmu::Processors;
use super::page::{Page, zeros};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use vmarea::types::{Errno, FrameId, Platform, SwapId};
use vmarea_sync::SpinLock;

/// Contents of every allocated frame, of every swap slot and of every file page.
#[derive(Debug, Default)]
pub struct Memory {
    frames: SpinLock<BTreeMap<FrameId, Box<Page>>>,
    swap: SpinLock<BTreeMap<SwapId, Box<Page>>>,
    files: SpinLock<Files>,
    failure: Failure,
}

impl Memory {
    /// Calls `f` with the bytes of an allocated frame.
    pub(crate) fn with_frame<R>(&self, frame: FrameId, f: impl FnOnce(&mut Page) -> R) -> R {
        f(self.frames.lock().entry(frame).or_insert_with(zeros))
    }

    /// Calls `f` with the bytes of a swap slot.
    pub(crate) fn with_slot<R>(&self, slot: SwapId, f: impl FnOnce(&mut Page) -> R) -> R {
        f(self.swap.lock().entry(slot).or_insert_with(zeros))
    }

    /// Calls `f` with the bytes of a file page.
    pub(crate) fn with_file_page<R>(
        &self,
        inode: u64,
        index: u64,
        f: impl FnOnce(&mut Page) -> R,
    ) -> R {
        f(self.files.lock().page(inode, index))
    }

    /// Calls `f` with the page cache.
    pub fn with_files<R>(&self, f: impl FnOnce(&mut Files) -> R) -> R {
        f(&mut self.files.lock())
    }

    /// Returns the failure that a test may choose for a call of the platform.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Returns the number of frames with stored contents.
    pub fn frames(&self) -> usize {
        self.frames.lock().len()
    }
}

/// The memory of a machine as its space uses it, with the processors that may access a frame.
pub struct SharedMemory {
    pub(crate) memory: Arc<Memory>,
    pub(crate) processors: Arc<Processors>,
}

impl Platform for SharedMemory {
    fn zero(&self, frame: FrameId) -> Result<(), Errno> {
        self.memory.failure.attempt("zero")?;
        self.memory.frames.lock().insert(frame, zeros());
        Ok(())
    }

    fn copy(&self, to: FrameId, from: FrameId) -> Result<(), Errno> {
        self.memory.failure.attempt("copy")?;
        self.processors.assert_unwritable(from);
        let mut frames = self.memory.frames.lock();
        let bytes = frames.get(&from).cloned().unwrap_or_else(zeros);
        frames.insert(to, bytes);
        Ok(())
    }

    fn copy_file(&self, to: FrameId, inode: u64, index: u64) -> Result<(), Errno> {
        self.memory.failure.attempt("copy_file")?;
        let bytes = Box::new(*self.memory.files.lock().page(inode, index));
        self.memory.frames.lock().insert(to, bytes);
        Ok(())
    }

    fn free(&self, frame: FrameId) {
        self.processors.assert_unreachable(frame);
        self.memory.frames.lock().remove(&frame);
    }

    fn same(&self, one: FrameId, other: FrameId) -> bool {
        self.processors.assert_unwritable(one);
        self.processors.assert_unwritable(other);
        let frames = self.memory.frames.lock();
        match (frames.get(&one), frames.get(&other)) {
            (Some(one), Some(other)) => one == other,
            _ => false,
        }
    }

    fn swap_out(&self, slot: SwapId, frame: FrameId) -> Result<(), Errno> {
        self.memory.failure.attempt("swap_out")?;
        self.processors.assert_unwritable(frame);
        let bytes = self.memory.frames.lock().get(&frame).cloned();
        self.memory
            .swap
            .lock()
            .insert(slot, bytes.unwrap_or_else(zeros));
        Ok(())
    }

    fn swap_in(&self, frame: FrameId, slot: SwapId) -> Result<(), Errno> {
        self.memory.failure.attempt("swap_in")?;
        let bytes = self.memory.swap.lock().get(&slot).cloned();
        self.memory
            .frames
            .lock()
            .insert(frame, bytes.unwrap_or_else(zeros));
        Ok(())
    }

    fn swap_free(&self, slot: SwapId) {
        self.memory.swap.lock().remove(&slot);
    }

    fn shared_anon(&self, inode: u64, pages: u64) -> Result<(), Errno> {
        self.memory.failure.attempt("shared_anon")?;
        self.memory.files.lock().resize(inode, pages);
        Ok(())
    }

    fn punch_hole(&self, inode: u64, first: u64, end: u64) -> Result<(), Errno> {
        self.memory.failure.attempt("punch_hole")?;
        self.memory.files.lock().punch_hole(inode, first, end);
        Ok(())
    }

    fn file_is_cached(&self, inode: u64, index: u64) -> bool {
        self.memory.files.lock().is_cached(inode, index)
    }

    fn file_bring(&self, inode: u64, index: u64) -> Result<(), Errno> {
        self.memory.failure.attempt("file_bring")?;
        self.memory.files.lock().page(inode, index);
        Ok(())
    }

    fn file_holds(&self, inode: u64, index: u64) -> bool {
        self.memory.files.lock().holds(inode, index)
    }
}
