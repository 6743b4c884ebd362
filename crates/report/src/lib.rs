//! Pictures of an address space: its mappings, its anatomy, and the graph of its VMAs.
//!
//! These are the analysis programs of "VMA merging in Linux" (section 3.2), for a live process, a
//! recorded one, or one of the core. This crate holds models and ways to draw them; it judges nothing
//! and changes nothing.
#![forbid(unsafe_code)]

pub mod anatomy;
pub mod flags;
pub mod graph;
pub mod maps;
pub mod shown;
mod svg;
