//! `Space`: the table of address spaces, and the objects that they share.
//!
//! One `Space` models one machine. Its address spaces may share pages, so their frames, anon_vmas
//! and VMAs are stored in common tables and refer to each other by id. [`System`] describes the
//! machine, and [`Policy`] selects the merge rules.

use crate::lookup;
use crate::mm::Mm;
use crate::page::Frame;
use crate::page::ksm::Ksm;
use crate::page::swap::Swap;
use crate::page::thp::HugeCounters;
use crate::policy::Policy;
use crate::rmap::AnonVma;
use crate::types::mempolicy::MemPolicy;
use crate::types::platform::{Environment, Standard};
use crate::types::{FileId, FileKind, NoBytes, Platform, System};
use crate::vma::merge::Observer;
use crate::vma::{MappedFile, Vma};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use vmarea_sync::{Slots, SpinLock};

/// A machine with its address spaces.
pub struct Space<E: Environment = Standard> {
    pub(crate) mms: Slots<Mm<E::Wait>>,
    pub(crate) vmas: Slots<Vma<E>>,
    pub(crate) anon_vmas: Slots<AnonVma<E::Wait>>,
    pub(crate) frames: Slots<Frame>,
    pub(crate) swap: Swap,
    pub(crate) ksm: Ksm,
    pub(crate) huge: HugeCounters,
    /// Number of page pins currently held.
    pub(crate) pins: AtomicU64,
    pub(crate) platform: E::Platform,
    pub(crate) policy: Policy,
    pub(crate) system: System,
    pub(crate) observer: Option<Box<dyn Observer>>,
    pub(crate) lookup_observer: Option<Box<dyn lookup::Observer>>,
    pub(crate) count_lookups: bool,
    /// Memory policies; the number of a policy is its index plus one.
    pub(crate) policies: SpinLock<Vec<MemPolicy>>,
    /// Number of nameless files created for shared anonymous mappings.
    pub(crate) nameless: AtomicU64,
}

impl<E: Environment> Space<E> {
    /// Creates the file of a shared anonymous mapping of `pages` pages: a shmem file without a
    /// name, used by no other mapping.
    #[doc(alias = "shmem_zero_setup")]
    pub(crate) fn nameless_file(&self, pages: u64) -> MappedFile {
        // ORDERING: Relaxed; the numbers only have to be unique.
        let number = FileId::NAMELESS + self.nameless.fetch_add(1, Ordering::Relaxed);
        self.platform.shared_anon(number, pages);
        MappedFile {
            id: FileId(number),
            inode: number,
            kind: FileKind::SharedAnon,
        }
    }
}

impl Space {
    /// Creates a machine whose pages have no contents, to study address space layouts only.
    pub fn new(policy: Policy, system: System) -> Self {
        Self::with_platform(policy, system, Box::new(NoBytes))
    }

    /// Creates a machine that stores its pages on `platform`.
    pub fn with_platform(policy: Policy, system: System, platform: Box<dyn Platform>) -> Self {
        Self::in_environment(policy, system, platform)
    }
}

impl<E: Environment> Space<E> {
    /// Creates a machine in an environment that the embedder chooses.
    pub fn in_environment(policy: Policy, system: System, platform: E::Platform) -> Self {
        Self {
            mms: Slots::new(),
            vmas: Slots::new(),
            anon_vmas: Slots::new(),
            frames: Slots::new(),
            swap: Swap::default(),
            ksm: Ksm::default(),
            huge: HugeCounters::default(),
            pins: AtomicU64::new(0),
            platform,
            policy,
            system,
            observer: None,
            lookup_observer: None,
            count_lookups: false,
            policies: SpinLock::default(),
            nameless: AtomicU64::new(0),
        }
    }

    /// Sets the observer that is notified of every merge attempt.
    pub fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Sets the observer that is notified of every lookup and of every change to an index.
    pub fn set_lookup_observer(&mut self, observer: Box<dyn lookup::Observer>) {
        self.lookup_observer = Some(observer);
    }

    /// Starts counting lookups ([`lookup_counts`](Self::lookup_counts)). All threads of an address
    /// space then write to the same counters.
    pub fn count_lookups(&mut self) {
        self.count_lookups = true;
    }

    /// Returns the policy of the machine.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the properties of the machine.
    pub fn system(&self) -> &System {
        &self.system
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
