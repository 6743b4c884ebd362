//! System calls that no library of ours wraps, behind safe functions.
//!
//! Each file is one door into the kernel: `bpf` loads and runs an iterator program, `btf` reads
//! the kernel's type information, `perf` opens events, `ring` reads their samples, `procmap` asks
//! for one mapping. They know numbers and layouts of the kernel's ABI and nothing of what is read
//! through them. All `unsafe` of this crate is here.

pub(crate) mod bpf;
pub(crate) mod btf;
#[allow(dead_code, reason = "repairs of another process use the rest")]
pub(crate) mod calls;
pub(crate) mod inject;
#[cfg(target_arch = "x86_64")]
pub(crate) mod oracle;
pub(crate) mod own;
pub(crate) mod perf;
pub(crate) mod procmap;
pub(crate) mod ptrace;
#[cfg(target_arch = "x86_64")]
mod restart;
pub(crate) mod ring;
#[allow(
    clippy::deref_addrof,
    reason = "no reference to what the other side may change"
)]
pub(crate) mod sidecar;
pub(crate) mod spawn;
pub(crate) mod touch;
pub(crate) mod uffd;

#[cfg(test)]
pub(crate) mod child;
#[cfg(test)]
pub(crate) mod pieces;
