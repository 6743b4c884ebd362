//! Restarts a call that a stop interrupted; see [`syscall_restart`](crate::syscall_restart).

/// Makes the thread `tid`, which has just been stopped, repeat the call that the stop interrupted.
#[cfg(not(target_arch = "x86_64"))]
pub fn resume_call(_tid: i32) {}

/// Makes the thread `tid`, which has just been stopped, repeat the call that the stop interrupted.
#[cfg(target_arch = "x86_64")]
pub fn resume_call(tid: i32) {
    use crate::syscall_restart::{Waited, restarted};
    use std::mem::MaybeUninit;

    let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
    // SAFETY: the kernel writes one `user_regs_struct`, which lives across the call.
    let read = unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid, 0usize, registers.as_mut_ptr()) };
    if read != 0 {
        return;
    }
    // SAFETY: the structure is plain data, zeroed and then filled in.
    let mut registers = unsafe { registers.assume_init() };
    let r = &registers;
    let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
    if let Some(result) = restarted(r.orig_rax.cast_signed(), args, r.rax, Waited::Perhaps) {
        registers.rax = result;
        // SAFETY: the kernel reads one `user_regs_struct`, which lives across the call.
        unsafe { libc::ptrace(libc::PTRACE_SETREGS, tid, 0usize, &raw const registers) };
    }
}
