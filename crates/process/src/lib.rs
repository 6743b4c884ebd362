//! A live Linux process as the rest of the workspace sees it.
//!
//! It reads `/proc` (maps, smaps, limits, credentials, the executable) and the kernel's own view of
//! an address space, which a BPF iterator provides. It only observes; `repair` changes processes.
#![forbid(unsafe_code)]

pub mod executable;
pub mod maps;
pub mod processes;
pub mod rights;
pub mod system;
pub mod view;
