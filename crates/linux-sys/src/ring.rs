//! The ring of samples that an event shares with the kernel.
//!
//! The kernel writes at the head, and this process reads at the tail. The ring's first page stores
//! both positions, which only increase. Reading copies all pending records to private memory, where
//! they are parsed, and frees their space in the ring immediately. This module does not interpret
//! the records.
//!
//! # Picture
//! ```text
//! | control page: head, tail | 2^n pages of records, position modulo size |
//! ```

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

// Offsets in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// A mapped ring of perf samples.
#[derive(Debug)]
pub struct Ring {
    base: NonNull<u8>,
    page_bytes: usize,
    data_bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and `&mut self` serialises readers.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps an event's ring of `data_bytes` bytes, a power of two that is at least the page size.
    ///
    /// # Errors
    /// `EPERM` if `perf_event_mlock_kb` and `RLIMIT_MEMLOCK` do not allow the size, `ENOMEM` if
    /// memory is short, `InvalidInput` for an invalid size.
    pub fn map(event: &impl AsFd, data_bytes: usize) -> io::Result<Ring> {
        let page_bytes = rustix::param::page_size();
        if !data_bytes.is_power_of_two() || data_bytes < page_bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: a new mapping at an address chosen by the kernel disturbs no other memory.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                page_bytes + data_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                event,
                0,
            )
        }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring {
            base,
            page_bytes,
            data_bytes,
        })
    }

    fn counter(&self, place: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped as long as `self` lives; head and tail are aligned
        // u64 values in it, and the kernel changes them by single stores.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(place).cast::<u64>()) }
    }

    /// Appends all complete records in the ring to `out` and frees their space.
    pub fn take(&mut self, out: &mut Vec<u8>) {
        // ORDERING: Acquire, pairs with the kernel's write barrier before it publishes the head;
        // all records up to the head are completely visible.
        let head = self.counter(DATA_HEAD).load(Ordering::Acquire);
        // ORDERING: Relaxed, only this process writes the tail.
        let tail = self.counter(DATA_TAIL).load(Ordering::Relaxed);
        let len = usize::try_from(head.wrapping_sub(tail)).unwrap_or(usize::MAX);
        // Only a kernel bug can make the length larger than the ring. The ring then contains only
        // the newest records.
        let len = len.min(self.data_bytes);
        let from = (tail % self.data_bytes as u64) as usize;
        let first = len.min(self.data_bytes - from);
        out.reserve(len);
        let at = out.len();
        // SAFETY: both pieces are inside the data part (`from + first <= data_bytes`,
        // `len - first <= from`), the kernel writes nothing between tail and head, and `out` has
        // space for `len` more bytes, all of which are written before its length grows.
        unsafe {
            let data = self.base.as_ptr().add(self.page_bytes);
            let to = out.as_mut_ptr().add(at);
            ptr::copy_nonoverlapping(data.add(from), to, first);
            ptr::copy_nonoverlapping(data, to.add(first), len - first);
            out.set_len(at + len);
        }
        // ORDERING: Release, pairs with the kernel's control dependency on the tail: the copies
        // are complete before the kernel may write there again.
        self.counter(DATA_TAIL).store(head, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the one from `map`; no reference into it outlives `self`.
        let _ = unsafe {
            rustix::mm::munmap(self.base.as_ptr().cast(), self.page_bytes + self.data_bytes)
        };
    }
}
