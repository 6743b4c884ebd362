//! `FilePages`: the contents of a file in memory, which are also its page cache.
//!
//! System calls read and write the pages, and mappings map them. When a page is first used, it is
//! filled from the initramfs or with zeros.

use super::frames::{FRAME_SIZE, Frame, free_frames, total_frames};
use crate::failure::Failure;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use linux_raw_sys::errno::{EFBIG, ENOSPC, EPERM};
use linux_raw_sys::general::{
    F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE,
};
use spin::Mutex;

/// Maximum size of a file in bytes.
const MAX_SIZE: u64 = 1 << 46;

/// Part of all frames that writes to files leave free: `1 / LEFT_SHARE`. Files have no owner that
/// could be killed for their memory.
const LEFT_SHARE: usize = 8;

/// The contents of a file.
#[derive(Debug, Default)]
struct Contents {
    size: u64,
    pages: BTreeMap<u64, Frame>,
    /// Contents of the file in the initramfs; empty if the file does not come from the initramfs.
    initial: &'static [u8],
}

/// The pages of a file, together with the seals that restrict changes to them.
#[derive(Debug)]
pub struct FilePages {
    contents: Mutex<Contents>,
    seals: AtomicU32,
}

impl Contents {
    /// Returns a page, creating it if needed, or `None` if there is no memory for it.
    fn page(&mut self, index: u64) -> Option<&Frame> {
        if !self.pages.contains_key(&index) {
            let frame = Frame::zeroed()?;
            let from = index.saturating_mul(FRAME_SIZE as u64);
            if let Some(rest) = self.initial.get(from as usize..) {
                frame.write(0, &rest[..rest.len().min(FRAME_SIZE)]);
            }
            self.pages.insert(index, frame);
        }
        self.pages.get(&index)
    }

    /// Calls `f` for each page in the `len` bytes at `offset`; returns the number of bytes handled.
    ///
    /// The arguments of `f` are the page, the offset in the page, and the range that the part
    /// occupies within the `len` bytes. If a page is to be created and no more than `left` frames
    /// are free, that part and all after it are skipped.
    fn for_parts(
        &mut self,
        offset: u64,
        len: usize,
        left: usize,
        mut f: impl FnMut(&Frame, usize, core::ops::Range<usize>),
    ) -> usize {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let within = at as usize % FRAME_SIZE;
            let part = (FRAME_SIZE - within).min(len - done);
            let index = at / FRAME_SIZE as u64;
            if !self.pages.contains_key(&index) && free_frames() <= left {
                break;
            }
            let Some(page) = self.page(index) else {
                break;
            };
            f(page, within, done..done + part);
            done += part;
        }
        done
    }
}

impl FilePages {
    /// Creates the contents of a file that comes from the initramfs, or of an empty file.
    pub fn new(initial: &'static [u8]) -> FilePages {
        FilePages::with(Contents {
            size: initial.len() as u64,
            initial,
            ..Contents::default()
        })
    }

    /// Creates the contents of a file that consists of `size` zero bytes.
    pub fn of_size(size: u64) -> FilePages {
        FilePages::with(Contents {
            size,
            ..Contents::default()
        })
    }

    fn with(contents: Contents) -> FilePages {
        FilePages {
            contents: Mutex::new(contents),
            seals: AtomicU32::new(F_SEAL_SEAL),
        }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.contents.lock().size
    }

    /// Returns the number of pages of the file that are in memory.
    pub fn pages(&self) -> u64 {
        self.contents.lock().pages.len() as u64
    }

