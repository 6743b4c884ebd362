//! System calls: one file for each call (or family of calls) that changes an address space.
//!
//! A call checks its arguments, takes `mmap_lock`, decides what to change, reserves memory, and
//! then makes the changes. A failing call that has partial effects in Linux has the same effects
//! here; the Linux section of each file lists the partial effects. Each call is a method of
//! [`Space`](crate::Space); the variants of [`Syscall`] represent calls as data.

pub mod brk;
pub mod file_change;
pub mod fork;
pub mod limits;
pub mod madvise;
pub mod mempolicy;
pub mod merge_collector;
pub mod mlock;
pub mod mmap;
pub mod mprotect;
pub mod mremap;
pub mod munmap;
pub mod pkeys;
pub mod prctl;
pub mod process_madvise;
pub mod registers;
pub mod remap_file_pages;
pub mod shm;
mod table;
pub mod unmapped_area;
pub mod userfaultfd;

pub use table::Syscall;
