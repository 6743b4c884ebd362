//! A live Linux process as the rest of the workspace sees it, and what could be merged in it.
//!
//! It reads `/proc` (maps, smaps, pagemap, limits, credentials, the executable) and the kernel's own
//! view of an address space, which a BPF iterator provides. One model of a process comes out, and
//! one decision about each pair of neighbours: why they are two mappings, and what would make them
//! one. `explain`, `top`, `show` and `repair` all ask it. Nothing here changes a process; `repair` does.
//!
//! # Picture
//! ```text
//! maps, smaps, view ─▶ Mappings ─▶ Process ─▶ boundaries: Pair ─▶ the core's decision ─▶ Boundary
//! a pasted file, a replay ───────────┘                                  Reason ─▶ Remedy ─┘
//! ```
#![forbid(unsafe_code)]

pub mod boundary;
pub mod executable;
pub mod mapping;
pub mod mappings;
pub mod maps;
pub mod pagemap;
pub mod pair;
pub mod process;
pub mod processes;
pub mod reason;
pub mod remedy;
pub mod rights;
pub mod system;
pub mod view;

pub use boundary::{Boundary, boundaries};
pub use mapping::Mapping;
pub use mappings::{Mappings, Smaps, Source};
pub use process::{AskKernel, Process, ProcessError};
pub use reason::{Certainty, Reason};
pub use remedy::Remedy;
