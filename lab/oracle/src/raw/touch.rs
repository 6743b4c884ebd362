//! Memory accesses that may cause SIGSEGV or SIGBUS, and handlers for these signals.
//!
//! Each access is one instruction at a known address. If the access causes a signal, the handler
//! resumes execution at the end of the function that makes the access, with the signal and its code
//! in a register. A signal at any other address ends the process.

use super::arch;
use super::raw_call;

/// Result of a memory access.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Touched {
    /// Value that was read.
    pub value: u64,
    /// Signal and its code (`signal << 8 | code`), or 0 if no signal was raised.
    pub signal: u64,
}

unsafe extern "C" {
    fn vmarea_touch_read(addr: u64) -> Touched;
    fn vmarea_touch_write(addr: u64, value: u64) -> Touched;
    fn vmarea_touch_end();
    fn vmarea_signal_return();
}

/// The kernel's `struct sigaction`.
#[repr(C)]
struct KernelSigaction {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

const SA_RESTORER: u64 = 0x0400_0000;

/// Installs the handlers for SIGSEGV and SIGBUS.
///
/// # Safety
/// The process must only execute `executor::run`.
pub unsafe fn catch_signals() {
    let action = KernelSigaction {
        handler: on_signal as *const () as u64,
        flags: SA_RESTORER | libc::SA_SIGINFO as u64 | libc::SA_NODEFER as u64,
        restorer: vmarea_signal_return as *const () as u64,
        mask: 0,
    };
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        let args = [signal as u64, &raw const action as u64, 0, 8, 0, 0];
        // SAFETY: the action is complete, and its handler only does what handlers may do.
        unsafe { raw_call(libc::SYS_rt_sigaction as u64, args) };
    }
}

extern "C" fn on_signal(signal: i32, info: *const libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes valid pointers to a SA_SIGINFO handler.
    unsafe {
        let code = (*info).si_code;
        let registers = &mut (*context).uc_mcontext;
        let at = arch::program_counter(registers);
        let first = vmarea_touch_read as *const () as u64;
        let end = vmarea_touch_end as *const () as u64;
        if at < first || at >= end {
            raw_call(libc::SYS_exit_group as u64, [99, 0, 0, 0, 0, 0]);
        }
        let signal = (signal as u64) << 8 | (code & 0xff) as u64;
        arch::return_from(registers, end, Touched { value: 0, signal });
    }
}

/// Reads eight bytes.
///
/// # Safety
/// Must be called after [`catch_signals`].
pub unsafe fn read(addr: u64) -> Touched {
    // SAFETY: a failing access runs the handler, which the caller has installed.
    unsafe { vmarea_touch_read(addr) }
}

/// Writes eight bytes.
///
/// # Safety
/// Must be called after [`catch_signals`]; nothing else may use the memory at `addr`.
pub unsafe fn write(addr: u64, value: u64) -> Touched {
    // SAFETY: as for `read`; the caller guarantees that the memory may be overwritten.
    unsafe { vmarea_touch_write(addr, value) }
}
