//! What Linux tells about processes, and how it is recorded.
//!
//! `/proc`, the kernel's own view of an address space by BPF, and page faults and lock
//! acquisitions by perf events. Everything here is observation: what it means is decided in the
//! crate `vmarea` and compared in `vmarea-lab`. System calls that need `unsafe` are in `sys`,
//! which nothing outside of this crate sees.

#![deny(unsafe_code)]

pub mod executable;
pub mod maps;
#[cfg(target_arch = "x86_64")]
pub mod oracle;
pub mod processes;
pub mod record;
pub mod repair;
pub mod rights;
pub mod samples;
#[allow(unsafe_code)]
mod sys;
pub mod system;
pub mod touch;
pub mod view;
