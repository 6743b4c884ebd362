//! The reverse map of anonymous pages: from a frame to every VMA that may map it.
//!
//! An [`AnonVma`] is the object that the anonymous pages of a VMA belong to. It holds an interval
//! tree of VMAs by page offset. A VMA hangs on its own anon_vma and, after forks, on those of its
//! ancestors, whose pages it may still share; the links are its *chain*.
//!
//! # Picture
//! ```text
//! parent VMA ──chain── A                     A (root): tree { parent VMA, child VMA }
//!                      ▲ parent, root
//! child VMA ──chain─┬─ A                     B:        tree { child VMA }
//!                   └─ B   (its own: new pages of the child go here)
//! ```
//!
//! # Locking
//! The root's lock guards counts and trees of every anon_vma below it. A VMA's chain is changed
//! with the mm's lock held for writing, or (first fault) for reading and the root's lock.

pub mod anon_vma;
pub mod chain;
pub mod interval;
pub(crate) mod root_locks;
pub mod snapshot;
pub(crate) mod span;
pub mod walk;

pub use anon_vma::{AnonVma, AnonVmaView};
pub use chain::Link;
