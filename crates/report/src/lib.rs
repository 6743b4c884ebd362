//! Reports on an address space: its mappings, its anatomy, the graph of its VMAs, and pages.
//!
//! This crate implements the analysis programs described in "VMA merging in Linux" (section 3.2)
//! for a live process, a recorded process, or a process in the core. It contains the models and the
//! code that draws them, among them the address spaces of a run over time; it makes no merge
//! decisions and changes no process.
#![forbid(unsafe_code)]

pub mod anatomy;
pub mod apart;
pub mod export;
pub mod flags;
pub mod graph;
pub mod maps;
pub mod page;
pub mod shown;
mod svg;
pub mod timeline;
