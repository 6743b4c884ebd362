//! What the tests of several crates share: child processes on a leash, a program that makes boundaries,
//! an allocator that fails.
//!
//! No crate depends on it but for its tests.

pub mod boundaries;
pub mod failing_allocator;
pub mod leash;
