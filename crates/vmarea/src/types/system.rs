//! Properties of the machine that affect its address spaces.

use crate::types::PAGE_SHIFT;
use crate::types::arch::{Arch, Native};

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
    /// Refuse only a request for more than this many pages, which is all memory and swap.
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
    /// True if the processor has protection keys; execute-only mappings then use one.
    pub protection_keys: bool,
    /// True if there is a swap device: pages can be swapped out, and `MADV_PAGEOUT` swaps them out.
    pub swap: bool,
    /// Size of the swap device in pages; the index of every slot is below it.
    pub swap_slots: u32,
    /// Bit mask of the NUMA nodes.
    pub nodes: u64,
}

impl Default for System {
    /// Returns a machine of the architecture that was chosen, with Linux's defaults.
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
    /// Returns the lowest address that `mmap` picks without `MAP_FIXED` and that a stack grows to:
    /// the larger of `vm.mmap_min_addr` and the kernel's built-in minimum.
    #[doc(alias = "mmap_min_addr")]
    pub fn lowest_addr(&self) -> u64 {
        self.mmap_min_addr.max(self.built_in_min_addr)
    }
}
