//! Linux's virtual memory areas, outside of Linux.
//!
//! A [`Space`] models one machine: a set of address spaces that fork from each other and share
//! pages. Its methods are Linux's memory system calls, with Linux's semantics and error codes. A
//! [`Policy`](policy::Policy) selects the rules for merging adjacent VMAs. The crate makes no
//! operating system calls: the embedder provides page frames and their contents through
//! [`Platform`](types::Platform).
//!
//! ```
//! use vmarea::mm::{Layout, Limits};
//! use vmarea::policy::Policy;
//! use vmarea::syscall::mmap::MmapRequest;
//! use vmarea::types::call_flags::{MapFlags, Prot};
//! use vmarea::{Space, System};
//!
//! let space = Space::new(Policy::LINUX, System::default());
//! let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
//! let mm = space.mm_create(layout, Limits::default())?;
//! let prot = Prot::READ | Prot::WRITE;
//! let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
//! let request = |len| MmapRequest { len, prot, flags, ..MmapRequest::default() };
//! let first = space.mmap(mm, &request(0x4000))?;
//! let second = space.mmap(mm, &request(0x4000))?;
//! assert_eq!(second + 0x4000, first);
//! assert_eq!(space.mmap_read_lock(mm).unwrap().vmas().count(), 1, "neighbours became one");
//! # Ok::<(), vmarea::types::Errno>(())
//! ```
//!
//! # Locking
//! The table lists the locks in order, outermost first. A lock may be taken only while no lock
//! below it in the table is held. Debug builds check the order of the first three locks if
//! `vmarea-sync` is built with its feature `std`, as it is in tests.
//!
//! | lock | guards |
//! |------|--------|
//! | `Mm::mmap_lock` (parent before child) | [`MmState`](mm::MmState), VMA bodies, tree writes |
//! | VMA lock (in `Vma::body`) | body, range, place in the mm, against faults without `mmap_lock` |
//! | root `AnonVma::lock` | counts and interval trees of every anon_vma under that root |
//! | `Vma::chain` | the chain links of one VMA |
//! | page-table shard | page-table entries, map counts of the frames that they refer to |
//! | internal locks of the tree and the slot tables | their internal data |
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod fault;
pub mod lookup;
pub mod mm;
pub mod page;
pub mod policy;
pub mod rmap;
mod space;
pub mod syscall;
pub mod types;
pub mod vma;

pub use space::Space;
pub use types::{HugePages, Overcommit, System};
