//! Frames and the page cache of the software platform.

use super::failure::Failure;
use super::files::Files;
use super::mmu::Processors;
use super::page::{Page, zeros};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use vmarea::types::mmu::MappedPage;
use vmarea::types::page_bytes::PageBytes;
use vmarea::types::{Errno, FileId, FrameId, Platform, SwapId};
use vmarea_sync::SpinLock;

/// Bytes of a page; `None` if all of them are zero.
type Bytes = Option<Box<Page>>;

static ZEROS: Page = [0; size_of::<Page>()];

/// Contents of every allocated frame, of every swap slot and of every file page.
#[derive(Debug, Default)]
pub struct Memory {
    frames: SpinLock<BTreeMap<FrameId, Bytes>>,
    swap: SpinLock<BTreeMap<SwapId, Bytes>>,
    files: SpinLock<Files>,
    failure: Failure,
}

impl Memory {
    /// Calls `f` with the bytes of an allocated frame.
    pub(crate) fn with_frame<R>(&self, frame: FrameId, f: impl FnOnce(&mut Page) -> R) -> R {
        let mut frames = self.frames.lock();
        f(frames.entry(frame).or_default().get_or_insert_with(zeros))
    }

    /// Calls `f` with the bytes of a swap slot.
    pub(crate) fn with_slot<R>(&self, slot: SwapId, f: impl FnOnce(&mut Page) -> R) -> R {
        let mut swap = self.swap.lock();
        f(swap.entry(slot).or_default().get_or_insert_with(zeros))
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

    /// Calls `f` with the bytes of the page that a page-table entry maps, or with `None` for the
    /// zero page.
    pub(crate) fn with_page<R>(
        &self,
        page: MappedPage,
        f: impl FnOnce(Option<&mut Page>) -> R,
    ) -> R {
        match page {
            MappedPage::Zero => f(None),
            MappedPage::Frame(frame) => self.with_frame(frame, |bytes| f(Some(bytes))),
            MappedPage::File { inode, index } => {
                self.with_file_page(inode, index.0, |bytes| f(Some(bytes)))
            }
        }
    }

    /// Calls `f` with the page cache.
    pub fn with_files<R>(&self, f: impl FnOnce(&mut Files) -> R) -> R {
        f(&mut self.files.lock())
    }

    /// Returns the object with which a test can make a call to the platform fail.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Returns the number of frames with stored contents.
    pub fn frames(&self) -> usize {
        self.frames.lock().len()
    }
}

/// Implements `Platform` with a machine's memory; checks which frames the processors can access.
pub struct SharedMemory {
    pub(crate) memory: Arc<Memory>,
    pub(crate) processors: Arc<Processors>,
}

impl Platform for SharedMemory {
    fn zero(&self, frame: FrameId) -> Result<(), Errno> {
        self.memory.failure.attempt("zero")?;
        self.memory.frames.lock().insert(frame, None);
        Ok(())
    }

    fn copy(&self, to: FrameId, from: FrameId) -> Result<(), Errno> {
        self.memory.failure.attempt("copy")?;
        self.processors.assert_unwritable(from);
        let mut frames = self.memory.frames.lock();
        let bytes = frames.get(&from).cloned().flatten();
        frames.insert(to, bytes);
        Ok(())
    }

    fn copy_file(&self, to: FrameId, inode: u64, index: u64) -> Result<(), Errno> {
        self.memory.failure.attempt("copy_file")?;
        let bytes = Box::new(*self.memory.files.lock().page(inode, index));
        self.memory.frames.lock().insert(to, Some(bytes));
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
            (Some(one), Some(other)) => {
                one.as_deref().unwrap_or(&ZEROS) == other.as_deref().unwrap_or(&ZEROS)
            }
            _ => false,
        }
    }

    fn swap_out(&self, slot: SwapId, frame: FrameId) -> Result<(), Errno> {
        self.memory.failure.attempt("swap_out")?;
        self.processors.assert_unwritable(frame);
        let bytes = self.memory.frames.lock().get(&frame).cloned();
        self.memory.swap.lock().insert(slot, bytes.flatten());
        Ok(())
    }

    fn swap_in(&self, frame: FrameId, slot: SwapId) -> Result<(), Errno> {
        self.memory.failure.attempt("swap_in")?;
        let bytes = self.memory.swap.lock().get(&slot).cloned();
        self.memory.frames.lock().insert(frame, bytes.flatten());
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
        self.memory.files.lock().punch_hole(inode, first, end)
    }

    fn file_is_cached(&self, inode: u64, index: u64) -> bool {
        self.memory.files.lock().is_cached(inode, index)
    }

    fn file_bring(&self, inode: u64, index: u64) -> Result<(), Errno> {
        self.memory.failure.attempt("file_bring")?;
        self.memory.files.lock().page(inode, index);
        Ok(())
    }

    fn file_released(&self, inode: u64) {
        // Other files exist whether they are mapped or not.
        if FileId(inode).is_nameless() {
            self.memory.files.lock().remove(inode);
        }
    }

    fn file_holds(&self, inode: u64, index: u64) -> bool {
        self.memory.files.lock().holds(inode, index)
    }
}

impl PageBytes for SharedMemory {
    fn read(&self, page: MappedPage, offset: usize, to: &mut [u8]) {
        self.memory.with_page(page, |bytes| match bytes {
            Some(bytes) => to.copy_from_slice(&bytes[offset..offset + to.len()]),
            None => to.fill(0),
        });
    }

    fn write(&self, page: MappedPage, offset: usize, from: &[u8]) {
        self.memory.with_page(page, |bytes| {
            if let Some(bytes) = bytes {
                bytes[offset..offset + from.len()].copy_from_slice(from);
            }
        });
    }

    fn load(&self, page: MappedPage, offset: usize) -> u32 {
        let mut word = [0; 4];
        self.read(page, offset, &mut word);
        u32::from_ne_bytes(word)
    }

    fn compare_exchange(&self, page: MappedPage, offset: usize, current: u32, new: u32) -> u32 {
        self.memory.with_page(page, |bytes| {
            let Some(word) = bytes.and_then(|bytes| bytes[offset..].first_chunk_mut()) else {
                return 0;
            };
            let old = u32::from_ne_bytes(*word);
            if old == current {
                *word = new.to_ne_bytes();
            }
            old
        })
    }
}
