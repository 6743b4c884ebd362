//! `Mm`: one address space, and the guards through which it is reached.
//!
//! # Locking
//! `mmap_lock` guards [`MmState`], every body of its VMAs and the writing side of the tree; see
//! the table in the crate's documentation.
//!
//! # Linux
//! `struct mm_struct`, 6.18.

pub mod account;
mod faults;
pub mod find;
pub mod lifecycle;
pub mod stats;
pub mod validate;

pub use account::Limits;
use faults::FaultCounters;
pub use faults::{FaultCounts, FellBack};
pub use stats::Stats;

use crate::mutant::{self, Mutant};
use crate::page::PageTable;
use crate::space::Space;
use crate::types::platform::{Environment, Standard};
use crate::types::{AnonVmaId, MmId, PkeyRights, VmFlags, VmRange, VmaId};
use crate::vma::merge::{CallKind, Sharing};
use crate::vma::{VmaBody, VmaView};
use core::sync::atomic::AtomicU64;
use vmarea_range_tree::RangeTree;
use vmarea_sync::{CachePaddedLock, Guarded, Rank, ReadGuard, Spin, Wait, WriteGuard};

/// Above it come the VMAs' locks, and then those of families of anon_vmas.
const MMAP_LOCK: Rank = Rank(32);

/// A slot for an address space.
#[derive(Debug)]
#[doc(alias = "mm_struct")]
pub struct Mm<W: Wait = Spin> {
    pub(crate) mmap_lock: CachePaddedLock<W>,
    pub(crate) tree: RangeTree,
    pub(crate) pages: PageTable,
    pub(crate) state: Guarded<MmState>,
    /// Statistics of lookups, which happen without the lock.
    pub(crate) last_used_hits: AtomicU64,
    pub(crate) last_used_misses: AtomicU64,
    pub(crate) last_used: AtomicU64,
    pub(crate) fault_counters: FaultCounters,
}

impl<W: Wait> Default for Mm<W> {
    fn default() -> Self {
        Mm {
            mmap_lock: CachePaddedLock::with_rank(MMAP_LOCK),
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

/// What `mmap_lock` guards beside the VMAs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MmState {
    /// Number of VMAs.
    pub map_count: u32,
    /// Pages mapped.
    pub total_vm: u64,
    /// Pages of mlocked VMAs.
    pub locked_vm: u64,
    /// Pages of private writable mappings.
    pub data_vm: u64,
    /// Pages of executable mappings.
    pub exec_vm: u64,
    /// Pages of stacks.
    pub stack_vm: u64,
    /// Pages charged to the commit limit.
    pub committed: u64,
    /// Flags that new mappings get (`mlockall`).
    pub def_flags: VmFlags,
    /// Where the parts of the program lie.
    pub layout: Layout,
    /// Limits of the process.
    pub limits: Limits,
    /// Protection key for mappings that may only be executed, once one was needed; 0 where the processor
    /// has none.
    pub execute_only_pkey: Option<u32>,
    /// Protection keys that are handed out, a bit each.
    pub pkeys: u16,
    /// Rights to them, as far as calls have said.
    pub pkey_rights: PkeyRights,
    /// What merging and splitting did.
    pub stats: Stats,
    /// VMAs at peak.
    pub peak_map_count: u32,
    /// Borders that the collector looks at again.
    pub(crate) noted: alloc::collections::VecDeque<u64>,
}

/// Addresses of the parts of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// Top of the area that is searched top-down (`mmap_base`).
    pub mmap_base: u64,
    /// Bottom of the area that is searched when that is full (`mmap_legacy_base`).
    pub legacy_base: u64,
    /// First byte of the heap.
    pub start_brk: u64,
    /// First byte after the heap.
    pub brk: u64,
    /// First byte of the program's data.
    pub start_data: u64,
    /// First byte after the program's data.
    pub end_data: u64,
    /// First byte of the stack's content.
    pub start_stack: u64,
    /// First byte of the program's code, and the first after it; 0 where that is not known.
    pub code: [u64; 2],
    /// The same of its arguments.
    pub args: [u64; 2],
    /// The same of its environment.
    pub env: [u64; 2],
    /// Search from low addresses up (`ADDR_COMPAT_LAYOUT`).
    pub bottom_up: bool,
    /// Readable implies executable (`READ_IMPLIES_EXEC`).
    pub read_implies_exec: bool,
    /// Transparent huge pages that the process does without.
    pub thp_disabled: ThpDisabled,
    /// New mappings may be merged by KSM (`PR_SET_MEMORY_MERGE`).
    pub merge_any: bool,
    /// Whether memory may become executable.
    pub mdwe: Mdwe,
}

impl Layout {
    /// Takes over what a process keeps where another address space takes the place of `old`: in the child of
    /// a fork, and after `execve`.
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

/// Whether memory that is written may become executable (`PR_SET_MDWE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mdwe {
    /// It may.
    #[default]
    Allowed,
    /// Nothing becomes executable, nor writable and executable at once.
    Refused,
    /// The same, but not in children and after `execve`.
    RefusedHere,
}

impl Mdwe {
    /// The bits of `PR_GET_MDWE`.
    pub fn bits(self) -> u64 {
        match self {
            Mdwe::Allowed => 0,
            Mdwe::Refused => 1,
            Mdwe::RefusedHere => 3,
        }
    }

