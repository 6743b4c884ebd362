//! The reverse map of anonymous pages: finds the VMAs that may map an anon_vma's pages.
//!
//! An [`AnonVma`] owns the anonymous pages of a VMA. It contains an interval tree of VMAs, keyed by
//! page offset. A VMA is linked to its own anon_vma and, after forks, to the anon_vmas of its
//! ancestors, whose pages it may still share; these links are its *chain*. The code that finds the
//! page-table entries that map a frame is in `page::rmap_walk`.
//!
//! # Picture
//! ```text
//! parent VMA ──chain── A                     A (root): tree { parent VMA, child VMA }
//!                      ▲ parent, root
//! child VMA ──chain─┬─ A                     B:        tree { child VMA }
//!                   └─ B   (the child's own anon_vma, for its new pages)
//! ```
//!
//! # Examples
//! ```
//! use vmarea::prelude::*;
//!
//! let space = Space::new(Policy::LINUX, System::default());
//! let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
//! let parent = space.mm_create(layout, Limits::default())?;
//! let at = space.mmap(parent, &MmapRequest::anonymous(PAGE_SIZE))?;
//! space.fault(parent, at, Access::Write)?;
//! let child = space.fork(parent)?;
//! let own = |mm| space.maps(mm).next().and_then(|vma| vma.anon_vma);
//! let (a, b) = (own(parent).expect("written"), own(child).expect("copied"));
//! assert_eq!(space.anon_vma_parent(b), Some(a));
//! assert_eq!(space.anon_vma_root(b), a);
//! assert_eq!(space.anon_vma_view(a).num_active_vmas, 1);
//! # Ok::<(), Errno>(())
//! ```
//!
//! # Locking
//! The lock of a root anon_vma protects the counts and trees of every anon_vma in its family. A
//! VMA's chain is changed with the mm's lock held for writing, or (at the first fault) with the
//! mm's lock held for reading and the root's lock held for writing.

pub mod anon_vma;
pub mod interval;
pub(crate) mod root_locks;
pub(crate) mod span;
mod treap;

pub use anon_vma::{AnonVma, AnonVmaView};
