//! A program's registers, as the entry code saves them.

/// Selector of the user code segment.
const USER_CODE: u64 = 0x23;
/// Selector of the user data segment.
const USER_DATA: u64 = 0x1b;
/// Selector of the kernel's code segment.
const KERNEL_CODE: u64 = 0x8;
/// Selector of the kernel's data segment.
const KERNEL_DATA: u64 = 0x10;
/// RFLAGS of a kernel thread: interrupts are off, and bit 1 is always set.
const KERNEL_FLAGS: u64 = 0x2;
/// RFLAGS of a new program: interrupts are on, and bit 1 is always set.
const USER_FLAGS: u64 = 0x202;
/// RFLAGS bits that a program may change: arithmetic, direction, trap, alignment check, ID.
const CHOSEN_FLAGS: u64 = 0x24_0dd5;

/// The saved registers on a thread's kernel stack, in ascending order of addresses.
///
/// `entry.s` pushes these fields in the reverse order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    /// Vector of the trap, or [`SYSTEM_CALL`](Self::SYSTEM_CALL) for a system call.
    pub vector: u64,
    /// Error code of the trap, or the system call's number in Linux.
    pub error_or_call: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

impl Registers {
    /// Value of `vector` for a system call.
    pub const SYSTEM_CALL: u64 = 0x80;

    /// Returns the registers of a program that starts at `rip` with the stack pointer `rsp`.
    pub fn at_start(rip: u64, rsp: u64) -> Self {
        Registers {
            rip,
            rsp,
            cs: USER_CODE,
            ss: USER_DATA,
            rflags: USER_FLAGS,
            ..Registers::default()
        }
    }

    /// Returns the registers of a kernel thread that starts at `rip`.
    pub fn in_kernel(rip: u64, rsp: u64) -> Self {
        Registers {
            rip,
            rsp,
            cs: KERNEL_CODE,
            ss: KERNEL_DATA,
            rflags: KERNEL_FLAGS,
            ..Registers::default()
        }
    }

    /// True if the trap came from user mode.
    pub fn is_from_user(&self) -> bool {
        self.cs & 3 != 0
    }

    /// Sets the flags that a program may change.
    pub fn set_user_flags(&mut self, flags: u64) {
        self.rflags = flags & CHOSEN_FLAGS | USER_FLAGS;
    }
}
