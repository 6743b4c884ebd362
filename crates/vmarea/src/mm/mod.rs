//! `Mm`: one address space, and the `mmap_lock` guards through which it is accessed.
//!
//! `modify` changes the attributes of part of a VMA, by a merge if possible and by splits
//! otherwise. `commit` carries out a merge plan, and `split` splits a VMA in two.
//!
//! # Locking
//! `mmap_lock` guards [`MmState`], the bodies of the address space's VMAs, and writes to the VMA
//! tree; see the table in the crate's documentation.
//!
//! # Linux
//! `struct mm_struct`, 6.18.

pub mod account;
mod background;
pub mod bytes;
mod changed;
pub mod commit;
mod faults;
pub mod file_uses;
pub mod find;
mod guard;
mod index;
pub mod lifecycle;
mod lock_vma;
mod lookups;
pub mod mapped;
pub mod modify;
mod parts;
mod reclaim;
mod refuse;
pub mod split;
pub mod stats;
pub mod validate;

pub use account::Limits;
pub(crate) use index::Index;
pub(crate) use parts::Growth;

use faults::FaultCounters;
pub use faults::{FaultCounts, FellBack};
pub(crate) use guard::PartWriteGuard;
pub use guard::{MmapGuard, MmapReadGuard, MmapWriteGuard};
pub(crate) use lock_vma::HeldVma;
pub use lock_vma::LockedVma;
pub use mapped::Mapped;
pub use reclaim::Retained;
pub use stats::Stats;

use crate::page::PageTable;
use crate::types::platform::{Environment, Standard};
use crate::types::writers::Writers;
use crate::types::{PkeyRights, VmFlags, VmRange};
use core::sync::atomic::AtomicU64;
use parts::Part;
use vmarea_range_tree::{Contended, Entry, RangeTree};
use vmarea_sync::{CachePaddedLock, Guarded, Rank};

/// Rank of `mmap_lock` in the lock order: before the VMA locks and the anon_vma root locks.
const MMAP_LOCK: Rank = Rank(32);

/// An address space, stored in a slot.
#[derive(Debug)]
#[doc(alias = "mm_struct")]
pub struct Mm<E: Environment = Standard> {
    pub(crate) mmap_lock: <E::Writers as Writers>::Lock<E::Wait>,
    /// The VMAs, unless the address space is divided into parts.
    tree: RangeTree,
    pub(crate) parts: <E::Writers as Writers>::Each<Part>,
    pub(crate) pages: PageTable,
    pub(crate) state: Guarded<MmState>,
    /// Lookup statistics. The counters are atomic because lookups may happen without `mmap_lock`.
    pub(crate) last_used_hits: AtomicU64,
    pub(crate) last_used_misses: AtomicU64,
    pub(crate) last_used: AtomicU64,
    pub(crate) fault_counters: FaultCounters,
}

impl<E: Environment> Default for Mm<E> {
    fn default() -> Self {
        let mmap_lock = E::Writers::lock(MMAP_LOCK);
        Mm {
            parts: E::Writers::each(&mmap_lock, Part::owned_by),
            mmap_lock,
            tree: RangeTree::default(),
            pages: PageTable::default(),
            state: Guarded::default(),
            last_used_hits: AtomicU64::default(),
            last_used_misses: AtomicU64::default(),
            last_used: AtomicU64::default(),
            fault_counters: FaultCounters::default(),
        }
    }
}

impl<E: Environment> Mm<E> {
    /// Returns the memory of tree nodes and page tables that are not in use to the allocator.
    pub(crate) fn shrink(&mut self) {
        self.tree.shrink();
        self.pages.shrink();
        for part in self.parts.as_mut() {
            part.tree.shrink();
        }
    }

    /// Returns the index of the VMAs in the parts of a bitmap.
    #[inline]
    fn index_of(&self, mask: u64) -> Index<'_, E::Writers> {
        Index::new(&self.tree, self.parts.as_ref(), mask)
    }

    /// Returns the whole index, for a caller that checks what it finds.
    #[inline]
    pub(crate) fn index(&self) -> Index<'_, E::Writers> {
        self.index_of(E::Writers::active(&self.mmap_lock))
    }

    /// Returns the range that contains `addr`, for a caller that holds no lock.
    #[inline]
    pub(crate) fn try_find(&self, addr: u64) -> Result<Option<Entry>, Contended> {
        self.index_of(0).try_find(addr)
    }

    /// Returns an address up to which there is no VMA above `range`, which is a VMA.
    pub(crate) fn next_start(&self, range: VmRange) -> Option<u64> {
        self.index_of(0).next_start(range)
    }

    /// Returns the lock that owns a VMA that starts at `addr`.
    #[inline]
    pub(crate) fn owner(&self, addr: u64) -> &CachePaddedLock<E::Wait> {
        E::Writers::owner(&self.mmap_lock, E::Writers::part_of(addr))
    }
}

