//! `Mm`: one address space, and the lock guards that give access to it.
//!
//! # Locking
//! `mmap_lock` guards [`MmState`], the bodies of the address space's VMAs, and writes to the VMA
//! tree; see the table in the crate's documentation.
//!
//! # Linux
//! `struct mm_struct`, 6.18.

pub mod account;
mod background;
mod faults;
pub mod find;
pub mod lifecycle;
pub mod stats;
pub mod validate;

pub use account::Limits;
use faults::FaultCounters;
pub use faults::{FaultCounts, FellBack};
pub use stats::Stats;

use crate::page::{PageTable, PageTables};
use crate::policy::SharingCheck;
use crate::space::Space;
use crate::types::platform::{Environment, Standard};
use crate::types::{AnonVmaId, MmId, PkeyRights, VmFlags, VmRange, VmaId};
use crate::vma::merge::{CallKind, Sharing};
use crate::vma::{VmaBody, VmaView};
use core::sync::atomic::AtomicU64;
use vmarea_range_tree::RangeTree;
use vmarea_sync::{CachePaddedLock, Guarded, Rank, ReadGuard, Spin, Wait, WriteGuard};

/// Lock rank of `mmap_lock`: below the VMA locks, which rank below the anon_vma root locks.
const MMAP_LOCK: Rank = Rank(32);

/// A slot for an address space.
#[derive(Debug)]
#[doc(alias = "mm_struct")]
pub struct Mm<W: Wait = Spin> {
    pub(crate) mmap_lock: CachePaddedLock<W>,
    pub(crate) tree: RangeTree,
    pub(crate) pages: PageTable,
    pub(crate) state: Guarded<MmState>,
    /// Lookup statistics; lookups happen without the lock.
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

/// The state of an address space that `mmap_lock` guards, except the VMAs.
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
    /// Number of pages charged to the commit limit.
    pub committed: u64,
    /// VMA flags added to every new mapping (`mlockall`).
    pub def_flags: VmFlags,
    /// Addresses of the program's segments, and placement settings.
    pub layout: Layout,
    /// Resource limits and capabilities of the process.
    pub limits: Limits,
    /// Protection key of execute-only mappings; `None` until needed, 0 if there are no keys.
    pub execute_only_pkey: Option<u32>,
    /// Bitmap of the allocated protection keys.
    pub pkeys: u16,
    /// Access rights to the protection keys, as set by the calls so far.
    pub pkey_rights: PkeyRights,
    /// Merge and split statistics.
    pub stats: Stats,
    /// Maximum number of VMAs so far.
    pub peak_map_count: u32,
    /// Addresses of the borders between VMAs that the merge collector will retry.
    pub(crate) noted: alloc::collections::VecDeque<u64>,
}

impl MmState {
    /// Returns the state with which the child of a fork begins, before it has VMAs.
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
    /// Top of the area that is searched top-down (`mmap_base`).
    pub mmap_base: u64,
    /// Bottom of the area that is searched if the top-down area is full (`mmap_legacy_base`).
    pub legacy_base: u64,
    /// Address of the first byte of the heap.
    pub start_brk: u64,
    /// Address of the first byte after the heap.
    pub brk: u64,
    /// Address of the first byte of the program's data.
    pub start_data: u64,
    /// Address of the first byte after the program's data.
    pub end_data: u64,
    /// Address of the first byte of the stack's contents.
    pub start_stack: u64,
    /// Start and end address of the program's code; 0 if unknown.
    pub code: [u64; 2],
    /// Start and end address of the program's arguments; 0 if unknown.
    pub args: [u64; 2],
    /// Start and end address of the program's environment; 0 if unknown.
    pub env: [u64; 2],
    /// True if free ranges are searched from low addresses up (`ADDR_COMPAT_LAYOUT`).
    pub bottom_up: bool,
    /// True if readable memory is also executable (`READ_IMPLIES_EXEC`).
    pub read_implies_exec: bool,
    /// Kinds of transparent huge pages that are disabled for the process.
    pub thp_disabled: ThpDisabled,
    /// True if KSM may merge the pages of new mappings (`PR_SET_MEMORY_MERGE`).
    pub merge_any: bool,
    /// Whether memory may become executable.
    pub mdwe: Mdwe,
}

impl Layout {
    /// Copies the settings that survive `execve` and that a fork's child inherits from `old`.
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
    /// Memory may become executable.
    #[default]
    Allowed,
    /// Memory must not become executable, and must not be writable and executable at once.
    Refused,
    /// Like `Refused`, but only until `execve`, and not inherited by the child of a fork.
    RefusedHere,
}

impl Mdwe {
    /// Returns the bits that `PR_GET_MDWE` reports.
    pub fn bits(self) -> u64 {
        match self {
            Mdwe::Allowed => 0,
            Mdwe::Refused => 1,
            Mdwe::RefusedHere => 3,
        }
    }

    /// True if changing flags from `old` to `new` is denied.
    ///
    /// For a new mapping, `old` and `new` are equal.
    #[doc(alias = "map_deny_write_exec")]
    pub(crate) fn denies(self, old: VmFlags, new: VmFlags) -> bool {
        self != Mdwe::Allowed
            && new.contains(VmFlags::EXEC)
            && (new.contains(VmFlags::WRITE) || !old.contains(VmFlags::EXEC))
    }
}

