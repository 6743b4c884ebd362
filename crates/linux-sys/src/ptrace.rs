//! `ptrace` requests and `kcmp` comparisons that other crates do not completely wrap.
//!
//! The `nix` crate does not support real-time signals, and exposes the data of a system-call stop
//! only as a union and only with the GNU C library. In this module, a signal is a number and a stop
//! is an enum. For reading event messages, this module uses `nix` directly.

use super::inject;
use super::syscall_restart::Waited;
use nix::unistd::Pid;
use rustix::process::{WaitId, WaitIdOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Mode in which a stopped task is resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// Run until the next event or signal.
    Continue,
    /// Run until the next system-call stop, event or signal.
    UntilSyscall,
    /// Stay in the group-stop, but report `SIGCONT`.
    Listen,
}

/// Position of a stopped task relative to a system call: before the call or after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyscallStop {
    /// Not stopped at a system call.
    Elsewhere,
    /// Stopped before the call.
    Entry {
        /// Number of the call.
        nr: u64,
        /// Arguments of the call.
        args: [u64; 6],
    },
    /// Stopped by the seccomp filter, which returned `data`.
    Seccomp {
        /// Number of the call.
        nr: u64,
        /// Arguments of the call.
        args: [u64; 6],
        /// The filter's `SECCOMP_RET_DATA`.
        data: u32,
    },
    /// Stopped after the call.
    Exit {
        /// Result of the call, or `-errno` on error.
        ret: i64,
    },
}

