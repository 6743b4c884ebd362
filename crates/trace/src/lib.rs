//! The event format of recorded address spaces: what is recorded, how it lies in a file, and how
//! other tools' records become it.
//!
//! A recorder gives [`event::Event`]s to a [`Writer`]; a replayer takes them from a [`Reader`].
//! [`dump`] prints them for people, [`import`] makes them of `strace` and `perf` text. What the
//! events *mean* for an address space is deliberately absent: that is the replayer's work.
//!
//! # Picture
//! ```text
//! recorder ────────┐                                  ┌─ replay
//! import::strace ──┼─ Event ─ Writer ═ file ═ Reader ─┤
//! import::perf ────┘          encode         decode   └─ dump
//! ```

#![forbid(unsafe_code)]

mod block;
mod decode;
pub mod dump;
mod encode;
mod error;
pub mod event;
pub mod import;
pub mod names;
mod rare;
pub mod reader;
mod record;
mod snapshot;
pub mod sysno;
mod varint;
pub mod writer;

pub use error::Error;
pub use reader::Reader;
pub use writer::Writer;

/// The example of the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
