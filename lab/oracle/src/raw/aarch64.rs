//! What the children need of AArch64: system calls, memory accesses, and the registers of a signal.

use super::touch::Touched;

/// Makes one system call without the C library, which would store `errno` in thread-local memory.
///
/// # Safety
/// The safety requirements of the system call itself.
pub unsafe fn raw_call(number: u64, args: [u64; 6]) -> i64 {
    let result: u64;
    // SAFETY: by the kernel's calling convention on AArch64, the call changes only x0; the caller
    // guarantees that its other effects are sound.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    result.cast_signed()
}

std::arch::global_asm!(
    ".pushsection .text.vmarea_touch,\"ax\",@progbits",
    ".globl vmarea_touch_read",
    "vmarea_touch_read:",
    "ldr x0, [x0]",
    "mov x1, xzr",
    "ret",
    ".globl vmarea_touch_write",
    "vmarea_touch_write:",
    "str x1, [x0]",
    "mov x0, xzr",
    "mov x1, xzr",
    ".globl vmarea_touch_end",
    "vmarea_touch_end:",
    "ret",
    ".globl vmarea_signal_return",
    "vmarea_signal_return:",
    "mov x8, 139",
    "svc 0",
    ".popsection",
);

/// Returns the address of the instruction that caused a signal.
pub(super) fn program_counter(registers: &libc::mcontext_t) -> u64 {
    registers.pc
}

/// Makes the interrupted function continue at `end`, its last instruction, and return `touched`.
pub(super) fn return_from(registers: &mut libc::mcontext_t, end: u64, touched: Touched) {
    registers.pc = end;
    registers.regs[0] = touched.value;
    registers.regs[1] = touched.signal;
}
