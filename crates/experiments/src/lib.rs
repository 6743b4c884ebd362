//! Measurements of the core under several policies, with the running kernel beside it.
//!
//! All variants of a measurement run side by side, in rounds, and the result is a ratio with an
//! interval. The kernel's figures include a trap and ours do not, so a kernel row shows what the work
//! costs a program, not which code is faster.
#![forbid(unsafe_code)]

mod bare;
pub mod brk;
pub mod cache;
pub mod calls;
pub mod fault;
pub mod kernel;
pub mod layout;
pub mod lookup;
pub mod parallel;
pub mod ratio;
pub mod spacing;

pub use ratio::Ratio;
