//! The state of stopped threads of another process: registers, signal mask, stops.
//!
//! A tracer stops a thread, directs it to a stub (see `agent`), and gives it back its own
//! registers. At a trap stop the kernel then restarts the interrupted call, or lets it fail with
//! `EINTR`, as if nobody had stopped the thread.
//!
//! # Linux
//! `ptrace(2)`: `PTRACE_SEIZE`, `PTRACE_GETREGSET`, `PTRACE_SETSIGMASK`. x86-64 and aarch64.

use std::io;
use std::ptr;
use std::slice;
use std::time::{Duration, Instant};

use super::calls::Call;
use super::syscall_restart::Waited;
use super::task_status::TaskStatus;

const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;
const PTRACE_O_SUSPEND_SECCOMP: usize = 1 << 21;
const PTRACE_GET_SYSCALL_USER_DISPATCH: libc::c_uint = 0x4211;
const NT_PRSTATUS: usize = 1;
const EVENT_STOP: i32 = 128;
const MOST_WORDS: usize = 34;

/// General-purpose registers of a thread, in the kernel's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    /// Register values; the first `count` are valid.
    pub words: [u64; MOST_WORDS],
    /// Number of words that the kernel filled in.
    pub count: usize,
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use crate::syscall_restart::{Waited, restarted};

    /// Index of the instruction pointer in `user_regs_struct`, in words.
    pub const PC: usize = 16;
    pub const SP: usize = 19;
    pub const FP: usize = 4;
    pub const CALL: usize = ORIG_RAX;
    pub const RESULT: usize = 10;
    pub const ARGS: [usize; 6] = [14, 13, 12, 7, 9, 8];
    /// Indices of rax, rcx and r11.
    pub const CHANGED: [usize; 3] = [10, 11, 6];
    pub const FLAGS: usize = 18;
    const ORIG_RAX: usize = 15;
    const CS: usize = 17;
    const CS_64: u64 = 0x33;
    const SYSCALL_BYTES: u64 = 2;
    const ERESTARTSYS: i64 = -512;
    const ERESTARTNOINTR: i64 = -513;
    const ERESTARTNOHAND: i64 = -514;
    const ERESTART_RESTARTBLOCK: i64 = -516;

    pub fn resume(words: &mut [u64]) {
        if words[ORIG_RAX].cast_signed() >= 0 {
            let again = match words[RESULT].cast_signed() {
                ERESTARTSYS | ERESTARTNOINTR => Some(words[ORIG_RAX]),
                ERESTART_RESTARTBLOCK => Some(libc::SYS_restart_syscall.cast_unsigned()),
                ERESTARTNOHAND => {
                    words[RESULT] = (-i64::from(libc::EINTR)).cast_unsigned();
                    None
                }
                _ => None,
            };
            if let Some(nr) = again {
                words[RESULT] = nr;
                words[PC] -= SYSCALL_BYTES;
            }
        }
        forget_call(words);
    }

    pub fn forget_call(words: &mut [u64]) {
        words[ORIG_RAX] = u64::MAX;
    }

    pub fn is_64_bit(words: &[u64]) -> bool {
        // Of a thread in 32-bit code, the kernel returns fewer and shorter registers.
        words.get(CS) == Some(&CS_64)
    }

    /// Makes the kernel restart a call that failed with `EINTR` only because of a stop.
    ///
    /// Returns true if there was such a call.
    pub fn make_again(words: &mut [u64], waited: Waited) -> bool {
        let args = ARGS.map(|at| words[at]);
        let result = restarted(words[ORIG_RAX].cast_signed(), args, words[RESULT], waited);
        if let Some(result) = result {
            words[RESULT] = result;
        }
        result.is_some()
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    pub const PC: usize = 32;
    pub const SP: usize = 31;
    pub const FP: usize = 29;
    pub const CALL: usize = NR;
    pub const NR: usize = 8;
    pub const RESULT: usize = 0;
    pub const ARGS: [usize; 6] = [0, 1, 2, 3, 4, 5];

    pub const CHANGED: [usize; 3] = [0, 1, 2];
    pub const FLAGS: usize = 33;

    /// Does nothing: the kernel prepares the restart before a tracer reads the registers.
    pub fn resume(_: &mut [u64]) {}

    /// Does nothing: the kernel prepares the restart before a tracer reads the registers.
    pub fn forget_call(_: &mut [u64]) {}

    pub fn is_64_bit(words: &[u64]) -> bool {
        words.len() == super::MOST_WORDS
    }

    /// Returns false: the kernel prepares any restart before a tracer reads the registers.
    pub fn make_again(_: &mut [u64], _: crate::syscall_restart::Waited) -> bool {
        false
    }
}