    /// Is a change of flags denied? For a new mapping both are the same.
    #[doc(alias = "map_deny_write_exec")]
    pub(crate) fn denies(self, old: VmFlags, new: VmFlags) -> bool {
        self != Mdwe::Allowed
            && !mutant::is_on(Mutant::MdweRefusesNothing)
            && new.contains(VmFlags::EXEC)
            && (new.contains(VmFlags::WRITE) || !old.contains(VmFlags::EXEC))
    }
}

/// Transparent huge pages that a process does without (`PR_SET_THP_DISABLE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ThpDisabled {
    /// None.
    #[default]
    No,
    /// Those that nobody asked for.
    ExceptAdvised,
    /// All.
    Completely,
}

/// `mmap_lock` of one mm, held for writing.
#[derive(Debug)]
pub struct MmapWriteGuard<'s, E: Environment = Standard> {
    pub(crate) space: &'s Space<E>,
    pub(crate) mm: &'s Mm<E::Wait>,
    pub(crate) id: MmId,
    /// For whom merges are counted.
    pub(crate) call: CallKind,
    pub(crate) token: WriteGuard<'s, E::Wait>,
}

/// `mmap_lock` of one mm, held for reading.
#[derive(Debug)]
pub struct MmapReadGuard<'s, E: Environment = Standard> {
    pub(crate) space: &'s Space<E>,
    pub(crate) mm: &'s Mm<E::Wait>,
    pub(crate) id: MmId,
    pub(crate) token: ReadGuard<'s, E::Wait>,
}

impl<E: Environment> Space<E> {
    /// Waits for the right to change an address space. `None` if it is gone.
    pub fn mmap_write_lock(&self, id: MmId) -> Option<MmapWriteGuard<'_, E>> {
        self.write_by(id, |lock| lock.write())
    }

    /// As [`mmap_write_lock`](Self::mmap_write_lock), of a fork's child.
    pub(crate) fn mmap_write_lock_nested(&self, id: MmId) -> Option<MmapWriteGuard<'_, E>> {
        self.write_by(id, |lock| lock.write_nested())
    }

    fn write_by<'s>(
        &'s self,
        id: MmId,
        take: impl FnOnce(&'s CachePaddedLock<E::Wait>) -> WriteGuard<'s, E::Wait>,
    ) -> Option<MmapWriteGuard<'s, E>> {
        let mm = self.mms.get(id.0)?;
        let guard = MmapWriteGuard {
            space: self,
            mm,
            id,
            call: CallKind::Other,
            token: take(&mm.mmap_lock),
        };
        // It may have ended, and its slot begun another life, while we waited.
        self.mms.get(id.0).is_some().then_some(guard)
    }

    /// Waits for the right to look at an address space. `None` if it is gone.
    pub fn mmap_read_lock(&self, id: MmId) -> Option<MmapReadGuard<'_, E>> {
        self.read_by(id, |lock| lock.read())
    }

    /// As [`mmap_read_lock`](Self::mmap_read_lock), of two the one with the higher id.
    pub(crate) fn mmap_read_lock_nested(&self, id: MmId) -> Option<MmapReadGuard<'_, E>> {
        self.read_by(id, |lock| lock.read_nested())
    }

    fn read_by<'s>(
        &'s self,
        id: MmId,
        take: impl FnOnce(&'s CachePaddedLock<E::Wait>) -> ReadGuard<'s, E::Wait>,
    ) -> Option<MmapReadGuard<'s, E>> {
        let mm = self.mms.get(id.0)?;
        let guard = MmapReadGuard {
            space: self,
            mm,
            id,
            token: take(&mm.mmap_lock),
        };
        self.mms.get(id.0).is_some().then_some(guard)
    }
}

