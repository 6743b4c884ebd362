//! Lookup caches on recorded programs: hit rates, bound for per-thread caches, cost of lookups.
//!
//! A trace is replayed once, and all caches process the same lookups ([`mod@count`]). The lookups
//! and index changes are then repeated without the rest of the core, with one cache at a time, and
//! the lookups are timed ([`cost`]). The recording contains page faults and the calls that change
//! an address space. It does not contain lookups that a kernel performs for other reasons (futexes,
//! direct I/O, `/proc`).
//!
//! # Linux
//! Reproduces the tables of "mm: per-thread vma caching" (3.15) and of the LWN article "Optimizing
//! VMA caching". The published figures come from another machine and other programs; they are in
//! [`workloads`] and are shown beside ours.

pub mod cost;
pub mod count;
mod in_turn;
mod index;
mod log;
mod optimum;
mod red_black;
pub mod workloads;

pub use count::{Counted, Counter, count};
pub use log::Log;
pub use workloads::{Text, Workload, Workloads};

use super::Ratio;
use cost::Cost;
use serde::Serialize;
use std::io::Read;
use vmarea_replay;
use vmarea_trace::Reader;

/// Reason why a measurement of the caches produced no results.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] vmarea_trace::Error),
    /// The trace cannot be replayed.
    #[error(transparent)]
    Replay(#[from] vmarea_replay::Error),
    /// The trace contains no lookup.
    #[error(
        "the trace has no page faults and no calls that look for a mapping: nothing to measure"
    )]
    NoLookups,
    /// A cache returned a VMA that differs from the VMA in the index.
    #[error("{cache} gave a wrong answer {times} times; please report this with the trace")]
    Wrong {
        /// Name of the cache.
        cache: &'static str,
        /// Number of lookups in which the cache returned a wrong VMA.
        times: u64,
    },
}

/// Results for one cache on one program.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// Name of the cache.
    pub cache: &'static str,
    /// Number of lookups that hit in the cache.
    pub hits: u64,
    /// Hits in per cent of all lookups.
    pub hit_rate: f64,
    /// Hits in per cent of the bound for per-thread caches. A per-address-space cache can exceed
    /// 100 per cent.
    pub of_bound: f64,
    /// Nanoseconds per lookup, including misses and cache updates.
    pub nanoseconds: f64,
    /// Time per lookup, relative to the time without a cache in the same round.
    pub ratio: Option<Ratio>,
    /// Hit rate in per cent in a simulated order: the threads make their lookups alternately, each
    /// on its own processor.
    pub hit_rate_in_turn: f64,
}

/// Results for one program.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Table {
    /// Name of the workload, or of the trace file.
    pub name: String,
    /// Number of lookups by page faults.
    pub by_faults: u64,
    /// Number of lookups by calls.
    pub by_calls: u64,
    /// Number of threads that made lookups; a thread counts again after `execve`.
    pub threads: u64,
    /// Maximum number of VMAs in an address space.
    pub most_vmas: u64,
    /// Upper bound on the hits of a per-thread cache: the number of lookups that found a VMA which
    /// the same thread had found before, or which took the place of such a VMA.
    pub bound: u64,
    /// The bound in per cent of all lookups.
    pub bound_rate: f64,
    /// Most hits of a cache with four entries per thread, if it knew all lookups beforehand.
    pub optimum: u64,
    /// The optimum in per cent of all lookups.
    pub optimum_rate: f64,
    /// One row per cache.
    pub rows: Vec<Row>,
    /// Published results for a program of the same kind.
    pub text: Option<Text>,
}

/// Measures all caches in turn on one trace, `rounds` times.
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
        optimum: counted.optimum,
        optimum_rate: rate(counted.optimum),
        rows: (counted.counters.iter().zip(costs).zip(in_turn))
            .map(row)
            .collect(),
        text,
    })
}
