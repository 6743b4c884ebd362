//! Entries of `/proc/PID/pagemap`: one 64-bit word per page of the address space.
//!
//! # Linux
//! `fs/proc/task_mmu.c`. Guard markers have a separate bit since 6.15; before, they appear as
//! swapped.

/// The page is in memory.
pub const PRESENT: u64 = 1 << 63;
/// The page is in swap, or is being swapped out.
pub const SWAPPED: u64 = 1 << 62;
/// The page is present, and no other page-table entry maps it.
pub const EXCLUSIVE: u64 = 1 << 56;
/// The page exists, in memory or in swap.
pub const FILLED: u64 = PRESENT | SWAPPED;
