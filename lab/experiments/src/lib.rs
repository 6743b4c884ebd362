//! Measurements of the core under several policies, and of the running kernel for comparison.
//!
//! All variants of a measurement run alternately, in rounds, and the result is a ratio with a
//! confidence interval. The kernel's times include a trap into the kernel and the core's times do
//! not, so the kernel's row in a table shows what the work costs a program, but not which code is
//! faster.
#![forbid(unsafe_code)]

mod bare;
pub mod brk;
pub mod cache;
pub mod calls;
pub mod experiment;
pub mod fault;
mod kernel;
pub mod layout;
pub mod lookup;
pub mod one_world;
pub mod parallel;
pub mod ratio;
pub mod spacing;
pub mod vma_cache;

pub use ratio::Ratio;
