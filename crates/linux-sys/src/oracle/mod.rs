//! Child processes that make system calls and memory accesses on command.
//!
//! `channel` is the memory that the tester and its children share, `executor` is the code of a
//! child, and `touch` accesses memory and handles the signals that an access can cause. A child is
//! a fork without `exec`. A child uses only its stack and plain system calls; it does not use the
//! forked program's heap, locks or thread-local data. A multithreaded program can therefore fork a
//! child, and the child's address space never changes on its own. `vmarea_oracle` chooses the
//! commands and interprets the results.

pub mod channel;
pub mod executor;
pub mod touch;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Makes one system call without the C library, which would store `errno` in thread-local memory.
///
/// # Safety
/// The safety requirements of the system call itself.
pub unsafe fn raw_call(number: u64, args: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: by the kernel's calling convention on x86-64, the call changes only rax, rcx and r11;
    // the caller guarantees that its other effects are sound.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as i64 => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Creates a secret memory file; see `vmarea_oracle::memfd_secret`.
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
