//! Linux's virtual memory areas, outside of Linux.
//!
//! A [`Space`] is one machine: address spaces that fork from each other and share pages. Its methods
//! are the system calls that shape them, with Linux's semantics, errors included; how neighbours
//! merge is a [`Policy`](policy::Policy). Nothing here talks to an operating system: frames and their
//! bytes are the embedder's ([`Platform`](types::Platform)).
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
//! Order, outermost first; a lock may be taken only while none below it in the table is held. Of the first
//! three, debug builds check it where `vmarea-sync` has its feature `std`, as in tests.
//!
//! | lock | guards |
//! |------|--------|
//! | `Mm::mmap_lock` (parent before child in fork) | [`MmState`](mm::MmState), bodies of the mm's VMAs, writing its tree |
//! | `Vma::body`'s own lock | that body, its range and its place in the mm, against faults without `mmap_lock` |
//! | root `AnonVma::lock` | counts and interval trees of the whole family |
//! | `Vma::chain` | the links of one VMA |
//! | page-table shard | entries, and the map counts of the frames that they name |
//! | the tree's and the slots' own | their insides |
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod fault;
pub mod lookup;
pub mod mm;
#[doc(hidden)]
pub mod mutant;
pub mod page;
pub mod policy;
pub mod rmap;
pub mod soft;
mod space;
pub mod syscall;
pub mod types;
pub mod vma;

pub use space::{HugePages, Overcommit, Space, System};