/// Resumes a stopped task and delivers `signal` to it (0 for none).
///
/// # Errors
/// `ESRCH` if the task was killed in the meantime or is not stopped.
pub fn resume(tid: i32, how: Resume, signal: i32) -> io::Result<()> {
    let request = match how {
        Resume::Continue => libc::PTRACE_CONT,
        Resume::UntilSyscall => libc::PTRACE_SYSCALL,
        Resume::Listen => libc::PTRACE_LISTEN,
    };
    // SAFETY: these requests do not access this process's memory; the last argument is a number.
    let answer = unsafe { libc::ptrace(request, tid, 0usize, signal as usize) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Stops tracing a stopped task, and delivers `signal` to it (0 for none).
///
/// # Errors
/// `ESRCH` if the task was killed in the meantime or is not stopped.
pub fn detach(tid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: the request does not access this process's memory; the last argument is a number.
    let answer = unsafe { libc::ptrace(libc::PTRACE_DETACH, tid, 0usize, signal as usize) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes the kernel restart the call of a stopped task if a stop made the call fail with `EINTR`.
///
/// Returns false if the call keeps its result. See [`super::syscall_restart`].
///
/// # Errors
/// `ESRCH` if the task was killed in the meantime.
pub fn restart_call(tid: i32, waited: Waited) -> io::Result<bool> {
    let mut registers = inject::registers(tid)?;
    let restarts = registers.make_again(waited);
    if restarts {
        inject::set_registers(tid, &registers)?;
    }
    Ok(restarts)
}

/// True if a stopped task has been killed: it is on its way to its exit stop, or is there already.
pub fn has_left_stop(tid: i32) -> bool {
    const AT_EXIT: i32 = libc::SIGTRAP | libc::PTRACE_EVENT_EXIT << 8;
    // SAFETY: all-zero bytes are a valid value.
    let mut stop: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives across the call.
    let answer = unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, tid, 0usize, &raw mut stop) };
    match answer {
        -1 => io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH),
        // A process can send itself a signal with any code, but the kernel reports each stop.
        _ => stop.si_code == AT_EXIT && is_reported(tid),
    }
}

/// True if `wait` has an unread report about the task; the report is not consumed.
pub fn is_reported(tid: i32) -> bool {
    let Some(task) = rustix::process::Pid::from_raw(tid) else {
        return false;
    };
    let leave = WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let any = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
    rustix::process::waitid(WaitId::Pid(task), leave | any).is_ok_and(|status| status.is_some())
}

const PTRACE_GET_SYSCALL_INFO: i64 = 0x420e;
const PTRACE_SYSCALL_INFO_ENTRY: u8 = 1;
const PTRACE_SYSCALL_INFO_EXIT: u8 = 2;
const PTRACE_SYSCALL_INFO_SECCOMP: u8 = 3;

/// `struct ptrace_syscall_info`, with the union at its end as words: a call's number, its arguments
/// and the seccomp filter's data, or a call's result.
#[derive(Default)]
#[repr(C)]
struct SyscallInfo {
    op: u8,
    arch: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    words: [u64; 8],
}

/// Returns a stopped task's `AUDIT_ARCH_*` value and the data of its system-call stop.
///
/// # Errors
/// `ESRCH` if the task was killed in the meantime.
pub fn syscall_stop(tid: i32) -> io::Result<(u32, SyscallStop)> {
    let mut info = SyscallInfo::default();
    let address = ptr::from_mut(&mut info) as usize;
    inject::request(
        PTRACE_GET_SYSCALL_INFO,
        tid,
        size_of::<SyscallInfo>(),
        address,
    )?;
    let [nr, args @ .., data] = info.words;
    let stop = match info.op {
        PTRACE_SYSCALL_INFO_ENTRY => SyscallStop::Entry { nr, args },
        PTRACE_SYSCALL_INFO_SECCOMP => SyscallStop::Seccomp {
            nr,
            args,
            // The kernel writes four bytes; both architectures are little-endian.
            data: data as u32,
        },
        PTRACE_SYSCALL_INFO_EXIT => SyscallStop::Exit {
            ret: nr.cast_signed(),
        },
        _ => SyscallStop::Elsewhere,
    };
    Ok((info.arch, stop))
}

/// Checks whether two descriptors of this process refer to the same open file description.
///
/// # Errors
/// `ENOSYS` on a kernel without `kcmp`.
pub fn same_description(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> io::Result<bool> {
    const KCMP_FILE: libc::c_int = 0;
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: `kcmp` takes numbers only.
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

/// Checks whether two tasks share an address space.
///
/// # Errors
/// `ESRCH` if one of the tasks has exited, `EPERM` if one of them may not be inspected.
pub fn same_mm(a: i32, b: i32) -> io::Result<bool> {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: `kcmp` takes numbers only.
    match unsafe { libc::syscall(libc::SYS_kcmp, a, b, KCMP_VM, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        order => Ok(order == 0),
    }
}

/// Returns the content of the register that holds a stopped task's system-call result.
///
/// At the exit stop of a task that was killed inside a call, the register contains that call's
/// result, or `-ENOSYS` if the call was never started.
///
/// # Errors
/// `ESRCH` if the task does not exist any more.
pub fn result_register(tid: i32) -> io::Result<i64> {
    Ok(inject::registers(tid)?.result())
}

/// Makes the call that a stopped task is entering fail with `ENOSYS` without executing it.
///
/// # Errors
/// `ESRCH` if the task was killed in the meantime.
pub fn refuse_call(tid: i32) -> io::Result<()> {
    let registers = inject::registers(tid)?;
    inject::set_registers(tid, &registers.without_call(-i64::from(libc::ENOSYS)))
}

/// Returns the first argument of the call that a stopped task is entering.
///
/// # Errors
/// `ESRCH` if the task was killed in the meantime.
pub fn first_argument(tid: i32) -> io::Result<u64> {
    Ok(inject::registers(tid)?.first_argument())
}

/// Replaces the first argument of the call that a stopped task is in.
///
/// # Errors
/// `ESRCH` if the task was killed in the meantime.
pub fn set_first_argument(tid: i32, value: u64) -> io::Result<()> {
    let registers = inject::registers(tid)?;
    inject::set_registers(tid, &registers.with_first_argument(value))
}

/// Writes a word to the memory of a stopped task, even if the memory is not writable for the task.
///
/// # Errors
/// `EIO` if no memory is mapped there; `ESRCH` if the task was killed in the meantime.
pub fn poke(tid: i32, addr: u64, word: u64) -> io::Result<()> {
    // SAFETY: the request changes only memory of the traced task.
    let answer = unsafe { libc::ptrace(libc::PTRACE_POKEDATA, tid, addr, word) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns the number of the task's current system call, or of its last one.
///
/// # Errors
/// `ESRCH` if the task does not exist any more.
pub fn call_number(tid: i32) -> io::Result<i64> {
    Ok(inject::registers(tid)?.call_number())
}

/// Returns the instruction, stack and frame pointers of a stopped task.
///
/// # Errors
/// `ESRCH` if the task does not exist any more.
pub fn stack_registers(tid: i32) -> io::Result<[u64; 3]> {
    Ok(inject::registers(tid)?.of_stack())
}

/// Returns the message of the ptrace event at which a task is stopped.
///
/// Depending on the event, the message is the new task's id, the former thread id, or the wait
/// status.
///
/// # Errors
/// `ESRCH` if the task was killed in the meantime.
pub fn event_message(tid: i32) -> io::Result<i64> {
    Ok(nix::sys::ptrace::getevent(Pid::from_raw(tid))?)
}
