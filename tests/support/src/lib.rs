//! What the tests of several crates share: child processes on a leash, and a program that makes boundaries.
//!
//! No crate depends on it but for its tests.
#![forbid(unsafe_code)]

pub mod boundaries;
pub mod leash;
