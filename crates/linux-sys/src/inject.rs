//! System calls made by a stopped thread of another process.
//!
//! There are two methods of making such calls. The first makes one call at a time through a
//! `syscall` instruction that the process already contains; it is slow but needs no preparation.
//! The second executes a table of calls ([`Call`]) with an *agent*: a few instructions on a
//! separate page. The agent uses no stack, stops at the first failing call, and finally stops the
//! process. The caller restores the registers and the signal mask at a signal stop, where the
//! kernel can still restart the interrupted call.
//!
//! # Linux
//! `ptrace(2)`: `PTRACE_SEIZE`, `PTRACE_GETREGSET`, `PTRACE_SETSIGMASK`. x86-64 and aarch64.

use std::io;
use std::ptr;
use std::slice;
use std::time::{Duration, Instant};

use super::calls::Call;
use super::syscall_restart::Waited;

const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;
const PTRACE_O_SUSPEND_SECCOMP: usize = 1 << 21;
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

    /// Machine code of `syscall`.
    pub const SYSCALL: &[u8] = &[0x0f, 0x05];
    /// Index of the instruction pointer in `user_regs_struct`, in words.
    pub const PC: usize = 16;
    pub const SP: usize = 19;
    pub const FP: usize = 4;
    pub const CALL: usize = ORIG_RAX;
    pub const NR: usize = 10;
    pub const RESULT: usize = 10;
    pub const ARGS: [usize; 6] = [14, 13, 12, 7, 9, 8];
    /// Indices of r12 to r15, the registers that the agent uses.
    pub const AGENT: [usize; 4] = [3, 2, 1, 0];
    const ORIG_RAX: usize = 15;
    const CS: usize = 17;
    const CS_64: u64 = 0x33;

    pub fn forget_call(words: &mut [u64]) {
        words[ORIG_RAX] = u64::MAX;
    }

    pub fn is_64_bit(words: &[u64]) -> bool {
        words[CS] == CS_64
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

    core::arch::global_asm!(
        ".pushsection .rodata",
        ".globl vmarea_agent_begin, vmarea_agent_end",
        ".hidden vmarea_agent_begin",
        ".hidden vmarea_agent_end",
        "vmarea_agent_begin:",
        "2: cmp r12, r13",
        "jae 3f",
        "mov rax, [r12]",
        "mov rdi, [r12 + 8]",
        "mov rsi, [r12 + 16]",
        "mov rdx, [r12 + 24]",
        "mov r10, [r12 + 32]",
        "mov r8, [r12 + 40]",
        "mov r9, [r12 + 48]",
        "syscall",
        "mov [r12 + 56], rax",
        "cmp rax, -4095",
        "jae 3f",
        "add r12, 128",
        "jmp 2b",
        "3: mov eax, 234", // tgkill(pid, tid, SIGSTOP)
        "mov rdi, r14",
        "mov rsi, r15",
        "mov edx, 19",
        "syscall",
        "jmp 3b",
        "vmarea_agent_end:",
        ".popsection",
    );
}

#[cfg(target_arch = "aarch64")]
mod arch {
    /// Machine code of `svc #0`.
    pub const SYSCALL: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
    pub const PC: usize = 32;
    pub const SP: usize = 31;
    pub const FP: usize = 29;
    pub const CALL: usize = NR;
    pub const NR: usize = 8;
    pub const RESULT: usize = 0;
    pub const ARGS: [usize; 6] = [0, 1, 2, 3, 4, 5];
    /// Indices of x19 to x22, the registers that the agent uses.
    pub const AGENT: [usize; 4] = [19, 20, 21, 22];

    /// Does nothing: the kernel prepares the restart before a tracer reads the registers.
    pub fn forget_call(_: &mut [u64]) {}

    pub fn is_64_bit(words: &[u64]) -> bool {
        words.len() == super::MOST_WORDS
    }

    /// Returns false: the kernel prepares any restart before a tracer reads the registers.
    pub fn make_again(_: &mut [u64], _: crate::syscall_restart::Waited) -> bool {
        false
    }

