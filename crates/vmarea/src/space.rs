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
use crate::page::thp::HugeState;
use crate::policy::Policy;
use crate::rmap::AnonVma;
use crate::types::mempolicy::MemPolicy;
use crate::types::platform::{Environment, Standard};
use crate::types::{FileId, FileKind, NoBytes, Platform};
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
    pub(crate) huge: HugeState,
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

/// Setting for the use of transparent huge pages in anonymous memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugePages {
    /// Never used.
    Never,
    /// Used only in mappings with `MADV_HUGEPAGE`.
    Madvise,
    /// Used in all mappings.
    Always,
}

/// Overcommit mode (`vm.overcommit_memory`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overcommit {
    /// Refuse only a request that is larger than all memory and swap (in pages).
    Guess(u64),
    /// Refuse nothing.
    Always,
    /// Keep the sum of the commit charges within this many pages.
    Never(u64),
}

/// Properties of the machine that affect its address spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct System {
    /// First address that no process may map (`TASK_SIZE`).
    pub task_size: u64,
    /// Maximum number of VMAs an address space may have (`vm.max_map_count`).
    pub max_map_count: u32,
    /// `vm.mmap_min_addr` in bytes: mapping below this address requires CAP_SYS_RAWIO.
    pub mmap_min_addr: u64,
    /// Minimum address that the kernel was built with (`CONFIG_LSM_MMAP_MIN_ADDR`), in bytes; see
    /// [`lowest_addr`](System::lowest_addr).
    pub built_in_min_addr: u64,
    /// Size in bytes of the gap below a stack (`stack_guard_gap`).
    pub stack_guard_gap: u64,
    /// `vm.overcommit_memory`, together with the limit that it implies.
    pub overcommit: Overcommit,
    /// `transparent_hugepage/enabled`.
    pub huge_pages: HugePages,
    /// True if shared anonymous memory is aligned for huge pages
    /// (`transparent_hugepage/shmem_enabled`).
    pub shmem_huge: bool,
    /// True if the processor has protection keys; `PROT_EXEC` alone then uses one.
    pub protection_keys: bool,
    /// True if there is a swap device: pages can be swapped out, and `MADV_PAGEOUT` swaps them out.
    pub swap: bool,
    /// Bit mask of the NUMA nodes.
    pub nodes: u64,
}

impl Default for System {
    /// Returns an x86-64 machine with four-level page tables and Linux's defaults.
    fn default() -> Self {
        Self {
            task_size: 0x7fff_ffff_f000,
            max_map_count: 65_530,
            mmap_min_addr: 65_536,
            built_in_min_addr: 65_536,
            stack_guard_gap: 256 << 12,
            overcommit: Overcommit::Guess(u64::MAX),
            huge_pages: HugePages::Madvise,
            shmem_huge: false,
            protection_keys: false,
            swap: false,
            nodes: 1,
        }
    }
}

impl System {
    /// Returns the lowest address that `mmap` picks without `MAP_FIXED` and that a stack grows to:
    /// the larger of `vm.mmap_min_addr` and the kernel's built-in minimum.
    #[doc(alias = "mmap_min_addr")]
    pub fn lowest_addr(&self) -> u64 {
        self.mmap_min_addr.max(self.built_in_min_addr)
    }
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
            huge: HugeState::default(),
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
