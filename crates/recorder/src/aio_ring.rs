//! The rings of asynchronous I/O, which `io_setup` maps.
//!
//! The address of a ring is the number of its context. The call is recorded as the `mmap` that the
//! kernel makes.
//!
//! # Linux
//! `fs/aio.c`, 6.18. The ring is a shared mapping of a file of its own.

use super::memory;
use vmarea_process::maps::MapsEntry;

/// The `mmap` that the kernel makes: number, arguments and result.
pub(crate) type Mmap = (u32, [u64; 6], i64);

/// Returns the `mmap` that has mapped a ring.
pub(crate) fn mmap(ring: &MapsEntry) -> Mmap {
    let (len, prot) = (ring.end - ring.start, libc::PROT_READ | libc::PROT_WRITE);
    let shared = libc::MAP_SHARED as u64;
    let args = [0, len, prot as u64, shared, u64::MAX, 0];
    (libc::SYS_mmap as u32, args, ring.start as i64)
}

/// True if a call has mapped a ring.
pub(crate) fn maps_ring(nr: u32, ret: i64) -> bool {
    i64::from(nr) == libc::SYS_io_setup && ret == 0
}

/// Returns the address of the ring that an `io_setup` with these arguments has mapped.
pub(crate) fn address(tid: i32, args: &[u64; 6]) -> Option<u64> {
    memory::words(tid, args[1], 1).first().copied()
}
