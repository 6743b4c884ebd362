//! x86-64.

/// The architecture in seccomp's data and in `PTRACE_GET_SYSCALL_INFO`: `AUDIT_ARCH_X86_64`.
pub const AUDIT: u32 = 0xc000_003e;
/// `open`.
pub const SYS_OPEN: i64 = libc::SYS_open;
/// `fork`.
pub const SYS_FORK: i64 = libc::SYS_fork;
/// `vfork`.
pub const SYS_VFORK: i64 = libc::SYS_vfork;
/// `arch_prctl`.
pub const SYS_ARCH_PRCTL: i64 = libc::SYS_arch_prctl;
/// True if the kernel has the tracepoints `exceptions:page_fault_user` and `page_fault_kernel`.
pub const HAS_FAULT_TRACEPOINTS: bool = true;
