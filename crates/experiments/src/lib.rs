//! Benchmarks: the core under several policies, and the running kernel, on the same work.
//!
//! Everything is measured side by side in one run, in rounds, and given as ratios with an interval. A
//! trap into the kernel is in its figures and not in ours: beside each other the two say what such work
//! costs at all, not which code is faster.

mod bare;
pub mod brk;
pub mod cache;
pub mod calls;
pub mod fault;
pub mod kernel;
pub mod layout;
pub mod lookup;
pub mod ratio;
pub mod spacing;
pub mod together;

pub use ratio::Ratio;
