//! The half of the oracle that runs in the children, and what both halves share.
//!
//! `channel` is the memory that the tester and its children share, `executor` is the code of a
//! child, and `touch` accesses memory and handles the signals that an access can cause. A child is
//! a fork without `exec`. A child uses only its stack and plain system calls; it does not use the
//! forked program's heap, locks or thread-local data. A multithreaded program can therefore fork a
//! child, and the child's address space never changes on its own. The crate's root chooses the
//! commands and interprets the results.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod arch;
pub mod channel;
pub mod executor;
pub mod touch;

pub use arch::raw_call;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

pub fn memfd_secret() -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is new and has no other owner.
    unsafe {
        let fd = libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Reads `len` bytes at each address in `pages` from process `pid` into the buffer.
///
/// Returns the number of bytes read before the first page that could not be read.
pub fn read_remote(pid: i32, pages: &[u64], len: usize, to: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    for (pages, to) in pages.chunks(1024).zip(to.chunks_mut(1024 * len)) {
        let local = libc::iovec {
            iov_base: to.as_mut_ptr().cast(),
            iov_len: (pages.len() * len).min(to.len()),
        };
        let remote: Vec<libc::iovec> = pages
            .iter()
            .map(|&page| libc::iovec {
                iov_base: page as *mut _,
                iov_len: len,
            })
            .collect();
        // SAFETY: `local` is not longer than `to`; the remote memory belongs to another process.
        let copied = unsafe {
            libc::process_vm_readv(
                pid,
                &raw const local,
                1,
                remote.as_ptr(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        if copied < 0 {
            return Err(io::Error::last_os_error());
        }
        done += copied as usize;
        if (copied as usize) < local.iov_len {
            break;
        }
    }
    Ok(done)
}
