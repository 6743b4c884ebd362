//! The signal frame on the program's stack: built for a handler, restored by `rt_sigreturn`.
//!
//! # Picture
//! ```text
//! low   word 0        address of the restorer, to which the handler returns
//!       words 1..39   `struct ucontext`: flags, link, stack (3), `sigcontext` (32), signal mask
//!       words 39..55  `siginfo_t`
//! high  512 bytes     vector registers, at a multiple of 64
//! ```

use crate::cpu::Registers;
use crate::failure::Failure;
use crate::process::Thread;
use crate::process::signal::{Action, SigInfo, UNSTOPPABLE};
use crate::scheduler::task::VectorState;
use crate::space::TASK_SIZE;
use linux_raw_sys::errno::EFAULT;
use linux_raw_sys::general::{SA_ONSTACK, SS_DISABLE};

/// Size of the area below the stack pointer that a program may use without moving the pointer.
const RED_ZONE: u64 = 128;
const WORDS: usize = 55;
const CONTEXT: usize = 1;
const STACK: usize = CONTEXT + 2;
const REGISTERS: usize = CONTEXT + 5;
/// Index of the pointer to the vector registers in `sigcontext`, in words.
const VECTOR: usize = 23;
const MASK: usize = REGISTERS + 32;
const INFO: usize = MASK + 1;
/// Segment selectors in the layout of `sigcontext`: stack, fs, gs, code.
const SELECTORS: u64 = 0x1b << 48 | 0x23;
/// `UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`.
const CONTEXT_FLAGS: u64 = 6;

/// Pushes the signal frame onto the program's stack and makes the thread enter the handler.
pub fn push(
    thread: &Thread,
    registers: &mut Registers,
    info: &SigInfo,
    action: &Action,
) -> Result<(), Failure> {
    let mm = thread.process.mm().ok_or(EFAULT)?;
    let (stack, mask) = {
        let signals = thread.signals.lock();
        (signals.stack, signals.mask_after.unwrap_or(signals.mask))
    };
    let on_stack = registers.rsp.wrapping_sub(stack.start) < stack.size;
    let top = match action.has(SA_ONSTACK) && stack.size != 0 && !on_stack {
        true => stack.start + stack.size,
        false => registers.rsp.wrapping_sub(RED_ZONE),
    };
    let vector = top.wrapping_sub(512) & !63;
    // Aligned as after a call instruction: 8 below a multiple of 16.
    let frame = (vector.wrapping_sub(8 * WORDS as u64) & !15).wrapping_sub(8);
    let mut words = [0u64; WORDS];
    words[0] = action.restorer;
    words[CONTEXT] = CONTEXT_FLAGS;
    let stack_flags = if stack.size == 0 {
        u64::from(SS_DISABLE)
    } else {
        0
    };
    words[STACK..STACK + 3].copy_from_slice(&[stack.start, stack_flags, stack.size]);
    words[REGISTERS..MASK].copy_from_slice(&saved(registers, info, vector));
    words[MASK] = mask;
    words[INFO] = u64::from(info.number);
    words[INFO + 1] = u64::from(info.code as u32);
    words[INFO + 2..INFO + 4].copy_from_slice(&info.words);
    mm.write(vector, &thread.task.vector_state().0)?;
    mm.write_values(frame, &words)?;
    thread.signals.lock().mask_after = None;
    registers.rsp = frame;
    registers.rip = action.handler;
    registers.rdi = u64::from(info.number);
    registers.rsi = frame + 8 * INFO as u64;
    registers.rdx = frame + 8 * CONTEXT as u64;
    registers.rax = 0;
    registers.set_user_flags(0);
    check(registers)
}

/// Returns a `sigcontext` that contains the thread's registers.
fn saved(r: &Registers, info: &SigInfo, vector: u64) -> [u64; 32] {
    let mut words = [0; 32];
    let registers = [
        r.r8,
        r.r9,
        r.r10,
        r.r11,
        r.r12,
        r.r13,
        r.r14,
        r.r15,
        r.rdi,
        r.rsi,
        r.rbp,
        r.rbx,
        r.rdx,
        r.rax,
        r.rcx,
        r.rsp,
        r.rip,
        r.rflags,
        SELECTORS,
        r.error_or_call,
        r.vector,
        0,
        info.words[0],
    ];
    words[..VECTOR].copy_from_slice(&registers);
    words[VECTOR] = vector;
    words
}

/// Resumes the thread where a signal handler interrupted it (`rt_sigreturn`).
///
/// # Errors
/// EFAULT if the frame cannot be read, or its instruction pointer is a kernel address.
pub fn give_back(thread: &Thread, r: &mut Registers) -> Result<(), Failure> {
    let mm = thread.process.mm().ok_or(EFAULT)?;
    let context: [u64; INFO - CONTEXT] = mm.read_array(r.rsp)?;
    let words = &context[REGISTERS - CONTEXT..];
    let (vector, mask) = (words[VECTOR], context[MASK - CONTEXT]);
    if vector != 0 {
        let mut state = VectorState::initial();
        mm.read(vector, &mut state.0)?;
        thread.task.set_vector_state(state);
    }
    #[rustfmt::skip]
    let [r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags, ..] =
        *words else { return Err(EFAULT.into()) };
    *r = Registers {
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rdi,
        rsi,
        rbp,
        rbx,
        rdx,
        rax,
        rcx,
        ..Registers::at_start(rip, rsp)
    };
    r.set_user_flags(flags);
    thread.signals.lock().mask = mask & !UNSTOPPABLE;
    check(r)
}

/// Rejects register values with which the processor could not return to user mode.
fn check(registers: &Registers) -> Result<(), Failure> {
    match registers.rip < TASK_SIZE {
        true => Ok(()),
        false => Err(EFAULT.into()),
    }
}
