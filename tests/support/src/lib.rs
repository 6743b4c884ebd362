//! Helpers shared by the tests of several crates.
//!
//! The helpers are child processes that end with the test, a program that creates boundaries
//! between VMAs, an allocator that fails on demand, and checks of JSON schemas.
//!
//! Other crates use this one only in their tests.

pub mod boundaries;
pub mod failing_allocator;
pub mod leash;
#[cfg(feature = "schemas")]
pub mod schemas;
