//! Model of a live Linux process and its mappings, and why neighbouring mappings are separate.
//!
//! This crate reads `/proc` (maps, smaps, pagemap, limits, credentials, the executable) and,
//! through a BPF iterator, the kernel view: fields of `mm_struct` and `vm_area_struct`. From this
//! data, it builds a model of the process. For each pair of neighbouring mappings, it determines
//! why the two are separate and which remedy would merge them. `explain`, `top`, `show` and
//! `repair` all use these results. This crate never changes a process; `repair` does.
//!
//! # Picture
//! ```text
//! maps, smaps, view ─▶ Mappings ─▶ Process ─▶ boundaries: Pair ─▶ the core's decision ─▶ Boundary
//! a pasted file, a replay ───────────┘                                  Reason ─▶ Remedy ─┘
//! Remedies, Pages ─▶ plan::predict ─▶ the mappings that remain
//! ```
#![forbid(unsafe_code)]

pub mod boundary;
pub mod evidence;
pub mod guard;
pub mod identity;
pub mod kernel;
pub mod mapping;
pub mod mappings;
pub mod maps;
pub mod pagemap;
pub mod pages;
pub mod pair;
pub mod pasted;
pub mod plan;
pub mod probed;
pub mod process;
pub mod processes;
pub mod reason;
pub mod remedy;
pub mod rights;
pub mod system;
pub mod unseen;
pub mod view;

pub use boundary::{Boundary, boundaries};
pub use mapping::Mapping;
pub use mappings::{Mappings, Smaps, Source};
pub use process::{AskKernel, Process, ProcessError};
pub use reason::{Certainty, Reason};
pub use remedy::Remedy;