/// Kinds of transparent huge pages that are disabled for a process (`PR_SET_THP_DISABLE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ThpDisabled {
    /// No huge pages are disabled.
    #[default]
    No,
    /// Huge pages are disabled except where `madvise` requested them.
    ExceptAdvised,
    /// All huge pages are disabled.
    Completely,
}

/// `mmap_lock` of one mm, held for writing.
#[derive(Debug)]
pub struct MmapWriteGuard<'s, E: Environment = Standard> {
    pub(crate) space: &'s Space<E>,
    pub(crate) mm: &'s Mm<E::Wait>,
    pub(crate) id: MmId,
    /// Kind of call for which merges are counted.
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
    /// Takes `mmap_lock` of an address space for writing. `None` if the address space is gone.
    pub fn mmap_write_lock(&self, id: MmId) -> Option<MmapWriteGuard<'_, E>> {
        self.write_by(id, |lock| lock.write())
    }

    /// Takes `mmap_lock` of a fork's child for writing, while the parent's `mmap_lock` is held.
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
        // The address space may have ended, and its slot been reused, during the wait.
        self.mms.get(id.0).is_some().then_some(guard)
    }

    /// Takes `mmap_lock` of an address space for reading. `None` if the address space is gone.
    pub fn mmap_read_lock(&self, id: MmId) -> Option<MmapReadGuard<'_, E>> {
        self.read_by(id, |lock| lock.read())
    }

    /// Takes a second `mmap_lock` for reading; the mm that is already locked must have a lower id.
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
    /// Returns the counters, layout and limits.
    pub fn state(&self) -> &MmState {
        self.mm.state.get(&self.token)
    }

    /// Returns the counters, layout and limits for modification.
    pub(crate) fn state_mut(&mut self) -> &mut MmState {
        self.mm.state.get_mut(&mut self.token)
    }

    /// Returns the current state of a VMA.
    pub(crate) fn view(&self, id: VmaId) -> VmaView {
        self.space.view(id, &self.token)
    }

    /// Waits for faults that hold the VMA's lock, and write-locks it until this guard is dropped.
    ///
    /// Must be called before the VMA's range, body or pages change.
    #[doc(alias = "vma_start_write")]
    #[inline]
    pub(crate) fn start_write(&mut self, id: VmaId) {
        self.space.vma(id).body.start_write(&mut self.token);
    }

    /// Returns a VMA's body (everything but range, page offset and anon_vma) for modification.
    pub(crate) fn body_mut(&mut self, id: VmaId) -> &mut VmaBody {
        let body = &self.space.vma(id).body;
        body.start_write(&mut self.token);
        body.get_mut(&mut self.token)
    }

    /// Returns the VMAs that overlap `range`, in address order.
    pub(crate) fn vmas_in(&self, range: VmRange) -> impl Iterator<Item = VmaView> {
        let mut at = range.start;
        core::iter::from_fn(move || {
            let vma = self.find(at).filter(|v| v.range.start < range.end)?;
            at = vma.range.end;
            Some(vma)
        })
    }

    /// Returns a handle to query and modify ranges of the page table.
    pub fn page_tables(&self) -> PageTables<'s, E> {
        self.space.page_tables(&self.mm.pages)
    }

    /// Returns the sharing state of a VMA: its family, shared pages and pinned pages.
    ///
    /// The VMA has a family if its anon_vma has a parent, or if a VMA with another anon_vma is
    /// linked to it. The pages of an anon_vma without a family cannot be mapped twice, so they are
    /// only visited if the policy also counts a page in the swap cache as shared.
    pub(crate) fn sharing(&self, vma: &VmaView, range: VmRange) -> Sharing {
        let Some(anon_vma) = vma.anon_vma else {
            return Sharing::NONE;
        };
        let av = self.space.anon_vma_view(anon_vma);
        let alone = av.root == av.id && av.num_children <= 1 && vma.chain_singular;
        let family = !alone && (av.root != av.id || self.space.anon_vma_has_other_owners(anon_vma));
        let literal = self.space.policy.merging.sharing == SharingCheck::Thesis;
        Sharing {
            family,
            pages: match alone && !literal {
                true => 0,
                false => self.shared_pages(anon_vma, range),
            },
            pinned: self.page_tables().pinned_pages(range),
        }
    }

    /// Counts the shared pages of `range`; the policy selects the definition of a shared page.
    pub(crate) fn shared_pages(&self, anon_vma: AnonVmaId, range: VmRange) -> u64 {
        let check = self.space.policy.merging.sharing;
        self.page_tables()
            .shared_pages(Some(anon_vma), range, check)
            .count
    }
}

impl<'s, E: Environment> MmapReadGuard<'s, E> {
    /// Returns the counters, layout and limits.
    pub fn state(&self) -> &MmState {
        self.mm.state.get(&self.token)
    }

    /// Returns the current state of a VMA.
    pub(crate) fn view(&self, id: VmaId) -> VmaView {
        self.space.view(id, &self.token)
    }

    /// Returns every VMA, in address order.
    pub fn vmas(&self) -> impl Iterator<Item = VmaView> + '_ {
        let mut at = self.mm.tree.find(0);
        core::iter::from_fn(move || {
            let entry = at?;
            at = self.mm.tree.find(entry.end);
            VmaId::from_bits(entry.value).map(|id| self.view(id))
        })
    }

    /// Returns the page table.
    pub fn pages(&self) -> &PageTable {
        &self.mm.pages
    }

    /// Returns a handle to query and modify ranges of the page table.
    pub fn page_tables(&self) -> PageTables<'s, E> {
        self.space.page_tables(&self.mm.pages)
    }
}
