//! System calls that change an address space: one file for each call or family of calls.
//!
//! A call checks its arguments, takes `mmap_lock`, decides what to change, reserves memory, and
//! then makes the changes. If a failing call has partial effects in Linux, it has the same effects
//! here; the Linux section in each file lists them. Each call is a method of
//! [`Space`](crate::Space), and also a variant of [`Syscall`], which represents calls as data.
//!
//! # Errors
//! Each file lists the errors of its call. A call also returns ESRCH if the address space does not
//! exist, unless its file says otherwise.
//!
//! # Examples
//! ```
//! use vmarea::prelude::*;
//! use vmarea::syscall::madvise::Advice;
//! use vmarea::types::call_flags::MlockFlags;
//!
//! # let space = Space::new(Policy::LINUX, System::default());
//! # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
//! # let mm = space.mm_create(layout, Limits::default())?;
//! let at = space.mmap(mm, &MmapRequest::anonymous(8 * PAGE_SIZE))?;
//! let page = |n: u64| at + n * PAGE_SIZE;
//! let vmas = || space.maps(mm).count();
//!
//! // Each of these calls changes a part of the mapping, which splits it.
//! space.mprotect(mm, page(1), PAGE_SIZE, Prot::READ, None)?;
//! assert_eq!(vmas(), 3);
//! space.madvise(mm, page(3), PAGE_SIZE, Advice::DontFork)?;
//! space.mlock(mm, page(5), PAGE_SIZE, MlockFlags::empty())?;
//! assert_eq!(vmas(), 7);
//! // Neighbours that become equal again merge.
//! space.mprotect(mm, page(1), PAGE_SIZE, Prot::READ | Prot::WRITE, None)?;
//! space.madvise(mm, page(3), PAGE_SIZE, Advice::DoFork)?;
//! space.munlock(mm, page(5), PAGE_SIZE)?;
//! assert_eq!(vmas(), 1);
//! # Ok::<(), Errno>(())
//! ```

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
