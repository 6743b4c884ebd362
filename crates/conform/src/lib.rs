//! `conform`: random sequences of calls on the running kernel and on the core, compared after each.
//!
//! # Picture
//! ```text
//! generate ─ step ─┬─▶ kernel  processes of the oracle ─▶ result, VMAs, anon_vmas, bytes ─┐
//!                  └─▶ model   soft platform           ─▶ result, VMAs, anon_vmas, bytes ─┴─ compare
//!                                            first difference ─▶ shrink ─▶ print
//! ```

pub mod arena;
pub mod c_program;
pub mod fewer;
pub mod fill;
pub mod fuzz;
pub mod generate;
pub mod ground;
pub mod kept;
pub mod kernel;
pub mod model;
pub mod op;
pub mod outcome;
pub mod report;
pub mod rng;
pub mod run;
pub mod sequence;
pub mod shrink;
pub mod state;
pub mod surroundings;
