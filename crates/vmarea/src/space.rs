//! `Space`: everything that address spaces share, and the table of them.
//!
//! One `Space` is one machine: its address spaces may share pages, so their frames, anonymous
//! objects and VMAs live in common tables and know each other by ids. What the machine is like is
//! in [`System`], how it merges in [`Policy`].

use crate::lookup;
use crate::mm::Mm;
use crate::mutant::{self, Mutant};
use crate::page::Frame;
use crate::page::ksm::Ksm;
use crate::page::swap::Swap;
use crate::page::thp::HugeCounters;
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
    pub(crate) huge: HugeCounters,
    /// Pins of pages that are held.
    pub(crate) pins: AtomicU64,
    pub(crate) platform: E::Platform,
    pub(crate) policy: Policy,
    pub(crate) system: System,
    pub(crate) observer: Option<Box<dyn Observer>>,
    pub(crate) lookup_observer: Option<Box<dyn lookup::Observer>>,
    pub(crate) count_lookups: bool,
    /// Memory policies by their numbers, which begin with 1.
    pub(crate) policies: SpinLock<Vec<MemPolicy>>,
    /// Nameless files of shared anonymous mappings made so far.
    pub(crate) nameless: AtomicU64,
}

/// When transparent huge pages are used for anonymous memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugePages {
    /// Never.
    Never,
    /// Where `MADV_HUGEPAGE` asked for them.
    Madvise,
    /// Everywhere.
    Always,
}

/// How generous the machine is with memory that nobody has touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overcommit {
    /// Refuse only what is larger than all memory and swap (in pages).
    Guess(u64),
    /// Refuse nothing.
    Always,
    /// Keep the sum of charges within this many pages.
    Never(u64),
}

/// Facts of the machine that shape its address spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct System {
    /// First address that no process may map (`TASK_SIZE`).
    pub task_size: u64,
    /// `vm.max_map_count`.
    pub max_map_count: u32,
    /// `vm.mmap_min_addr`, bytes: to map below it takes CAP_SYS_RAWIO.
    pub mmap_min_addr: u64,
    /// What the kernel was built with (`CONFIG_LSM_MMAP_MIN_ADDR`), bytes: see
    /// [`lowest_addr`](System::lowest_addr).
    pub built_in_min_addr: u64,
    /// Gap below a stack, in bytes (`stack_guard_gap`).
    pub stack_guard_gap: u64,
    /// `vm.overcommit_memory` with its bound.
    pub overcommit: Overcommit,
    /// `transparent_hugepage/enabled`.
    pub huge_pages: HugePages,
    /// Shared anonymous memory is placed for huge pages (`transparent_hugepage/shmem_enabled`).
    pub shmem_huge: bool,
    /// The processor has protection keys, so that `PROT_EXEC` alone takes one.
    pub protection_keys: bool,
    /// There is a swap device: pages can be swapped out, and `MADV_PAGEOUT` does it.
    pub swap: bool,
    /// Memory nodes, a bit each.
    pub nodes: u64,
}

impl Default for System {
    /// An x86-64 machine with four-level page tables and Linux's defaults.
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
    /// The lowest address that is given out without being asked for by `MAP_FIXED`, and that a stack grows
    /// to: the larger of `vm.mmap_min_addr` and the kernel's own.
    #[doc(alias = "mmap_min_addr")]
    pub fn lowest_addr(&self) -> u64 {
        let built_in = match mutant::is_on(Mutant::HintIgnoresBuiltIn) {
            true => 0,
            false => self.built_in_min_addr,
        };
        self.mmap_min_addr.max(built_in)
    }
}

impl<E: Environment> Space<E> {
    /// A file for a shared anonymous mapping of so many pages: shmem without a name, which nothing else has.
    #[doc(alias = "shmem_zero_setup")]
    pub(crate) fn nameless_file(&self, pages: u64) -> MappedFile {
        // ORDERING: Relaxed; that no number is given out twice is all that is asked.
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
    /// A machine without memory behind its pages: for layout alone.
    pub fn new(policy: Policy, system: System) -> Self {
        Self::with_platform(policy, system, Box::new(NoBytes))
    }

    /// A machine whose pages live on `platform`.
    pub fn with_platform(policy: Policy, system: System, platform: Box<dyn Platform>) -> Self {
        Self::in_environment(policy, system, platform)
    }
}

impl<E: Environment> Space<E> {
    /// A machine in an environment of the embedder's choice.
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

    /// Whoever is told of every attempt to merge.
    pub fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Whoever is told of every lookup and of every change of an index.
    pub fn set_lookup_observer(&mut self, observer: Box<dyn lookup::Observer>) {
        self.lookup_observer = Some(observer);
    }

    /// From now on lookups are counted ([`lookup_counts`](Self::lookup_counts)). All threads of an
    /// address space write to the same counters then.
    pub fn count_lookups(&mut self) {
        self.count_lookups = true;
    }

    /// How it merges.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What it is like.
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
