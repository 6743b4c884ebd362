//! Raw Linux system calls, each behind a function that a caller cannot misuse.
//!
//! This crate and the C interface of `preload` hold all `unsafe` code above the core. Each file
//! covers one interface of the kernel: `bpf` loads and runs an iterator program, `btf` reads the
//! kernel's type information, `perf` opens events, `ring` reads their samples, `procmap` queries
//! one mapping, `inject` makes calls in another process. They know the numbers and layouts of the
//! kernel's ABI; the crates above interpret the results.

/// Bytes of a page: addresses and lengths of the calls here are multiples of it.
pub const PAGE: u64 = 4096;

pub mod bpf;
pub mod btf;
#[allow(dead_code, reason = "repairs of another process use the rest")]
pub mod calls;
pub mod inject;
#[cfg(target_arch = "x86_64")]
pub mod oracle;
pub mod own_process;
pub mod perf;
pub mod procmap;
pub mod ptrace;
pub mod ring;
#[allow(
    clippy::deref_addrof,
    reason = "no reference to what the other side may change"
)]
pub mod sidecar;
pub mod spawn;
#[cfg(target_arch = "x86_64")]
mod syscall_restart;
pub mod touch;
pub mod uffd;

#[cfg(any(test, feature = "testing"))]
pub mod child;
#[cfg(any(test, feature = "testing"))]
pub mod test_memory;
