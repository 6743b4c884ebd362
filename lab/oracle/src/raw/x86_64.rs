//! What the children need of x86-64: system calls, memory accesses, and the registers of a signal.

use super::touch::Touched;

/// Makes one system call without the C library, which would store `errno` in thread-local memory.
///
/// # Safety
/// The safety requirements of the system call itself.
pub unsafe fn raw_call(number: u64, args: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: by the kernel's calling convention on x86-64, the call changes only rax, rcx and r11;
    // the caller guarantees that its other effects are sound.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as i64 => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

std::arch::global_asm!(
    ".pushsection .text.vmarea_touch,\"ax\",@progbits",
    ".globl vmarea_touch_read",
    "vmarea_touch_read:",
    "xor edx, edx",
    "mov rax, qword ptr [rdi]",
    "ret",
    ".globl vmarea_touch_write",
    "vmarea_touch_write:",
    "xor edx, edx",
    "xor eax, eax",
    "mov qword ptr [rdi], rsi",
    ".globl vmarea_touch_end",
    "vmarea_touch_end:",
    "ret",
    ".globl vmarea_signal_return",
    "vmarea_signal_return:",
    "mov eax, 15",
    "syscall",
    ".popsection",
);

/// Returns the address of the instruction that caused a signal.
pub(super) fn program_counter(registers: &libc::mcontext_t) -> u64 {
    registers.gregs[libc::REG_RIP as usize].cast_unsigned()
}

/// Makes the interrupted function continue at `end`, its last instruction, and return `touched`.
pub(super) fn return_from(registers: &mut libc::mcontext_t, end: u64, touched: Touched) {
    registers.gregs[libc::REG_RIP as usize] = end.cast_signed();
    registers.gregs[libc::REG_RAX as usize] = touched.value.cast_signed();
    registers.gregs[libc::REG_RDX as usize] = touched.signal.cast_signed();
}