impl Registers {
    /// True if the thread runs 64-bit code.
    pub fn is_64_bit(&self) -> bool {
        arch::is_64_bit(&self.words[..self.count])
    }

    /// Makes the kernel restart a call that failed only because of a stop; true if there was one.
    pub fn make_again(&mut self, waited: Waited) -> bool {
        arch::make_again(&mut self.words, waited)
    }

    /// Returns the address at which the thread resumes.
    pub fn pc(&self) -> u64 {
        self.words[arch::PC]
    }

    /// Returns the number of the thread's current or last system call.
    pub fn call_number(&self) -> i64 {
        self.words[arch::CALL].cast_signed()
    }

    /// Returns the instruction, stack and frame pointers.
    pub fn of_stack(&self) -> [u64; 3] {
        [arch::PC, arch::SP, arch::FP].map(|register| self.words[register])
    }

    /// Returns a copy of these registers with which the thread continues at `place`. The kernel
    /// restarts no call.
    #[must_use]
    pub fn at(mut self, place: u64) -> Registers {
        arch::forget_call(&mut self.words);
        self.words[arch::PC] = place;
        self
    }

    /// Returns the registers with which the thread would continue the program by itself. The kernel
    /// makes the same change when a stopped thread resumes, except that it knows which signals
    /// arrive: a call that only a handler may interrupt fails with `EINTR` here.
    #[must_use]
    pub fn as_resumed(mut self) -> Registers {
        arch::resume(&mut self.words);
        self
    }

    /// Returns the arithmetic and direction flags.
    pub fn flags(&self) -> u64 {
        self.words[arch::FLAGS]
    }

    /// Returns the registers that hold the arguments of a system call.
    pub fn arguments(&self) -> [u64; 6] {
        arch::ARGS.map(|register| self.words[register])
    }

    /// Returns the registers that a system call changes, the one with the result first.
    pub fn changed_by_calls(&self) -> [u64; 3] {
        arch::CHANGED.map(|register| self.words[register])
    }

    /// Returns a copy of these registers, changed to skip the call being entered and to return
    /// `result` from it.
    pub fn without_call(mut self, result: i64) -> Registers {
        arch::forget_call(&mut self.words);
        self.words[arch::RESULT] = result.cast_unsigned();
        self
    }

    /// Returns the first argument of the system call that the thread is entering.
    pub fn first_argument(&self) -> u64 {
        self.words[arch::ARGS[0]]
    }

    /// Returns a copy of these registers in which the first argument of the call is replaced.
    pub fn with_first_argument(mut self, value: u64) -> Registers {
        self.words[arch::ARGS[0]] = value;
        self
    }

    /// Returns the result of the system call.
    pub fn result(&self) -> i64 {
        self.words[arch::RESULT].cast_signed()
    }
}

/// Makes one `ptrace` request. The type of a request's number depends on the C library.
pub(super) fn request(
    request: impl Into<i64>,
    tid: i32,
    addr: usize,
    data: usize,
) -> io::Result<()> {
    // SAFETY: callers pass numbers, or the address of memory that lives across the call.
    match unsafe { libc::ptrace(request.into() as _, tid, addr, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Whether seizing a thread suspends its seccomp filters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seccomp {
    /// The thread has no seccomp filter.
    None,
    /// The filters are suspended while the thread is traced; needs `CAP_SYS_ADMIN`.
    Suspend,
}

impl Seccomp {
    fn option(self) -> usize {
        match self {
            Seccomp::None => 0,
            Seccomp::Suspend => PTRACE_O_SUSPEND_SECCOMP,
        }
    }
}

/// Begins to trace a thread without stopping it.
///
/// # Errors
/// `EPERM` if tracing is not permitted, or if the thread is already traced; `ESRCH`.
pub fn seize(tid: i32, seccomp: Seccomp) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, seccomp.option())
}

/// Lets a stopped thread report its system calls and the threads that it starts, which are then
/// traced as well, and if `exit` is set also that it is about to end.
///
/// # Errors
/// `ESRCH`.
pub fn report_calls(tid: i32, seccomp: Seccomp, exit: bool) -> io::Result<()> {
    let mut options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE;
    if exit {
        options |= libc::PTRACE_O_TRACEEXIT;
    }
    let options = options as usize | seccomp.option();
    request(libc::PTRACE_SETOPTIONS, tid, 0, options)
}

/// Asks a traced thread to stop.
///
/// # Errors
/// `ESRCH`.
pub fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Detaches from a stopped thread. If the stop interrupted a system call, the kernel restarts the
/// call.
///
/// # Errors
/// `ESRCH`.
pub fn detach(tid: i32) -> io::Result<()> {
    if let Ok(mut registers) = registers(tid)
        && registers.make_again(Waited::Perhaps)
    {
        set_registers(tid, &registers)?;
    }
    request(libc::PTRACE_DETACH, tid, 0, 0)
}

/// Event of a traced thread: a stop, or the thread's exit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Stopped on the tracer's request.
    Trap,
    /// In a group-stop, like the other threads of its process.
    GroupStop,
    /// Stopped before this signal is delivered.
    Signal(i32),
    /// Stopped at a system call.
    Syscall,
    /// Stopped after it has started another thread.
    Clone,
    /// Stopped at its end, before it has closed its files.
    Ending,
    /// Exited or killed.
    Ended,
}

