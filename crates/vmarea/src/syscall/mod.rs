//! The doors: one file for each system call (or family) that shapes an address space.
//!
//! A call checks its arguments, takes `mmap_lock`, decides, reserves, and then changes. What Linux
//! does by halves is done by the same halves; each file says which. Each call is a method of
//! [`Space`](crate::Space), and a variant of [`Syscall`] where calls are data.

pub mod brk;
pub mod file_change;
pub mod fork;
pub mod limits;
pub mod madvise;
pub mod mempolicy;
pub mod merge_collector;
pub mod mlock;
pub mod mmap;
mod mmap_flags;
pub mod mprotect;
pub mod mremap;
pub mod munmap;
pub mod pkeys;
pub mod prctl;
pub mod process_madvise;
pub mod remap_file_pages;
pub mod shm;
mod table;
pub mod unmapped_area;
pub mod userfaultfd;

pub use table::Syscall;
