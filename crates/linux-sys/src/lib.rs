//! Raw Linux system calls behind functions that a caller cannot misuse.
//!
//! This crate, `capi` and `repair-capi` contain all `unsafe` code of the product above the core.
//! Each module wraps one kernel interface: `bpf` loads and runs an iterator program, `btf` reads
//! the kernel's type information, `perf` opens events, `ring` reads event samples, `procmap`
//! queries one mapping, `probe` finds out the kernel's rules in a child, `inject` accesses stopped
//! threads, and `agent` is code that runs in another process. `arch` has what differs between
//! architectures. The modules define the constants and data layouts of the kernel's ABI;
//! higher-level crates interpret the results.

/// Page size in bytes. Addresses and lengths passed to this crate's system calls are multiples of
/// the page size.
pub const PAGE: u64 = 4096;

pub mod agent;
pub mod arch;
pub mod bpf;
pub mod btf;
pub mod call_trace;
#[allow(dead_code, reason = "repairs of another process use the rest")]
pub mod calls;
pub mod fault_trace;
pub mod inject;
pub mod marked;
mod open_file;
pub mod own_process;
pub mod own_session;
pub mod perf;
pub mod probe;
pub mod procmap;
pub mod ptrace;
pub mod reaper;
pub mod ring;
pub mod spawn;
pub mod syscall_restart;
pub mod task_status;
pub mod tracefs;
pub mod uffd;

#[cfg(any(test, feature = "testing"))]
pub mod child;
#[cfg(any(test, feature = "testing"))]
pub mod test_memory;
