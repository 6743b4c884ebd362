//! System calls that change an address space: one file for each call or family of calls.
//!
//! A call checks its arguments, takes `mmap_lock`, decides what to change, reserves memory, and
//! then makes the changes. If a failing call has partial effects in Linux, it has the same effects
//! here; the Linux section in each file lists them. Each call is a method of
//! [`Space`](crate::Space), and also a variant of [`Syscall`], which represents calls as data.

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
