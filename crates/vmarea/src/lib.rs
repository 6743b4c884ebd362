//! Linux's virtual memory areas, outside of Linux.
//!
//! A [`Space`] models one machine: a set of address spaces, which can fork and share pages. Its
//! methods are Linux's memory system calls, with Linux's semantics and error codes. A [`Policy`]
//! selects the rules for merging adjacent VMAs. The crate makes no operating system calls: the
//! embedder provides page frames and their contents through [`Platform`].
//!
//! ```
//! use vmarea::prelude::*;
//!
//! let space = Space::new(Policy::LINUX, System::default());
//! let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
//! let mm = space.mm_create(layout, Limits::default())?;
//! let first = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
//! let second = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
//! assert_eq!(second + 4 * PAGE_SIZE, first);
//! assert_eq!(space.maps(mm).count(), 1, "neighbours became one");
//! // The entry point that takes any call as a value:
//! space.syscall(mm, &Syscall::Munmap { addr: second, len: 8 * PAGE_SIZE })?;
//! assert_eq!(space.maps(mm).count(), 0);
//! # Ok::<(), Errno>(())
//! ```
//!
//! # Locking
//! The table lists the locks in order, outermost first. A lock may be taken only while no lock
//! below it in the table is held. Debug builds check the order of the first three locks if
//! `vmarea-sync` is built with its feature `std`, as it is in tests. They also panic if a method of the
//! embedder that must not call back into the [`Space`] takes one of these locks.
//!
//! | lock | guards |
//! |------|--------|
//! | `Mm::mmap_lock` (parent before child), then the parts' locks in ascending order | [`MmState`](mm::MmState), VMA bodies, tree writes |
//! | VMA lock (in `Vma::body`) | its body, range and mm, against faults without `mmap_lock` |
//! | root `AnonVma::lock` | counts and interval trees of every anon_vma under that root |
//! | `Vma::chain` | the chain links of one VMA |
//! | page-table shard | page-table entries, map counts of the frames that they refer to |
//! | internal locks of the tree, the slot tables and the counts of files | their internal data |
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod changes;
pub mod fault;
pub mod lookup;
pub mod mm;
pub mod page;
pub mod prelude;
pub mod refused;
pub mod rmap;
pub mod syscall;
pub mod types;
pub mod vma;

pub use types::{HugePages, Overcommit, System};
pub use vmarea_merge::policy;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::AtomicU64;
use mm::Mm;
use mm::file_uses::Files;
use page::Frame;
use page::ksm::Ksm;
use page::swap::Swap;
use page::thp::HugeState;
use policy::Policy;
use rmap::AnonVma;
use types::callee::Callee;
use types::mempolicy::MemPolicy;
use types::platform::{Environment, Standard};
use types::{NoBytes, Platform};
use vma::Vma;
use vma::merge::Observer;
use vmarea_sync::{Slots, SpinLock};

/// A machine with its address spaces.
///
/// The address spaces may share pages. Therefore their frames, anon_vmas and VMAs are stored in
/// common tables and refer to each other by id. Each module of the crate adds methods to `Space`.
pub struct Space<E: Environment = Standard> {
    pub(crate) mms: Slots<Mm<E>>,
    pub(crate) vmas: Slots<Vma<E>>,
    pub(crate) anon_vmas: Slots<AnonVma<E::Wait>>,
    pub(crate) frames: Slots<Frame>,
    pub(crate) swap: Swap,
    pub(crate) ksm: Ksm,
    pub(crate) huge: HugeState,
    pub(crate) files: Files,
    /// Number of page pins held.
    pub(crate) pins: AtomicU64,
    pub(crate) platform: Callee<E::Platform>,
    pub(crate) mmu: Callee<E::Mmu>,
    pub(crate) policy: Policy,
    pub(crate) system: System,
    pub(crate) observer: Option<Box<dyn Observer>>,
    pub(crate) lookup_observer: Option<Box<dyn lookup::Observer>>,
    pub(crate) change_observer: Option<Box<dyn changes::Observer>>,
    pub(crate) refused_observer: Option<Box<dyn refused::Observer>>,
    pub(crate) count_lookups: bool,
    /// All memory policies. A policy's id is its index in this vector plus one.
    pub(crate) policies: SpinLock<Vec<MemPolicy>>,
    /// Number of nameless files created for shared anonymous mappings.
    pub(crate) nameless: AtomicU64,
}

