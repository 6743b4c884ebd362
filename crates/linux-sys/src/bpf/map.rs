//! BPF maps with keys of 4 bytes, which this process fills and BPF programs read.

use super::bpf;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const CMD_MAP_CREATE: libc::c_int = 0;
const CMD_MAP_UPDATE_ELEM: libc::c_int = 2;
pub(crate) const MAP_TYPE_ARRAY: u32 = 2;

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
        let mut attr = MapAttr {
            map_type,
            key_size: 4,
            value_size: value_bytes as u32,
            max_entries: entries,
            ..MapAttr::default()
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
        let attr = ElementAttr {
            map_fd: self.fd.as_raw_fd() as u32,
            key: &raw const key as u64,
            value: &raw const value as u64,
            ..ElementAttr::default()
        };
        // SAFETY: `attr` points to a key and a value of the map's sizes, and both live across the
        // call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                CMD_MAP_UPDATE_ELEM,
                &raw const attr,
                size_of::<ElementAttr>(),
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
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
