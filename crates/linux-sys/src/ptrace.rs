//! `ptrace` requests and comparisons that other libraries do not wrap completely.
//!
//! `nix` has no real-time signals and hides the data of a system-call stop in a union. Here a
//! signal is a plain number and a stop is an enum. Seizing and event messages come from `nix`
//! unchanged.

use super::inject;
use nix::unistd::Pid;
use rustix::process::{WaitId, WaitIdOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How a stopped task continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// Until the next event or signal.
    Continue,
    /// Until the next system-call stop, event or signal.
    UntilSyscall,
    /// Stay in group-stop, but report `SIGCONT`.
    Listen,
}

/// What a task stopped at a system call is about to do, or has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyscallStop {
    /// Not at a system call.
    Elsewhere,
    /// Before the call.
    Entry {
        /// Number of the call.
        nr: u64,
        /// Its arguments.
        args: [u64; 6],
    },
    /// Stopped by the seccomp filter, which left `data`.
    Seccomp {
        /// Number of the call.
        nr: u64,
        /// Its arguments.
        args: [u64; 6],
        /// The filter's `SECCOMP_RET_DATA`.
        data: u32,
    },
    /// After the call.
    Exit {
        /// Its result, `-errno` for an error.
        ret: i64,
    },
}

/// Resumes a stopped task, with `signal` delivered to it (0 for none).
///
/// # Errors
/// `ESRCH` if the task was killed meanwhile or is not stopped.
pub fn resume(tid: i32, how: Resume, signal: i32) -> io::Result<()> {
    let request = match how {
        Resume::Continue => libc::PTRACE_CONT,
        Resume::UntilSyscall => libc::PTRACE_SYSCALL,
        Resume::Listen => libc::PTRACE_LISTEN,
    };
    // SAFETY: these requests read no memory of ours; the last argument is a number.
    let answer = unsafe { libc::ptrace(request, tid, 0usize, signal as usize) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// True if `wait` has a pending report for a task; the report stays pending.
pub fn is_reported(tid: i32) -> bool {
    let Some(task) = rustix::process::Pid::from_raw(tid) else {
        return false;
    };
    let leave = WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let any = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
    rustix::process::waitid(WaitId::Pid(task), leave | any).is_ok_and(|status| status.is_some())
}

/// The `AUDIT_ARCH_*` of a stopped task and what its system-call stop says.
///
/// # Errors
/// `ESRCH` if the task was killed meanwhile.
pub fn syscall_stop(tid: i32) -> io::Result<(u32, SyscallStop)> {
    let info = nix::sys::ptrace::syscall_info(Pid::from_raw(tid))?;
    let stop = match info.op {
        libc::PTRACE_SYSCALL_INFO_ENTRY => {
            // SAFETY: `op` says which member of the union the kernel filled.
            let entry = unsafe { info.u.entry };
            SyscallStop::Entry {
                nr: entry.nr,
                args: entry.args,
            }
        }
        libc::PTRACE_SYSCALL_INFO_SECCOMP => {
            // SAFETY: `op` says which member of the union the kernel filled.
            let seccomp = unsafe { info.u.seccomp };
            SyscallStop::Seccomp {
                nr: seccomp.nr,
                args: seccomp.args,
                data: seccomp.ret_data,
            }
        }
        libc::PTRACE_SYSCALL_INFO_EXIT => {
            // SAFETY: `op` says which member of the union the kernel filled.
            let exit = unsafe { info.u.exit };
            SyscallStop::Exit { ret: exit.sval }
        }
        _ => SyscallStop::Elsewhere,
    };
    Ok((info.arch, stop))
}

/// True if two descriptors of this process refer to one open file description.
///
/// # Errors
/// `ENOSYS` on a kernel without `kcmp`.
pub fn same_description(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> io::Result<bool> {
    const KCMP_FILE: libc::c_int = 0;
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: kcmp takes numbers only.
    let order = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            own,
            own,
            KCMP_FILE,
            a.as_raw_fd(),
            b.as_raw_fd(),
        )
    };
    match order {
        -1 => Err(io::Error::last_os_error()),
        order => Ok(order == 0),
    }
}

/// True if two tasks share one address space.
///
/// # Errors
/// `ESRCH` if one has exited, `EPERM` if it may not be inspected.
pub fn same_mm(a: i32, b: i32) -> io::Result<bool> {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: kcmp takes numbers only.
    match unsafe { libc::syscall(libc::SYS_kcmp, a, b, KCMP_VM, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        order => Ok(order == 0),
    }
}

/// The register in which a call leaves its result.
///
/// At the exit stop of a task that was killed inside a call it holds that call's result, or
/// `-ENOSYS` if the call never began.
///
/// # Errors
/// `ESRCH` if the task has gone.
pub fn result_register(tid: i32) -> io::Result<i64> {
    Ok(inject::registers(tid)?.result())
}

/// Makes the call at whose entry a task is stopped fail with `ENOSYS` without executing it.
///
/// # Errors
/// `ESRCH` if the task was killed meanwhile.
pub fn refuse_call(tid: i32) -> io::Result<()> {
    let registers = inject::registers(tid)?;
    inject::set_registers(tid, &registers.without_call(-i64::from(libc::ENOSYS)))
}

/// The first argument of the call at whose entry a task is stopped.
///
/// # Errors
/// `ESRCH` if the task was killed meanwhile.
pub fn first_argument(tid: i32) -> io::Result<u64> {
    Ok(inject::registers(tid)?.first_argument())
}

/// Replaces the first argument of the call that a task is in.
///
/// # Errors
/// `ESRCH` if the task was killed meanwhile.
pub fn set_first_argument(tid: i32, value: u64) -> io::Result<()> {
    let registers = inject::registers(tid)?;
    inject::set_registers(tid, &registers.with_first_argument(value))
}

/// Writes a word to the memory of a stopped task, even where the task itself may not write.
///
/// # Errors
/// `EIO` if there is no memory; `ESRCH` if the task was killed meanwhile.
pub fn poke(tid: i32, addr: u64, word: u64) -> io::Result<()> {
    // SAFETY: changes memory of the traced task only.
    let answer = unsafe { libc::ptrace(libc::PTRACE_POKEDATA, tid, addr, word) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The number of the call in which a task stands at its exit stop, or was last.
///
/// # Errors
/// `ESRCH` if the task has gone.
pub fn call_number(tid: i32) -> io::Result<i64> {
    Ok(inject::registers(tid)?.call_number())
}

/// Instruction, stack and frame pointer of a stopped task.
///
/// # Errors
/// `ESRCH` if the task has gone.
pub fn stack_registers(tid: i32) -> io::Result<[u64; 3]> {
    Ok(inject::registers(tid)?.of_stack())
}

/// The message of the event at which a task is stopped.
///
/// It is the new task, the former thread id, or the wait status.
///
/// # Errors
/// `ESRCH` if the task was killed meanwhile.
pub fn event_message(tid: i32) -> io::Result<i64> {
    Ok(nix::sys::ptrace::getevent(Pid::from_raw(tid))?)
}
