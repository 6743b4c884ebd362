//! Lookup caches on recorded programs: hit rates, the bound of what a cache of a thread can reach, and
//! what a lookup costs.
//!
//! A trace is replayed once, with every cache at once in front of the same lookups ([`mod@count`]). The
//! lookups and the changes between them are then repeated on the index alone, with one cache at a
//! time, and timed ([`cost`]). What is recorded are page faults and the calls that shape an address
//! space: lookups that a kernel makes for other reasons (futexes, direct input and output, `/proc`)
//! are not among them.
//!
//! # Linux
//! The tables of "mm: per-thread vma caching" (3.15), and "Optimizing VMA caching" in LWN: their
//! figures stand beside ours in [`workloads`], of another machine and of other programs.

pub mod cost;
pub mod count;
mod log;
pub mod workloads;

pub use count::{Counted, Counter, count};
pub use workloads::{Text, Workload, Workloads};

use super::Ratio;
use cost::Cost;
use serde::Serialize;
use std::io::Read;
use vmarea_replay;
use vmarea_trace::Reader;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] vmarea_trace::Error),
    /// The trace cannot be replayed.
    #[error(transparent)]
    Replay(#[from] vmarea_replay::Error),
    /// The trace shows no lookup.
    #[error(
        "the trace has no page faults and no calls that look for a mapping: nothing to measure"
    )]
    NoLookups,
    /// A cache gave another answer than the index.
    #[error("{cache} gave a wrong answer {times} times; please report this with the trace")]
    Wrong {
        /// Which.
        cache: &'static str,
        /// How often.
        times: u64,
    },
}

/// One cache on one program.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The cache.
    pub cache: &'static str,
    /// Lookups that it answered.
    pub hits: u64,
    /// Per cent of all lookups.
    pub hit_rate: f64,
    /// Per cent of what a cache of a thread can reach. The caches of an address space may have more.
    pub of_bound: f64,
    /// Nanoseconds a lookup, misses and upkeep included.
    pub nanoseconds: f64,
    /// Against no cache in the same round.
    pub ratio: Option<Ratio>,
    /// Per cent of all lookups if the threads came in turn, each on a processor of its own.
    pub hit_rate_in_turn: f64,
}

/// One program.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// As the workload is called, or the trace's file.
    pub name: String,
    /// Lookups by page faults.
    pub by_faults: u64,
    /// Lookups by calls.
    pub by_calls: u64,
    /// Threads that looked anything up; one that executes a program counts again.
    pub threads: u64,
    /// Most VMAs of an address space.
    pub most_vmas: u64,
    /// Lookups whose VMA the same thread had found before: what a cache of a thread can answer.
    pub bound: u64,
    /// Per cent of all lookups.
    pub bound_rate: f64,
    /// The caches.
    pub rows: Vec<Row>,
    /// What the texts say of a program of this kind.
    pub text: Option<Text>,
}

/// Measures one trace, `rounds` times each cache in turn.
///
/// # Errors
/// See [`CacheError`].
pub fn measure(
    name: &str,
    text: Option<Text>,
    trace: Reader<impl Read>,
    rounds: usize,
) -> Result<Table, CacheError> {
    let counted = count(trace)?;
    let lookups = counted.by_faults + counted.by_calls;
    if lookups == 0 {
        return Err(CacheError::NoLookups);
    }
    let costs = cost::measure(&counted.log, rounds);
    let rate = |hits: u64| 100.0 * hits as f64 / lookups as f64;
    let in_turn = cost::hits(&counted.log.in_turn());
    let row = |((counter, cost), in_turn): ((&Counter, Cost), u64)| Row {
        cache: counter.name,
        hits: counter.hits,
        hit_rate: rate(counter.hits),
        of_bound: 100.0 * counter.hits as f64 / counted.bound.max(1) as f64,
        nanoseconds: cost.nanoseconds,
        ratio: cost.ratio,
        hit_rate_in_turn: rate(in_turn),
    };
    Ok(Table {
        name: name.to_owned(),
        by_faults: counted.by_faults,
        by_calls: counted.by_calls,
        threads: counted.threads,
        most_vmas: counted.most_vmas,
        bound: counted.bound,
        bound_rate: rate(counted.bound),
        rows: (counted.counters.iter().zip(costs).zip(in_turn))
            .map(row)
            .collect(),
        text,
    })
}