impl Space {
    /// Creates a machine whose pages have no contents, for studying address space layouts.
    pub fn new(policy: Policy, system: System) -> Self {
        Self::with_platform(policy, system, Box::new(NoBytes))
    }

    /// Creates a machine; `platform` stores the contents of its pages.
    ///
    /// The trait [`Platform`] has an example.
    pub fn with_platform(policy: Policy, system: System, platform: Box<dyn Platform>) -> Self {
        Self::in_environment(policy, system, platform)
    }
}

impl<E: Environment> Space<E> {
    /// Creates a machine in an environment that the embedder chooses.
    ///
    /// The trait [`Environment`] has an example.
    pub fn in_environment(policy: Policy, system: System, platform: E::Platform) -> Self
    where
        E::Mmu: Default,
    {
        Self::with_mmu(policy, system, platform, E::Mmu::default())
    }

    /// Creates a machine with the hardware page tables `mmu`.
    ///
    /// The trait [`Mmu`](types::mmu::Mmu) has an example.
    pub fn with_mmu(policy: Policy, system: System, platform: E::Platform, mmu: E::Mmu) -> Self {
        Self {
            mms: Slots::new(),
            vmas: Slots::new(),
            anon_vmas: Slots::new(),
            frames: Slots::new(),
            swap: Swap::default(),
            ksm: Ksm::default(),
            huge: HugeState::default(),
            files: Files::default(),
            pins: AtomicU64::new(0),
            platform: Callee(platform),
            mmu: Callee(mmu),
            policy,
            system,
            observer: None,
            lookup_observer: None,
            change_observer: None,
            refused_observer: None,
            count_lookups: false,
            policies: SpinLock::default(),
            nameless: AtomicU64::new(0),
        }
    }

    /// Sets the observer that is notified of every merge attempt.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use vmarea::prelude::*;
    /// use vmarea::vma::merge::{Attempt, Observer, Refusal};
    ///
    /// /// Remembers why mappings were not merged with the VMA above them.
    /// #[derive(Default)]
    /// struct Refusals(Mutex<Vec<Refusal>>);
    ///
    /// impl Observer for &'static Refusals {
    ///     fn attempt(&self, attempt: &Attempt<'_>) {
    ///         self.0.lock().unwrap().extend(attempt.verdict.right);
    ///     }
    /// }
    ///
    /// let refusals: &'static Refusals = Box::leak(Box::default());
    /// let mut space = Space::new(Policy::LINUX, System::default());
    /// space.set_observer(Box::new(refusals));
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    /// space.mmap(mm, &MmapRequest { prot: Prot::READ, ..MmapRequest::anonymous(PAGE_SIZE) })?;
    /// assert_eq!(*refusals.0.lock().unwrap(), [Refusal::Flags]);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Sets the observer that is notified of every lookup and of every change to a VMA index.
    ///
    /// The trait [`lookup::Observer`] has an example.
    pub fn set_lookup_observer(&mut self, observer: Box<dyn lookup::Observer>) {
        self.lookup_observer = Some(observer);
    }

    /// Sets the observer that is notified of every change of a mapping.
    ///
    /// The trait [`changes::Observer`] has an example.
    pub fn set_change_observer(&mut self, observer: Box<dyn changes::Observer>) {
        self.change_observer = Some(observer);
    }

    /// Starts counting lookups ([`lookup_counts`](Self::lookup_counts)). While counting is on, all
    /// threads that use an address space write to the same counters.
    ///
    /// The documentation of [`lookup`] has an example.
    pub fn count_lookups(&mut self) {
        self.count_lookups = true;
    }

