//! BPF maps with keys of 4 bytes, which this process fills and BPF programs read, or the reverse.

use super::{bpf, command};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

const CMD_MAP_CREATE: libc::c_int = 0;
const CMD_MAP_UPDATE_ELEM: libc::c_int = 2;
pub(crate) const MAP_TYPE_ARRAY: u32 = 2;
/// `BPF_F_MMAPABLE`.
const FLAG_MMAPABLE: u32 = 1 << 10;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct MapAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ElementAttr {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A BPF map with keys of 4 bytes.
#[derive(Debug)]
pub(crate) struct Map {
    pub(super) fd: OwnedFd,
    value_bytes: usize,
}

impl Map {
    /// Creates a map of type `map_type` for `entries` values of `value_bytes` bytes.
    pub(crate) fn new(map_type: u32, value_bytes: usize, entries: u32) -> io::Result<Map> {
        Map::with_flags(map_type, value_bytes, entries, 0)
    }

    fn with_flags(
        map_type: u32,
        value_bytes: usize,
        entries: u32,
        map_flags: u32,
    ) -> io::Result<Map> {
        let mut attr = MapAttr {
            map_type,
            key_size: 4,
            value_size: value_bytes as u32,
            max_entries: entries,
            map_flags,
        };
        // SAFETY: `attr` has no pointers.
        let fd = unsafe { bpf(CMD_MAP_CREATE, &mut attr) }?;
        Ok(Map { fd, value_bytes })
    }

    /// Sets the value for a key.
    ///
    /// # Errors
    /// `InvalidInput` for a value of another size than the map's, `E2BIG` for a key beyond its end.
    pub(crate) fn set<T: Copy>(&self, key: u32, value: T) -> io::Result<()> {
        if size_of::<T>() != self.value_bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut attr = ElementAttr {
            map_fd: self.fd.as_raw_fd() as u32,
            key: &raw const key as u64,
            value: &raw const value as u64,
            ..ElementAttr::default()
        };
        // SAFETY: `attr` points to a key and a value of the map's sizes, and both live across the
        // call.
        unsafe { command(CMD_MAP_UPDATE_ELEM, &mut attr) }?;
        Ok(())
    }
}

/// A number in a BPF map, which this process sets and BPF programs read.
#[derive(Debug)]
pub struct Number {
    pub(super) map: Map,
}

impl Number {
    /// Creates a number with value 0.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`.
    pub fn new() -> io::Result<Number> {
        let map = Map::new(MAP_TYPE_ARRAY, size_of::<u64>(), 1)?;
        Ok(Number { map })
    }

    /// Sets the value of the number.
    ///
    /// # Errors
    /// The call cannot fail for a valid descriptor.
    pub fn set(&self, value: u64) -> io::Result<()> {
        self.map.set(0, value)
    }
}

/// A number in a BPF map, which BPF programs increase and this process reads.
///
/// This process reads it in memory: while the kernel looks into a map for a process, it runs no
/// program of perf's tracepoints on that CPU.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(super) number: Number,
    at: NonNull<u64>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only read, atomically.
unsafe impl Send for Counter {}
// SAFETY: as above.
unsafe impl Sync for Counter {}

impl Counter {
    /// Creates a counter with value 0.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, `EINVAL` before Linux 5.5.
    pub(crate) fn new() -> io::Result<Counter> {
        let bytes = size_of::<u64>();
        let map = Map::with_flags(MAP_TYPE_ARRAY, bytes, 1, FLAG_MMAPABLE)?;
        let page = rustix::param::page_size();
        let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: a new mapping at an address chosen by the kernel disturbs no other memory.
        let at = unsafe { rustix::mm::mmap(ptr::null_mut(), page, read, shared, &map.fd, 0) }?;
        let at = NonNull::new(at.cast::<u64>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let number = Number { map };
        Ok(Counter { number, at })
    }

    /// Returns the value.
    pub(crate) fn get(&self) -> u64 {
        // SAFETY: the page is mapped as long as `self` lives, and begins with the first value of the
        // map, which programs change by atomic additions.
        let value = unsafe { AtomicU64::from_ptr(self.at.as_ptr()) };
        // ORDERING: Relaxed, the number carries no other data.
        value.load(Ordering::Relaxed)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the one from `new`; no reference into it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), rustix::param::page_size()) };
    }
}
