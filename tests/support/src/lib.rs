//! Helpers shared by the tests of several crates.
//!
//! The helpers are child processes that end with the test, a program that creates boundaries
//! between VMAs, and an allocator that fails on demand.
//!
//! Other crates use this one only in their tests.

pub mod boundaries;
pub mod failing_allocator;
pub mod leash;