/// The part of an address space's state that `mmap_lock` guards, except the VMAs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MmState {
    /// Number of VMAs.
    pub map_count: u32,
    /// Number of mapped pages.
    pub total_vm: u64,
    /// Number of pages in mlocked VMAs.
    pub locked_vm: u64,
    /// Number of pages in private writable mappings.
    pub data_vm: u64,
    /// Number of pages in executable mappings.
    pub exec_vm: u64,
    /// Number of pages in stacks.
    pub stack_vm: u64,
    /// Number of pages charged against the commit limit.
    pub committed: u64,
    /// VMA flags added to every new mapping (`mlockall`).
    pub def_flags: VmFlags,
    /// Addresses of the program's segments, and placement settings.
    pub layout: Layout,
    /// Resource limits and capabilities of the process.
    pub limits: Limits,
    /// Protection key for execute-only mappings; `None` before first use, 0 without key support.
    pub execute_only_pkey: Option<u32>,
    /// Bitmap of the allocated protection keys.
    pub pkeys: u16,
    /// Access rights to the protection keys, as set by earlier calls.
    pub pkey_rights: PkeyRights,
    /// Merge and split statistics.
    pub stats: Stats,
    /// Highest number of VMAs so far.
    pub peak_map_count: u32,
    /// Start addresses of VMAs at which the merge collector will retry a merge.
    pub(crate) noted: alloc::collections::VecDeque<u64>,
}

impl MmState {
    /// Returns the state that the child of a fork starts with, before any VMA is copied.
    pub(crate) fn of_child(&self) -> MmState {
        let mut layout = self.layout;
        layout.inherit(&self.layout);
        MmState {
            total_vm: self.total_vm,
            data_vm: self.data_vm,
            exec_vm: self.exec_vm,
            stack_vm: self.stack_vm,
            def_flags: self.def_flags & VmFlags::NOHUGEPAGE,
            layout,
            limits: self.limits,
            execute_only_pkey: self.execute_only_pkey,
            pkeys: self.pkeys,
            pkey_rights: self.pkey_rights,
            ..MmState::default()
        }
    }
}

/// Segment addresses and memory settings of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// Top of the area searched top-down for free address ranges (`mmap_base`).
    pub mmap_base: u64,
    /// Bottom of the area searched once the top-down area is exhausted (`mmap_legacy_base`).
    pub legacy_base: u64,
    /// Address of the first byte of the heap.
    pub start_brk: u64,
    /// Address of the first byte after the heap.
    pub brk: u64,
    /// Address of the first byte of the program's data.
    pub start_data: u64,
    /// Address of the first byte after the program's data.
    pub end_data: u64,
    /// Address of the first byte of the stack's initial contents.
    pub start_stack: u64,
    /// Start and end address of the program's code; 0 if unknown.
    pub code: [u64; 2],
    /// Start and end address of the program's arguments; 0 if unknown.
    pub args: [u64; 2],
    /// Start and end address of the program's environment; 0 if unknown.
    pub env: [u64; 2],
    /// True if free address ranges are searched for bottom-up (`ADDR_COMPAT_LAYOUT`).
    pub bottom_up: bool,
    /// True if readable mappings are also made executable (`READ_IMPLIES_EXEC`).
    pub read_implies_exec: bool,
    /// Which transparent huge pages are disabled for the process.
    pub thp_disabled: ThpDisabled,
    /// True if KSM may merge the pages of new mappings (`PR_SET_MEMORY_MERGE`).
    pub merge_any: bool,
    /// Whether mappings can become executable later, or be writable and executable at once.
    pub mdwe: Mdwe,
}

impl Layout {
    /// Copies from `old` the settings that survive `execve` and that a fork's child inherits.
    #[doc(alias = "mmf_init_flags")]
    pub fn inherit(&mut self, old: &Layout) {
        self.thp_disabled = old.thp_disabled;
        self.merge_any = old.merge_any;
        self.mdwe = match old.mdwe {
            Mdwe::RefusedHere => Mdwe::Allowed,
            mdwe => mdwe,
        };
    }
}

/// Whether mappings can become executable later, or be writable and executable (`PR_SET_MDWE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mdwe {
    /// Any mapping can become executable.
    #[default]
    Allowed,
    /// No mapping can become executable later, and none can be writable and executable at once.
    Refused,
    /// Like `Refused`, but not inherited by a fork's child, and not preserved across `execve`.
    RefusedHere,
}

impl Mdwe {
    /// Returns the flags that `PR_GET_MDWE` returns.
    pub fn bits(self) -> u64 {
        match self {
            Mdwe::Allowed => 0,
            Mdwe::Refused => 1,
            Mdwe::RefusedHere => 3,
        }
    }

    /// True if changing flags from `old` to `new` is denied.
    ///
    /// For a new mapping, the caller passes the same flags as `old` and `new`.
    #[doc(alias = "map_deny_write_exec")]
    pub(crate) fn denies(self, old: VmFlags, new: VmFlags) -> bool {
        self != Mdwe::Allowed
            && new.contains(VmFlags::EXEC)
            && (new.contains(VmFlags::WRITE) || !old.contains(VmFlags::EXEC))
    }
}

/// Which transparent huge pages are disabled for a process (`PR_SET_THP_DISABLE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ThpDisabled {
    /// No transparent huge pages are disabled.
    #[default]
    No,
    /// Transparent huge pages are disabled, except where `madvise` has requested them.
    ExceptAdvised,
    /// All transparent huge pages are disabled.
    Completely,
}
