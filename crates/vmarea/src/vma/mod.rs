//! `Vma`: a range of addresses with one set of attributes, and the decision which VMAs merge.
//!
//! # Picture
//! ```text
//!            ┌ range, page offset, anon_vma   read without a lock (atomics)
//! Vma slot ──┤ body: flags, file, policy …    through a guard of `mmap_lock`
//!            └ chain: links to its anon_vmas  see `chain`
//! ```
//! `merge` takes [`VmaView`]s and returns a plan. Nothing here changes the map of an address space;
//! [`mm`](crate::mm) does, with `mmap_lock` held.
//!
//! # Invariants
//! V1  `start < end`, and both are page aligned
//! V2  the tree holds exactly the VMAs of the mm, and they are disjoint
//! V3  an anonymous VMA without an anon_vma has no anonymous page
//! V4  a chain ends with the VMA's own anon_vma; without an anon_vma the chain is empty

pub mod chain;
pub mod layout;
pub mod lock;
pub mod merge;
pub mod partial_view;

use crate::Space;
use crate::policy::Rules;
use crate::rmap::span::RmapSpan;
use crate::types::platform::{Environment, Standard};
use crate::types::{
    AnonVmaId, File, FileId, FileKind, MmId, PAGE_SHIFT, Pgoff, VmFlags, VmRange, VmaId,
};
use chain::Chain;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vmarea_sync::{LockGuard, SpinLock, VmaCell};

/// A slot that stores a VMA.
///
/// A `Vma` and the eight bytes of its slot header fill two cache lines. The first holds the
/// lock and the fields that are read without a lock; the second holds the body and the chain.
#[derive(Debug, Default)]
#[doc(alias = "vm_area_struct")]
#[repr(C)]
pub struct Vma<E: Environment = Standard> {
    start: AtomicU64,
    end: AtomicU64,
    pgoff: AtomicU64,
    pub(crate) anon_vma: AtomicU64,
    /// Slot index of the mm that contains the VMA, plus one.
    mm: AtomicU32,
    /// A [`RmapSpan`], which changes together with the chain.
    rmap_span: AtomicU32,
    pub(crate) body: VmaCell<VmaBody, E::VmaLock>,
    pub(crate) chain: SpinLock<Chain>,
}

/// The attributes of a VMA that `mmap_lock` guards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VmaBody {
    /// `vm_flags`.
    pub flags: VmFlags,
    /// The mapped file, if there is one.
    pub file: Option<MappedFile>,
    /// Number that stands for the memory policy; 0 for the task's policy.
    pub policy: u32,
    /// Number that stands for the name set with `PR_SET_VMA`; 0 for none.
    pub name: u32,
    /// Number that stands for the userfaultfd context; 0 for none.
    pub uffd: u32,
}

/// The properties of a mapped file that a VMA stores.
///
/// The struct is packed so that a VMA fits in two cache lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, packed(4))]
pub struct MappedFile {
    /// Identity of the open file description.
    pub id: FileId,
    /// Inode number, chosen by the embedder.
    pub inode: u64,
    /// Kind of the file.
    pub kind: FileKind,
}

impl From<&File> for MappedFile {
    fn from(file: &File) -> Self {
        MappedFile {
            id: file.id,
            inode: file.inode,
            kind: file.kind,
        }
    }
}

/// A snapshot of a VMA, for merge decisions and for callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmaView {
    /// Identity of the VMA.
    pub id: VmaId,
    /// Address range of the VMA.
    pub range: VmRange,
    /// Page offset of the first page.
    pub pgoff: Pgoff,
    /// The VMA's anon_vma (`vma->anon_vma`), if it has one.
    pub anon_vma: Option<AnonVmaId>,
    /// True if the VMA's chain has at most one link.
    pub chain_singular: bool,
    /// Flags, file and the other attributes.
    pub body: VmaBody,
}

impl VmaView {
    /// Checks whether the VMA is anonymous (`vma_is_anonymous`). A private mapping of `/dev/zero`
    /// is anonymous too.
    pub fn is_anonymous(&self) -> bool {
        self.body.is_anonymous()
    }

    /// Returns the page offset that corresponds to `addr`, which may be outside of the VMA.
    pub fn pgoff_at(&self, addr: u64) -> Pgoff {
        Pgoff(
            self.pgoff
                .0
                .wrapping_add(Pgoff::of_addr(addr).0)
                .wrapping_sub(Pgoff::of_addr(self.range.start).0),
        )
    }

    /// Returns the page offset that follows the last page of the VMA.
    pub fn pgoff_end(&self) -> Pgoff {
        self.pgoff_at(self.range.end)
    }

    /// Returns the start of the guard gap below a stack or shadow stack; for other VMAs, the VMA's
    /// start.
    #[doc(alias = "vm_start_gap")]
    pub fn start_gap(&self, stack_guard_gap: u64) -> u64 {
        let gap = if self.body.flags.contains(VmFlags::GROWSDOWN) {
            stack_guard_gap
        } else if self.body.flags.contains(VmFlags::SHADOW_STACK) {
            crate::types::PAGE_SIZE
        } else {
            0
        };
        self.range.start.saturating_sub(gap)
    }
}

impl VmaBody {
    /// Checks whether the pages are anonymous: no file, or a private mapping of `/dev/zero`.
    pub fn is_anonymous(&self) -> bool {
        match self.file {
            None => true,
            Some(file) => file.kind == FileKind::DevZero && !self.flags.contains(VmFlags::MAYSHARE),
        }
    }

