//! Replay and verification of recorded address spaces, and why mappings stay apart.
//!
//! A trace holds what programs asked of the kernel and what the kernel answered. Here the same calls
//! and faults are put to our own core, under one policy or several, and under the rules of the
//! recorded kernel every answer and every list of VMAs is compared with what that kernel said.
#![forbid(unsafe_code)]

pub mod bench;
pub mod conform;
pub mod explain;
pub mod replay;
pub mod show;
pub mod top;