    /// Reads bytes at an offset; returns the number of bytes read, 0 at the end of the file.
    ///
    /// # Errors
    /// ENOSPC if there is no memory for a page.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<usize, Failure> {
        let mut contents = self.contents.lock();
        let len = contents.size.saturating_sub(offset).min(to.len() as u64) as usize;
        let copy = |page: &Frame, at, part| page.read(at, &mut to[part]);
        let read = contents.for_parts(offset, len, 0, copy);
        match read == 0 && len > 0 {
            true => Err(ENOSPC.into()),
            false => Ok(read),
        }
    }

    /// Writes bytes at an offset; returns the number of bytes written.
    ///
    /// # Errors
    /// EPERM if a seal forbids the write; EFBIG if the file would be too large; ENOSPC if few
    /// frames are free.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<usize, Failure> {
        let end = offset
            .checked_add(from.len() as u64)
            .filter(|&end| end <= MAX_SIZE);
        let end = end.ok_or(EFBIG)?;
        let mut contents = self.contents.lock();
        let grows = end > contents.size;
        if self.has_seal(F_SEAL_WRITE | F_SEAL_FUTURE_WRITE) || grows && self.has_seal(F_SEAL_GROW)
        {
            return Err(EPERM.into());
        }
        let len = from.len();
        let left = total_frames() / LEFT_SHARE;
        let copy = |page: &Frame, at, part| page.write(at, &from[part]);
        let written = contents.for_parts(offset, len, left, copy);
        contents.size = contents.size.max(offset + written as u64);
        match written == 0 && len > 0 {
            true => Err(ENOSPC.into()),
            false => Ok(written),
        }
    }

    /// Sets the size; returns the pages beyond the new size, which may still be mapped.
    ///
    /// # Errors
    /// EPERM if a seal forbids the change; EFBIG if the size is too large.
    pub fn resize(&self, size: u64) -> Result<Vec<Frame>, Failure> {
        if size > MAX_SIZE {
            return Err(EFBIG.into());
        }
        let mut contents = self.contents.lock();
        let forbidden = match size.cmp(&contents.size) {
            core::cmp::Ordering::Less => F_SEAL_SHRINK,
            core::cmp::Ordering::Equal => 0,
            core::cmp::Ordering::Greater => F_SEAL_GROW,
        };
        if self.has_seal(forbidden) {
            return Err(EPERM.into());
        }
        let within = size as usize % FRAME_SIZE;
        if size < contents.size
            && within != 0
            && let Some(page) = contents.page(size / FRAME_SIZE as u64)
        {
            page.write(within, &[0; FRAME_SIZE][within..]);
        }
        contents.size = size;
        contents.initial = &contents.initial[..contents.initial.len().min(size as usize)];
        let gone = contents.pages.split_off(&size.div_ceil(FRAME_SIZE as u64));
        Ok(gone.into_values().collect())
    }

    /// Fills the pages in `first..end` with zeros.
    pub fn punch_hole(&self, first: u64, end: u64) {
        let mut contents = self.contents.lock();
        // The pages are not removed, because they may be mapped.
        let last = end.min(contents.size.div_ceil(FRAME_SIZE as u64));
        for index in first..last {
            if (contents.pages.contains_key(&index) || !contents.initial.is_empty())
                && let Some(page) = contents.page(index)
            {
                page.write(0, &[0; FRAME_SIZE]);
            }
        }
    }

    /// Returns the physical address of a page, creating the page if needed.
    ///
    /// Returns `None` if the page is beyond the end of the file or there is no memory for it.
    pub fn page_address(&self, index: u64) -> Option<u64> {
        let mut contents = self.contents.lock();
        match index < contents.size.div_ceil(FRAME_SIZE as u64) {
            true => contents.page(index).map(Frame::address),
            false => None,
        }
    }

    /// Returns a copy of a page, or `None` if there is no memory for the copy.
    pub fn copy_of_page(&self, index: u64) -> Option<Frame> {
        let mut contents = self.contents.lock();
        let page = contents.page(index)?.address();
        Frame::copy_of(page)
    }

    /// True if the page is in memory.
    pub fn is_cached(&self, index: u64) -> bool {
        self.contents.lock().pages.contains_key(&index)
    }

    /// Returns the seals (`F_SEAL_`).
    pub fn seals(&self) -> u32 {
        // ORDERING: Relaxed; one word.
        self.seals.load(Ordering::Relaxed)
    }

    /// Sets the seals.
    pub fn set_seals(&self, seals: u32) {
        // ORDERING: Relaxed; one word.
        self.seals.store(seals, Ordering::Relaxed);
    }

    /// True if the file has one of these seals.
    pub fn has_seal(&self, seals: u32) -> bool {
        self.seals() & seals != 0
    }
}
