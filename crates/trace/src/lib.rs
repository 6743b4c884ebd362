//! Traces of address spaces: events, the file format, and importers of other tools' output.
//!
//! A recorder passes [`event::Event`]s to a [`Writer`]; a replayer reads them from a [`Reader`].
//! [`dump`] prints events as text, and [`import`] converts `strace` and `perf` output to events.
//! This crate does not interpret events; the replayer does.
//!
//! # Picture
//! ```text
//! recorder ────────┐                                  ┌─ replay
//! import::strace ──┼─ Event ─ Writer ═ file ═ Reader ─┤
//! import::perf ────┘          encode         decode   └─ dump
//! ```

#![forbid(unsafe_code)]

mod block;
pub mod date;
mod decode;
pub mod dump;
mod encode;
mod error;
pub mod event;
pub mod import;
pub mod inputs;
pub mod names;
mod perms;
mod previous;
mod rare_events;
pub mod reader;
mod record;
pub mod setting;
mod snapshot;
pub mod sysno;
pub mod varint;
pub mod writer;

pub use block::MAGIC;
pub use error::Error;
pub use reader::Reader;
pub use writer::Writer;

/// Compiles the README's example with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
