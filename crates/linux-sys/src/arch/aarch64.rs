//! AArch64, which has only the newer of two calls that do the same.

/// The architecture in seccomp's data and in `PTRACE_GET_SYSCALL_INFO`: `AUDIT_ARCH_AARCH64`.
pub const AUDIT: u32 = 0xc000_00b7;
/// `open`: programs call `openat`.
pub const SYS_OPEN: i64 = -1;
/// `fork`: programs call `clone`.
pub const SYS_FORK: i64 = -2;
/// `vfork`: programs call `clone`.
pub const SYS_VFORK: i64 = -3;
/// `arch_prctl`: there is none.
pub const SYS_ARCH_PRCTL: i64 = -4;
/// True if the kernel has the tracepoints `exceptions:page_fault_user` and `page_fault_kernel`.
pub const HAS_FAULT_TRACEPOINTS: bool = false;
