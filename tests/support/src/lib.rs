//! Shared by the tests of several crates: child processes that cannot outlive a test, and a program
//! that creates boundaries.
#![forbid(unsafe_code)]

pub mod boundaries;
pub mod leash;
