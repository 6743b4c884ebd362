//! System calls of the child of a probe, by number.
//!
//! The functions are not marked `unsafe` although a call could destroy any memory: the child's memory
//! belongs to the experiments alone, and these name only addresses that they have mapped. The child
//! is a fork of a program that may have threads, so no experiment allocates memory or takes a lock.

use libc::c_int;
use std::io;

/// Result of a call: its value or its errno.
pub(super) type Answer = Result<usize, i32>;

/// Makes a system call.
pub(super) fn call(nr: libc::c_long, args: &[usize]) -> Answer {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    let [a, b, c, d, e, f] = all;
    // SAFETY: this process is the child of a probe; see the module.
    match unsafe { libc::syscall(nr, a, b, c, d, e, f) } {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        value => Ok(value as usize),
    }
}

/// Returns what a call says about support: it succeeds, or it fails with `errno` because the kernel
/// does not know it. Other errors say nothing.
pub(super) fn is_known(answer: Answer, errno: c_int) -> Option<bool> {
    match answer {
        Ok(_) => Some(true),
        Err(error) if error == errno => Some(false),
        Err(_) => None,
    }
}

/// True if a seccomp filter may answer calls instead of the kernel.
pub(super) fn is_filtered() -> bool {
    call(libc::SYS_prctl, &[libc::PR_GET_SECCOMP as usize]) != Ok(0)
}
