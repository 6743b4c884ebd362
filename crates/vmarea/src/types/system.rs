//! Properties of the machine that affect its address spaces.

use crate::types::PAGE_SHIFT;
use crate::types::arch::{Arch, Native};

/// Where transparent huge pages are used in anonymous memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugePages {
    /// Never used.
    Never,
    /// Only in mappings with `MADV_HUGEPAGE`.
    Madvise,
    /// Used in all mappings.
    Always,
}

/// The overcommit mode (`vm.overcommit_memory`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overcommit {
    /// Refuse only single requests for more than this many pages, the total of memory and swap.
    Guess(u64),
    /// Refuse nothing.
    Always,
    /// Refuse any request that would raise the sum of commit charges above this many pages.
    Never(u64),
}

/// Properties of the machine that affect its address spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct System {
    /// The end of user address space: the first address that no process can map (`TASK_SIZE`).
    pub task_size: u64,
    /// Maximum number of VMAs in an address space (`vm.max_map_count`).
    pub max_map_count: u32,
    /// `vm.mmap_min_addr`, in bytes; mapping below this address requires `CAP_SYS_RAWIO`.
    pub mmap_min_addr: u64,
    /// The minimum address that the kernel was built with (`CONFIG_LSM_MMAP_MIN_ADDR`), in bytes;
    /// see [`lowest_addr`](System::lowest_addr).
    pub built_in_min_addr: u64,
    /// Size of the guard gap below a stack, in bytes (`stack_guard_gap`).
    pub stack_guard_gap: u64,
    /// The overcommit mode (`vm.overcommit_memory`) and the limit that it implies.
    pub overcommit: Overcommit,
    /// `transparent_hugepage/enabled`.
    pub huge_pages: HugePages,
    /// True if shared anonymous mappings are aligned for huge pages
    /// (`transparent_hugepage/shmem_enabled`).
    pub shmem_huge: bool,
    /// True if the processor has protection keys; if so, execute-only mappings use one of them.
    pub protection_keys: bool,
    /// True if there is a swap device; without one, no page is swapped out, even by `MADV_PAGEOUT`.
    pub swap: bool,
    /// Size of the swap device in pages, which is the maximum number of swap slots.
    pub swap_slots: u32,
    /// Bit mask of the NUMA nodes that exist.
    pub nodes: u64,
}

impl Default for System {
    /// Returns a machine with Linux's defaults, for the architecture selected at build time.
    fn default() -> Self {
        Self {
            task_size: Native::TASK_SIZE,
            max_map_count: 65_530,
            mmap_min_addr: 65_536,
            built_in_min_addr: 65_536,
            stack_guard_gap: 256 << PAGE_SHIFT,
            overcommit: Overcommit::Guess(u64::MAX),
            huge_pages: HugePages::Madvise,
            shmem_huge: false,
            protection_keys: false,
            swap: false,
            swap_slots: u32::MAX,
            nodes: 1,
        }
    }
}

impl System {
    /// Returns the lowest address that `mmap` chooses without `MAP_FIXED` and to which a stack can
    /// grow: the larger of `vm.mmap_min_addr` and the kernel's built-in minimum.
    #[doc(alias = "mmap_min_addr")]
    pub fn lowest_addr(&self) -> u64 {
        self.mmap_min_addr.max(self.built_in_min_addr)
    }
}
