//! Executes random calls on the running kernel and in the core, and compares the results.
//!
//! A generator creates sequences of calls and memory accesses. The oracle executes them on the
//! kernel, and the model executes them in the core. After each step, the results, mappings,
//! anon_vmas and bytes must be equal. A sequence that shows a difference is shortened, and is
//! printed as a C program and as a test.
//!
//! # Picture
//! ```text
//! generate ─ step ─┬─▶ kernel  processes of the oracle ─▶ result, VMAs, anon_vmas, bytes ─┐
//!                  └─▶ model   soft platform           ─▶ result, VMAs, anon_vmas, bytes ─┴─ compare
//!                                            first difference ─▶ shrink ─▶ print
//! ```
#![forbid(unsafe_code)]

pub mod arena;
pub mod c_program;
pub mod changes;
pub mod environment;
pub mod error;
pub mod fill;
pub mod fuzz;
pub mod generate;
pub mod kernel;
pub mod kernel_settings;
pub mod model;
pub mod op;
mod others;
pub mod outcome;
pub mod recall;
pub mod regression;
pub mod report;
pub mod rng;
pub mod run;
pub mod sequence;
pub mod shrink;
pub mod state;
pub mod states;
pub mod superset;
pub mod watch;
