//! Reports on an address space: its mappings, its anatomy, and the graph of its VMAs.
//!
//! These are the analysis programs of "VMA merging in Linux" (section 3.2), for a live process, for
//! a recorded process, or for a process in the core. This crate contains the models and the code
//! that draws them; it decides nothing and changes no process.
#![forbid(unsafe_code)]

pub mod anatomy;
pub mod flags;
pub mod graph;
pub mod maps;
pub mod shown;
mod svg;
