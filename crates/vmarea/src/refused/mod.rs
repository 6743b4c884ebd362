//! Why a call was refused: the check that failed, with its numbers.
//!
//! An errno names dozens of checks: ENOMEM is the answer to a range with a hole, to a full address
//! space, and to one mapping too many. The check that refuses a call therefore also names its
//! [`Refused`], whose text and remedy are in one table, and an [`Observer`] learns it. A call that
//! succeeds is not touched by any of this, and a call that fails without an observer builds nothing.
//!
//! A reason is not part of the result: if Linux ignores an inner failure (`mlockall` does for single
//! VMAs, and a search of huge pages falls back to one of small pages), the observer learns that as
//! well. Of the reasons that a failed call names, the last one is the reason of its errno.
//!
//! Two failures name no reason: ESRCH, because the address space does not exist, and ENOMEM if the
//! machine that runs the core, not the modelled one, has no memory left.
//!
//! # Examples
//! ```
//! use std::sync::{Arc, Mutex};
//! use vmarea::prelude::*;
//! use vmarea::refused::{Observer, Refused};
//!
//! #[derive(Clone, Default)]
//! struct Last(Arc<Mutex<Option<Refused>>>);
//!
//! impl Observer for Last {
//!     fn refused(&self, why: &Refused) {
//!         *self.0.lock().unwrap() = Some(*why);
//!     }
//! }
//!
//! let last = Last::default();
//! let system = System { max_map_count: 1, ..System::default() };
//! let mut space = Space::new(Policy::LINUX, system);
//! space.set_refused_observer(Box::new(last.clone()));
//! let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
//! let mm = space.mm_create(layout, Limits::default())?;
//! let at = space.mmap(mm, &MmapRequest::anonymous(3 * PAGE_SIZE))?;
//! assert_eq!(space.munmap(mm, at + PAGE_SIZE, PAGE_SIZE), Err(Errno::ENOMEM));
//! let why = last.0.lock().unwrap().take().expect("a reason");
//! assert_eq!(
//!     why.to_string(),
//!     "unmapping the middle of a mapping needs one mapping more; 1 of 1 are used"
//! );
//! assert_eq!(why.remedy(), "raise vm.max_map_count, or have fewer mappings");
//! # Ok::<(), Errno>(())
//! ```

mod rule;
mod words;

pub use rule::Rule;

use crate::Space;
use crate::types::Errno;
use crate::types::platform::Environment;
use alloc::boxed::Box;

/// The check that refused a call. Numbers are in bytes, unless they are counts of mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refused {
    /// The limit on the number of mappings (`vm.max_map_count`).
    Mappings {
        /// What needs more mappings.
        for_what: Growing,
        /// Number of mappings that the process has.
        used: u32,
        /// The limit.
        limit: u32,
    },
    /// The limit on the address space (`RLIMIT_AS`).
    AddressSpace {
        /// How much the call would add.
        asked: u64,
        /// How much is mapped.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// The limit on private writable memory (`RLIMIT_DATA`).
    Data {
        /// How much the call would add.
        asked: u64,
        /// How much there is.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// The limit on locked memory (`RLIMIT_MEMLOCK`).
    Memlock {
        /// How much the call would lock.
        asked: u64,
        /// How much is locked.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// The commit limit of a machine that never overcommits (`vm.overcommit_memory` is 2).
    Commit {
        /// How much the call would commit.
        asked: u64,
        /// How much this process has committed.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// One call asks for more than the whole machine has (`vm.overcommit_memory` is 0).
    Overcommit {
        /// How much the call would commit.
        asked: u64,
        /// Memory and swap of the machine.
        limit: u64,
    },
    /// No gap of the asked length is left.
    NoGap {
        /// The asked length.
        asked: u64,
        /// Length of the largest gap in which the call could be placed.
        largest: u64,
        /// Where the call looked for a gap.
        area: Area,
    },
    /// A mapping may not move, and something is mapped too close above it.
    NoRoomAbove {
        /// How much the mapping would have to grow.
        asked: u64,
        /// Length of the gap above it.
        free: u64,
    },
    /// The range is in use, and the call must not replace what is there.
    Occupied {
        /// Start of the first mapping in the range.
        start: u64,
        /// End of that mapping.
        end: u64,
    },
    /// The range ends above the address space.
    Outside {
        /// Start of the range.
        start: u64,
        /// Length of the range.
        len: u64,
        /// End of the address space.
        end: u64,
    },
    /// The address is below `vm.mmap_min_addr`.
    TooLow {
        /// The address.
        addr: u64,
        /// The lowest address that may be mapped.
        lowest: u64,
    },
    /// Nothing is mapped at an address of the range.
    Unmapped {
        /// The first such address.
        at: u64,
    },
    /// The range reaches across the end of a mapping, and the call works on one mapping.
    Several {
        /// Number of mappings in the range.
        mappings: u32,
        /// End of the mapping in which the range starts.
        end: u64,
        /// End of the range.
        asked: u64,
    },
    /// A mapping in the range is sealed (`mseal`).
    Sealed {
        /// Start of the mapping.
        start: u64,
        /// End of the mapping.
        end: u64,
    },
    /// A rule without numbers.
    Breaks(Rule),
}

/// What needs a mapping that the limit does not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growing {
    /// A new mapping.
    New,
    /// Unmapping the middle of a mapping, which leaves two.
    Hole,
    /// A change to a part of a mapping, which splits it.
    Part,
    /// A move, which Linux refuses unless so many mappings are left.
    Move(u32),
}

/// Where a call looks for a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Area {
    /// The whole address space.
    All,
    /// The 1 GiB that `MAP_32BIT` allows.
    Low,
}

impl From<Rule> for Refused {
    fn from(rule: Rule) -> Refused {
        Refused::Breaks(rule)
    }
}

/// An observer of refused calls. It is called on the thread that makes the call, before the call
/// returns and perhaps with `mmap_lock` held, and must not call into the address space.
///
/// The [module](crate::refused) has an example.
pub trait Observer: Send + Sync {
    /// Called when a check refuses a call.
    fn refused(&self, why: &Refused);
}

impl<E: Environment> Space<E> {
    /// Sets the observer that is notified of every refused call.
    ///
    /// The [module](crate::refused) has an example.
    pub fn set_refused_observer(&mut self, observer: Box<dyn Observer>) {
        self.refused_observer = Some(observer);
    }

    /// Tells the observer why a call fails, and returns the call's error.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&self, errno: Errno, why: impl Into<Refused>) -> Errno {
        if let Some(observer) = &self.refused_observer {
            observer.refused(&why.into());
        }
        errno
    }

    /// Like [`refuse`](Self::refuse), for a reason whose numbers have to be found.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse_with(&self, errno: Errno, why: impl FnOnce() -> Refused) -> Errno {
        if let Some(observer) = &self.refused_observer {
            observer.refused(&why());
        }
        errno
    }
}