impl<'s, E: Environment> MmapWriteGuard<'s, E> {
    /// Counters, layout and limits.
    pub fn state(&self) -> &MmState {
        self.mm.state.get(&self.token)
    }

    /// Counters, layout and limits, to change.
    pub(crate) fn state_mut(&mut self) -> &mut MmState {
        self.mm.state.get_mut(&mut self.token)
    }

    /// A VMA as it is now.
    pub(crate) fn view(&self, id: VmaId) -> VmaView {
        self.space.view(id, &self.token)
    }

    /// Keeps faults out of a VMA until this guard goes, and waits for those that are in it. To be
    /// called before its range, its body or its pages change.
    #[doc(alias = "vma_start_write")]
    #[inline]
    pub(crate) fn start_write(&mut self, id: VmaId) {
        self.space.vma(id).body.start_write(&mut self.token);
    }

    /// What is not range, page offset or anon_vma, to change.
    pub(crate) fn body_mut(&mut self, id: VmaId) -> &mut VmaBody {
        let body = &self.space.vma(id).body;
        body.start_write(&mut self.token);
        body.get_mut(&mut self.token)
    }

    /// Calls `f` with every VMA that overlaps `range`, in order, as it was before the first call.
    pub(crate) fn vmas_in(&self, range: VmRange) -> smallvec::SmallVec<[VmaId; 4]> {
        let mut found = smallvec::SmallVec::new();
        let mut at = self.mm.tree.find(range.start);
        while let Some(entry) = at.filter(|e| e.start < range.end) {
            found.extend(VmaId::from_bits(entry.value));
            at = self.mm.tree.find(entry.end);
        }
        found
    }

    /// How far pages of a VMA are shared.
    ///
    /// The family: its anon_vma has a parent, or a VMA with another anon_vma hangs on it. The pages:
    /// those that are mapped twice. An anon_vma without family needs no look at its pages.
    pub(crate) fn sharing(&self, vma: &VmaView, range: VmRange) -> Sharing {
        let Some(anon_vma) = vma.anon_vma else {
            return Sharing::NONE;
        };
        let av = self.space.anon_vma_view(anon_vma);
        let alone = av.root == av.id && av.num_children <= 1;
        let pinned = self.page_tables().pinned_pages(range);
        if alone && vma.chain_singular {
            return Sharing {
                pinned,
                ..Sharing::NONE
            };
        }
        let family = av.root != av.id || self.space.anon_vma_has_other_owners(anon_vma);
        Sharing {
            family,
            pages: self.shared_pages(anon_vma, range),
            pinned,
        }
    }

    /// Pages of a range that count as shared.
    pub(crate) fn shared_pages(&self, anon_vma: AnonVmaId, range: VmRange) -> u64 {
        let check = self.space.policy.merging.sharing;
        self.page_tables()
            .shared_pages(Some(anon_vma), range, check)
            .count
    }
}

impl<E: Environment> MmapReadGuard<'_, E> {
    /// Counters, layout and limits.
    pub fn state(&self) -> &MmState {
        self.mm.state.get(&self.token)
    }

    /// A VMA as it is now.
    pub(crate) fn view(&self, id: VmaId) -> VmaView {
        self.space.view(id, &self.token)
    }

    /// Every VMA, in order of address.
    pub fn vmas(&self) -> impl Iterator<Item = VmaView> + '_ {
        let mut at = self.mm.tree.find(0);
        core::iter::from_fn(move || {
            let entry = at?;
            at = self.mm.tree.find(entry.end);
            VmaId::from_bits(entry.value).map(|id| self.view(id))
        })
    }

    /// The page table.
    pub fn pages(&self) -> &PageTable {
        &self.mm.pages
    }
}
