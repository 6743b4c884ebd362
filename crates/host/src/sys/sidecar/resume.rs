//! Calls that a stop interrupts for good: made anew.
//!
//! The kernel continues most waits after a stop by itself. A few calls answer `EINTR` instead, as after a
//! signal, and not every program expects that (`signal(7)` lists them). Where such a call waited without a
//! bound on the time and no signal is due, the thread makes it again as if nothing had been. One that waited
//! with a bound would wait anew for all of it, so it is told `EINTR`.
//!
//! # Linux
//! x86-64 only: elsewhere the first argument is gone by then.

use std::os::fd::RawFd;

/// The thread `tid`, which has just stopped, goes on with the call that the stop interrupted. `tasks` is where
/// threads are listed.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn resume_call(_tid: i32, _tasks: RawFd) {}

/// The thread `tid`, which has just stopped, goes on with the call that the stop interrupted. `tasks` is where
/// threads are listed.
#[cfg(target_arch = "x86_64")]
pub(super) fn resume_call(tid: i32, tasks: RawFd) {
    // SAFETY: plain data, which lives across the calls; the thread is stopped and traced by us.
    unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        let data = &raw mut registers;
        if libc::ptrace(libc::PTRACE_GETREGS, tid, 0usize, data) != 0
            || !was_interrupted(&registers)
            || is_signal_due(tid, tasks)
        {
            return;
        }
        // The instruction once more: it is two bytes long.
        registers.rip -= 2;
        registers.rax = registers.orig_rax;
        libc::ptrace(libc::PTRACE_SETREGS, tid, 0usize, data);
    }
}

/// True after a call that answers `EINTR` to a stop and that waited without a bound.
#[cfg(target_arch = "x86_64")]
fn was_interrupted(registers: &libc::user_regs_struct) -> bool {
    const INTERRUPTED: u64 = (-(libc::EINTR as i64)) as u64;
    const ENTER_EXT_ARG: u64 = 8;
    if registers.rax != INTERRUPTED {
        return false;
    }
    match registers.orig_rax.cast_signed() {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => (registers.r10 as i32) < 0,
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => registers.r10 == 0,
        libc::SYS_semop => true,
        libc::SYS_rt_sigtimedwait => registers.rdx == 0,
        libc::SYS_io_getevents | libc::SYS_io_pgetevents => registers.r8 == 0,
        libc::SYS_io_uring_enter => registers.r10 & ENTER_EXT_ARG == 0,
        _ => false,
    }
}

/// True where the thread is to be told a signal that it does not block; also where that cannot be seen.
#[cfg(target_arch = "x86_64")]
fn is_signal_due(tid: i32, tasks: RawFd) -> bool {
    let mut text = [0u8; 4096];
    let got = super::read_of_thread(tid, tasks, b"/status", &mut text);
    let text = &text[..got];
    let mask = |name: &[u8]| {
        let at = text.windows(name.len()).position(|window| window == name)?;
        let digits = text[at + name.len()..].iter();
        let digits = digits.take_while(|byte| byte.is_ascii_hexdigit());
        let value = |digit: &u8| u64::from((*digit as char).to_digit(16).unwrap_or(0));
        Some(digits.fold(0, |sum, digit| sum << 4 | value(digit)))
    };
    match [&b"\nSigPnd:\t"[..], b"\nShdPnd:\t", b"\nSigBlk:\t"].map(mask) {
        [Some(own), Some(shared), Some(blocked)] => (own | shared) & !blocked != 0,
        _ => true,
    }
}