    /// Checks whether the VMA maps a `memfd_secret` file. The kernel does not access the pages of
    /// such a file on behalf of a program.
    #[doc(alias = "vma_is_secretmem")]
    pub(crate) fn is_secret(&self) -> bool {
        self.file.is_some_and(|f| f.kind == FileKind::Secret)
    }

    /// Checks whether the VMA may be split at `addr`.
    pub(crate) fn may_split(&self, addr: u64, rules: &Rules) -> bool {
        self.file.is_none_or(|f| f.kind.may_split(addr, rules))
    }

    /// Checks whether the VMA has a `close` hook, which means that a merge must not remove it.
    pub fn has_close(&self) -> bool {
        self.file.is_some_and(|f| f.kind.has_close())
    }
}

impl<E: Environment> Vma<E> {
    /// Returns the first address of the VMA.
    #[inline]
    pub fn start(&self) -> u64 {
        // ORDERING: Relaxed; a reader that does not hold `mmap_lock` checks the value again under
        // the VMA's lock.
        self.start.load(Ordering::Relaxed)
    }

    /// Returns the first address after the VMA.
    #[inline]
    pub fn end(&self) -> u64 {
        // ORDERING: Relaxed; as for `start`.
        self.end.load(Ordering::Relaxed)
    }

    /// Returns the page offset of the first page.
    #[inline]
    pub fn pgoff(&self) -> Pgoff {
        // ORDERING: Relaxed; as for `start`.
        Pgoff(self.pgoff.load(Ordering::Relaxed))
    }

    /// Returns the VMA's anon_vma (`vma->anon_vma`), if it has one.
    #[inline]
    pub fn anon_vma(&self) -> Option<AnonVmaId> {
        // ORDERING: Acquire, pairs with the Release in `set_anon_vma`.
        AnonVmaId::from_bits(self.anon_vma.load(Ordering::Acquire))
    }

    /// Returns the slot index of the address space that contains the VMA.
    #[inline]
    pub(crate) fn mm_index(&self) -> Option<u32> {
        // ORDERING: Relaxed; set before the VMA is linked anywhere.
        self.mm.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Checks whether the VMA belongs to `mm`, which must be a live address space.
    #[inline]
    pub(crate) fn is_of(&self, mm: MmId) -> bool {
        self.mm_index() == Some(mm.0.index())
    }

    pub(crate) fn set_mm(&self, mm: Option<MmId>) {
        let index = mm.map_or(0, |mm| mm.0.index() + 1);
        self.mm.store(index, Ordering::Relaxed);
    }

    /// Returns the length in pages of the VMA's interval in the interval trees.
    pub(crate) fn rmap_span(&self) -> RmapSpan {
        // ORDERING: Relaxed; changed under the anon_vma root's lock, or with `mmap_lock` held for
        // writing.
        RmapSpan::from_bits(self.rmap_span.load(Ordering::Relaxed))
    }

    pub(crate) fn set_rmap_span(&self, rmap_span: RmapSpan) {
        // ORDERING: Relaxed; see `rmap_span`.
        self.rmap_span.store(rmap_span.to_bits(), Ordering::Relaxed);
    }

    /// Returns the address at which the VMA's interval in the interval trees ends.
    pub(crate) fn rmap_limit(&self) -> u64 {
        self.start() + (self.rmap_span().pages() << PAGE_SHIFT)
    }

    /// Returns the VMA's interval in the interval trees: its first and last page offset.
    pub(crate) fn interval(&self) -> (u64, u64) {
        let first = self.pgoff().0;
        (first, first.saturating_add(self.rmap_span().pages() - 1))
    }

    /// Returns a snapshot of the VMA. The caller must have access to the VMA's body.
    #[inline]
    pub(crate) fn view(&self, id: VmaId, body: &VmaBody) -> VmaView {
        let chain_singular = self.chain.lock().len() <= 1;
        VmaView {
            chain_singular,
            ..self.view_without_chain(id, body)
        }
    }

    /// Like [`view`](Self::view), but always reports the chain as not singular. The fault path uses
    /// this snapshot, because a fault needs only the neighbours' chain lengths. It does not take
    /// the chain lock.
    #[inline]
    pub(crate) fn view_without_chain(&self, id: VmaId, body: &VmaBody) -> VmaView {
        VmaView {
            id,
            range: VmRange::new(self.start(), self.end()),
            pgoff: self.pgoff(),
            anon_vma: self.anon_vma(),
            chain_singular: false,
            body: *body,
        }
    }

    /// Sets the range and the page offset. The caller keeps the tree of VMAs and the interval trees
    /// consistent.
    pub(crate) fn set_range(&self, range: VmRange, pgoff: Pgoff) {
        // ORDERING: Relaxed; the writer holds `mmap_lock`, see `start`.
        self.start.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Relaxed);
        self.pgoff.store(pgoff.0, Ordering::Relaxed);
    }
}

impl<E: Environment> Space<E> {
    pub(crate) fn vma(&self, id: VmaId) -> &Vma<E> {
        self.vmas.get(id.0).expect("VMA in use")
    }

    /// Returns a snapshot of the VMA `id`.
    pub(crate) fn view(&self, id: VmaId, guard: &impl LockGuard) -> VmaView {
        let vma = self.vma(id);
        vma.view(id, vma.body.get(guard))
    }
}
