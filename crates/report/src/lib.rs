//! What an address space looks like: its mappings, where its parts lie, and the graph of its VMAs,
//! anon_vmas and chains.
//!
//! The analysis programs of the thesis (its 3.2), for any process: one that runs, one that was
//! recorded, or one of our own core. Everything here is a model and ways to draw it; nothing is
//! judged, and nothing in a process is changed.

pub mod anatomy;
pub mod flags;
pub mod graph;
pub mod maps;
pub mod process;
mod svg;