    /// Returns the policy of the machine.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the hardware page tables.
    pub fn mmu(&self) -> &E::Mmu {
        &self.mmu.0
    }

    /// Returns the platform that the machine was created with.
    pub fn platform(&self) -> &E::Platform {
        &self.platform.0
    }

    /// Returns an upper bound for [`FrameId::index`](types::FrameId::index): the index of every
    /// frame allocated so far is below the bound. The bound never decreases.
    ///
    /// ```
    /// use vmarea::page::Pte;
    /// use vmarea::prelude::*;
    ///
    /// let space = Space::new(Policy::LINUX, System::default());
    /// let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// let mm = space.mm_create(layout, Limits::default())?;
    /// assert!(mm.index() < space.mm_bound());
    /// let addr = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    /// space.fault(mm, addr, Access::Write)?;
    /// let Pte::Anon { frame, .. } = space.with_mapped(mm, addr, |page| page.entry)? else {
    ///     panic!("a write brings a frame");
    /// };
    /// let mut owners = vec![None; space.frame_bound()];
    /// owners[frame.index()] = Some(mm);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn frame_bound(&self) -> usize {
        self.frames.bound() as usize
    }

    /// Returns an upper bound for [`MmId::index`](types::MmId::index): the index of every address
    /// space created so far is below the bound. The bound never decreases.
    pub fn mm_bound(&self) -> usize {
        self.mms.bound() as usize
    }

    /// Returns memory that the machine no longer needs to the allocator: pages of VMAs, anon_vmas,
    /// frames and address spaces that are gone, nodes of the VMA index, and page tables.
    ///
    /// Calls keep such memory for their successors, because threads that hold no lock may still read
    /// it. The borrow proves that there are none. If threads share the machine, each call can hold a
    /// lock for reading whose readers do not disturb each other; shrinking then waits until no call
    /// is inside, and needs no thread of its own. Ids, [`frame_bound`](Self::frame_bound) and
    /// [`mm_bound`](Self::mm_bound) remain as they are.
    ///
    /// ```
    /// use vmarea::prelude::*;
    /// use vmarea::types::platform::BigReaderLock;
    ///
    /// let machine = BigReaderLock::<_, 8>::new(Space::new(Policy::LINUX, System::default()));
    /// let this_cpu = 3;
    /// // In every system call and page fault:
    /// let space = machine.read(this_cpu);
    /// let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// let mm = space.mm_create(layout, Limits::default())?;
    /// space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    /// space.mm_exit(mm)?;
    /// drop(space);
    /// // When memory is scarce, or a large process has ended:
    /// machine.write().shrink();
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "shrinker")]
    pub fn shrink(&mut self) {
        self.mms.shrink(Mm::shrink);
        self.vmas.shrink(|_| ());
        self.anon_vmas.shrink(|_| ());
        self.frames.shrink(|_| ());
        self.swap.shrink();
        self.ksm.shrink();
        self.huge.shrink();
    }

    /// Returns the properties of the machine.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Changes the properties of the machine, as a write to a sysctl does; later calls obey them.
    ///
    /// The swap device and the rooms of an address space whose parts have writers of their own keep
    /// their sizes.
    ///
    /// ```
    /// use vmarea::policy::Policy;
    /// use vmarea::{Space, System};
    ///
    /// let mut space = Space::new(Policy::LINUX, System::default());
    /// let max_map_count = 2_000_000;
    /// space.set_system(System { max_map_count, ..*space.system() });
    /// assert_eq!(space.system().max_map_count, max_map_count);
    /// ```
    pub fn set_system(&mut self, system: System) {
        self.system = system;
    }
}

impl<E: Environment> fmt::Debug for Space<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space")
            .field("policy", &self.policy.name)
            .field("mms", &self.mms.len())
            .field("vmas", &self.vmas.len())
            .field("anon_vmas", &self.anon_vmas.len())
            .field("frames", &self.frames.len())
            .finish()
    }
}
