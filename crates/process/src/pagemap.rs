//! The words of `/proc/PID/pagemap`: one for each page of the address space.
//!
//! # Linux
//! `fs/proc/task_mmu.c`. Guard markers have a bit of their own since 6.15; before, they show as
//! swapped.

/// The page is in memory.
pub const PRESENT: u64 = 1 << 63;
/// The page is in swap, or on its way.
pub const SWAPPED: u64 = 1 << 62;
/// A guard marker is in the place of a page.
pub const GUARD: u64 = 1 << 58;
/// The page is mapped nowhere else, where it is present.
pub const EXCLUSIVE: u64 = 1 << 56;
/// There is a page, in memory or in swap.
pub const FILLED: u64 = PRESENT | SWAPPED;