    core::arch::global_asm!(
        ".pushsection .rodata",
        ".balign 4",
        ".globl vmarea_agent_begin, vmarea_agent_end",
        ".hidden vmarea_agent_begin",
        ".hidden vmarea_agent_end",
        "vmarea_agent_begin:",
        "2: cmp x19, x20",
        "b.hs 3f",
        "ldr x8, [x19]",
        "ldp x0, x1, [x19, #8]",
        "ldp x2, x3, [x19, #24]",
        "ldp x4, x5, [x19, #40]",
        "svc #0",
        "str x0, [x19, #56]",
        "cmn x0, #4095",
        "b.hs 3f",
        "add x19, x19, #128",
        "b 2b",
        "3: mov x8, #131", // tgkill(pid, tid, SIGSTOP)
        "mov x0, x21",
        "mov x1, x22",
        "mov x2, #19",
        "svc #0",
        "b 3b",
        "vmarea_agent_end:",
        ".popsection",
    );
}

unsafe extern "C" {
    static vmarea_agent_begin: u8;
    static vmarea_agent_end: u8;
}

/// Returns the agent's machine code.
pub fn agent_code() -> &'static [u8] {
    let (begin, end) = (&raw const vmarea_agent_begin, &raw const vmarea_agent_end);
    // SAFETY: both labels are in one section, in this order, with the agent's bytes between them.
    unsafe { slice::from_raw_parts(begin, end.offset_from(begin) as usize) }
}

/// Returns the machine code of a system-call instruction.
pub fn syscall_instruction() -> &'static [u8] {
    arch::SYSCALL
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

    /// Returns a copy of these registers, changed to make `call` with the system-call instruction
    /// at `place`.
    pub fn calling(mut self, place: u64, call: &Call) -> Registers {
        arch::forget_call(&mut self.words);
        self.words[arch::NR] = call.nr as u64;
        for (register, value) in arch::ARGS.iter().zip(call.args) {
            self.words[*register] = value;
        }
        self.words[arch::PC] = place;
        self
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

    /// Returns a copy of these registers, changed to execute a table of calls with the agent at
    /// `code`.
    pub fn agent(mut self, code: u64, table: (u64, u64), ids: (i32, i32)) -> Registers {
        arch::forget_call(&mut self.words);
        let values = [table.0, table.1, ids.0 as u64, ids.1 as u64];
        for (register, value) in arch::AGENT.iter().zip(values) {
            self.words[*register] = value;
        }
        self.words[arch::PC] = code;
        self
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

/// Begins to trace a thread without stopping it.
///
/// # Errors
/// `EPERM` if tracing is not permitted, or if the thread is already traced; `ESRCH`.
pub fn seize(tid: i32, seccomp: Seccomp) -> io::Result<()> {
    let options = match seccomp {
        Seccomp::None => 0,
        Seccomp::Suspend => PTRACE_O_SUSPEND_SECCOMP,
    };
    request(libc::PTRACE_SEIZE, tid, 0, options)
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
    /// Exited or killed.
    Ended,
}

/// Waits for the next stop of a thread. Returns `None` after the timeout.
pub fn wait(tid: i32, timeout: Duration) -> Option<Wait> {
    let until = Instant::now() + timeout;
    let mut rounds = 0u32;
    loop {
        let mut status = 0;
        // SAFETY: the status lives across the call.
        let got = unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG) };
        if got == tid {
            if !libc::WIFSTOPPED(status) {
                return Some(Wait::Ended);
            }
            let signal = libc::WSTOPSIG(status);
            return Some(match (status >> 16, signal) {
                (EVENT_STOP, libc::SIGTRAP) => Wait::Trap,
                (EVENT_STOP, _) => Wait::GroupStop,
                (0, signal) if signal == libc::SIGTRAP | 0x80 => Wait::Syscall,
                (_, signal) => Wait::Signal(signal),
            });
        }
        if got < 0 {
            return Some(Wait::Ended);
        }
        rounds += 1;
        if rounds < 200 {
            super::own_process::breathe();
        } else if Instant::now() > until {
            return None;
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
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
