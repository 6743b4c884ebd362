//! Memory: physical frames, the heap, hardware page tables, and the core on top of them.
//!
//! ```text
//! user      copies between the kernel and programs, checked by faults
//! mm        one address space of the core, and what a fault means for a thread
//! platform  services for the core: frames, bytes, pages of files
//! mmu       the hardware side of the core: entries, flushes          tables  page tables
//! heap      the kernel's own objects                                 frames  physical memory
//! reclaim   swaps out unused pages when frames are short             swap    the swap device
//! oom       ends a process if that does not help
//! check     whether a frame is lost                       background  compaction and KSM
//! ```

pub mod background;
pub mod check;
pub mod frames;
pub mod heap;
pub mod mm;
pub mod mmu;
pub mod oom;
pub mod platform;
pub mod reclaim;
pub mod swap;
pub mod tables;
pub mod user;

pub use mm::{Mm, space};