/// Waits for the next stop of a thread. Returns `None` after the timeout.
pub fn wait(tid: i32, timeout: Duration) -> Option<Wait> {
    let until = Instant::now() + timeout;
    let mut rounds = 0u32;
    loop {
        if let Some(stop) = look(tid) {
            return Some(stop);
        }
        rounds += 1;
        if rounds < 200 {
            super::own_process::breathe();
        } else if Instant::now() > until {
            return None;
        } else if rounds.is_multiple_of(100) && is_ended_leader(tid) {
            // The kernel reports the end of a first thread only after those of all others, which
            // this process may trace.
            return Some(Wait::Ended);
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// True if `tid` is the first thread of a process and has ended. The end of any other thread must be
/// waited for, or it remains.
fn is_ended_leader(tid: i32) -> bool {
    let status = TaskStatus::read(tid).unwrap_or_default();
    status.process() == Some(tid) && status.has_ended()
}

/// Returns the stop of a thread; `None` if the thread runs.
///
/// The report of a stop is not consumed: if this process is killed before it resumes the thread, the
/// kernel still delivers the signal at which the thread has stopped.
pub fn look(tid: i32) -> Option<Wait> {
    // SAFETY: all-zero bytes are a valid value.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WSTOPPED | libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: the structure lives across the call.
    let done = unsafe { libc::waitid(libc::P_PID, tid as u32, &mut found, options) };
    // SAFETY: `waitid` fills in both fields, or leaves them zero.
    let (pid, code) = unsafe { (found.si_pid(), found.si_status()) };
    if done == 0 && pid == 0 {
        return None;
    }
    if done < 0 || ![libc::CLD_TRAPPED, libc::CLD_STOPPED].contains(&found.si_code) {
        // SAFETY: the call takes numbers and a null pointer, which is allowed.
        unsafe { libc::waitpid(tid, ptr::null_mut(), libc::__WALL | libc::WNOHANG) };
        return Some(Wait::Ended);
    }
    let signal = code & 0xff;
    Some(match (code >> 8, signal) {
        (EVENT_STOP, libc::SIGTRAP) => Wait::Trap,
        (EVENT_STOP, _) => Wait::GroupStop,
        (0, signal) if signal == libc::SIGTRAP | 0x80 => Wait::Syscall,
        (libc::PTRACE_EVENT_CLONE, _) => Wait::Clone,
        (libc::PTRACE_EVENT_EXIT, _) => Wait::Ending,
        (_, signal) => Wait::Signal(signal),
    })
}

/// Returns the registers of a stopped thread.
///
/// # Errors
/// `ESRCH`.
pub fn registers(tid: i32) -> io::Result<Registers> {
    let mut words = [0; MOST_WORDS];
    let mut vector = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: size_of_val(&words),
    };
    let address = ptr::from_mut(&mut vector) as usize;
    request(libc::PTRACE_GETREGSET, tid, NT_PRSTATUS, address)?;
    Ok(Registers {
        words,
        count: vector.iov_len / 8,
    })
}

/// Sets the registers of a stopped thread.
///
/// # Errors
/// `ESRCH`.
pub fn set_registers(tid: i32, registers: &Registers) -> io::Result<()> {
    let vector = libc::iovec {
        iov_base: registers.words.as_ptr().cast_mut().cast(),
        iov_len: registers.count * 8,
    };
    let address = ptr::from_ref(&vector) as usize;
    request(libc::PTRACE_SETREGSET, tid, NT_PRSTATUS, address)
}

/// Returns the mask of signals that a stopped thread blocks.
///
/// # Errors
/// `ESRCH`.
pub fn mask(tid: i32) -> io::Result<u64> {
    let mut mask = 0u64;
    request(PTRACE_GETSIGMASK, tid, 8, ptr::from_mut(&mut mask) as usize)?;
    Ok(mask)
}

/// Sets the mask of signals that a stopped thread blocks.
///
/// # Errors
/// `ESRCH`.
pub fn set_mask(tid: i32, mask: u64) -> io::Result<()> {
    request(PTRACE_SETSIGMASK, tid, 8, ptr::from_ref(&mask) as usize)
}

/// True if a signal that tells a stopped thread of its own fault (SIGSYS, SIGSEGV and the like) will be
/// delivered as soon as the thread runs. Its handler may change the registers with which the fault
/// happened, so they must not be exchanged before.
pub fn has_fault_pending(tid: i32) -> bool {
    const FAULTS: [libc::c_int; 6] = [
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGSEGV,
        libc::SIGSYS,
    ];
    let bit = |signal: libc::c_int| 1u64 << (signal - 1);
    // Without a mask the thread was killed.
    let blocked = mask(tid).unwrap_or(u64::MAX);
    let mut pending = pending_signals(tid);
    pending.any(|signal| FAULTS.contains(&signal) && blocked & bit(signal) == 0)
}

/// Returns the first signals that are pending for a stopped thread alone.
fn pending_signals(tid: i32) -> impl Iterator<Item = libc::c_int> {
    /// `struct ptrace_peeksiginfo_args`; without flags it asks for the thread's own queue.
    #[repr(C)]
    struct Asked {
        offset: u64,
        flags: u32,
        count: i32,
    }
    const MOST: usize = 8;
    // SAFETY: all-zero bytes are valid values.
    let mut found: [libc::siginfo_t; MOST] = unsafe { std::mem::zeroed() };
    let asked = Asked {
        offset: 0,
        flags: 0,
        count: MOST as i32,
    };
    // SAFETY: both structures live across the call, which writes at most as many as are asked for.
    let count = unsafe {
        libc::ptrace(
            libc::PTRACE_PEEKSIGINFO,
            tid,
            &raw const asked,
            found.as_mut_ptr(),
        )
    };
    let count = usize::try_from(count).unwrap_or(0);
    found.into_iter().take(count).map(|info| info.si_signo)
}

/// Syscall User Dispatch of a thread, in the order of `struct ptrace_sud_config`; `mode` is 0 if the
/// thread does not use it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dispatch {
    /// `PR_SYS_DISPATCH_ON`, or 0.
    pub mode: u64,
    /// Address of the selector byte, or 0 if all calls are dispatched.
    pub selector: u64,
    /// Start of the range from which calls are not dispatched.
    pub offset: u64,
    /// Length of that range.
    pub len: u64,
}

/// Returns a stopped thread's Syscall User Dispatch; `mode` is 0 before Linux 6.4, which cannot tell.
pub fn dispatch(tid: i32) -> Dispatch {
    let mut found = Dispatch::default();
    let address = ptr::from_mut(&mut found) as usize;
    let size = size_of::<Dispatch>();
    match request(PTRACE_GET_SYSCALL_USER_DISPATCH, tid, size, address) {
        Ok(()) => found,
        Err(_) => Dispatch::default(),
    }
}

/// `struct ptrace_rseq_configuration`.
#[derive(Default)]
#[repr(C)]
struct RseqConfiguration {
    area: u64,
    bytes: u32,
    signature: u32,
    flags: u32,
    pad: u32,
}

/// Returns the address of a stopped thread's `struct rseq`, or `None` if the thread has none.
///
/// # Errors
/// `ESRCH`; `EIO` before Linux 5.13.
pub fn rseq_area(tid: i32) -> io::Result<Option<u64>> {
    let mut found = RseqConfiguration::default();
    let address = ptr::from_mut(&mut found) as usize;
    let size = size_of::<RseqConfiguration>();
    request(PTRACE_GET_RSEQ_CONFIGURATION, tid, size, address)?;
    Ok((found.bytes > 0).then_some(found.area))
}

/// Sends a signal to one thread.
///
/// # Errors
/// `ESRCH`, `EPERM`.
pub fn signal_thread(pid: i32, tid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    match unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns a table of calls as bytes, so that it can be written to another process.
pub fn bytes_of(calls: &[Call]) -> &[u8] {
    // SAFETY: a call consists of numbers, without padding.
    unsafe { slice::from_raw_parts(calls.as_ptr().cast(), size_of_val(calls)) }
}

/// Returns a table of calls as mutable bytes, so that it can be read from another process.
pub fn bytes_of_mut(calls: &mut [Call]) -> &mut [u8] {
    // SAFETY: a call consists of numbers, without padding; any bytes form a valid call.
    unsafe { slice::from_raw_parts_mut(calls.as_mut_ptr().cast(), size_of_val(calls)) }
}
