//! `Vma`: a range of addresses with one set of attributes, and what is done to it.
//!
//! # Picture
//! ```text
//!            ┌ range, page offset, anon_vma   read without a lock (atomics)
//! Vma slot ──┤ body: flags, file, policy …    through a guard of the mm's lock
//!            └ chain: anon_vmas it hangs on   see `rmap`
//! ```
//! `merge` decides over [`VmaView`]s and gives a plan; `commit` carries a plan out; `split` cuts a
//! VMA in two; `modify` is merge or else split, for a call that changes attributes.
//!
//! # Invariants
//! V1  `start < end`, both page aligned
//! V2  the tree holds exactly the VMAs of the mm, disjoint
//! V3  an anonymous VMA without anon_vma has no anonymous page
//! V4  its chain's last link is its own anon_vma, or it has none and the chain is empty

pub mod commit;
pub mod layout;
pub mod lock;
pub mod merge;
pub mod modify;
pub mod partial_view;
pub mod split;

use crate::policy::Rules;
use crate::rmap::chain::Chain;
use crate::rmap::span::RmapSpan;
use crate::space::Space;
use crate::types::platform::{Environment, Standard};
use crate::types::{AnonVmaId, File, FileId, FileKind, MmId, Pgoff, VmFlags, VmRange, VmaId};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vmarea_sync::{LockGuard, SpinLock, VmaCell};

/// A slot for a VMA.
///
/// Two cache lines with the slot's own eight bytes: what is read without a lock and the lock on the
/// first, the body and the chain on the second.
#[derive(Debug, Default)]
#[doc(alias = "vm_area_struct")]
#[repr(C)]
pub struct Vma<E: Environment = Standard> {
    start: AtomicU64,
    end: AtomicU64,
    pgoff: AtomicU64,
    pub(crate) anon_vma: AtomicU64,
    /// Index of the slot of its mm, plus one.
    mm: AtomicU32,
    /// A [`RmapSpan`]: changed with the chain.
    rmap_span: AtomicU32,
    pub(crate) body: VmaCell<VmaBody, E::VmaLock>,
    pub(crate) chain: SpinLock<Chain>,
}

/// What the mm's lock guards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VmaBody {
    /// `vm_flags`.
    pub flags: VmFlags,
    /// The file, where there is one.
    pub file: Option<MappedFile>,
    /// Memory policy, 0 for the task's.
    pub policy: u32,
    /// Name given by `PR_SET_VMA`, 0 for none.
    pub name: u32,
    /// userfaultfd context, 0 for none.
    pub uffd: u32,
}

/// A file as a VMA holds it.
///
/// Packed, so that a VMA lies in two cache lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, packed(4))]
pub struct MappedFile {
    /// The open description.
    pub id: FileId,
    /// The inode, as the embedder numbers them.
    pub inode: u64,
    /// What it is.
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

/// A VMA as it was at one moment, for decisions and for callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmaView {
    /// Which.
    pub id: VmaId,
    /// Its addresses.
    pub range: VmRange,
    /// Offset of the first page.
    pub pgoff: Pgoff,
    /// Its own anon_vma.
    pub anon_vma: Option<AnonVmaId>,
    /// Its chain has one link at the most.
    pub chain_singular: bool,
    /// Flags, file and the rest.
    pub body: VmaBody,
}

impl VmaView {
    /// No file behind the pages (`vma_is_anonymous`): also a private mapping of `/dev/zero`.
    pub fn is_anonymous(&self) -> bool {
        self.body.is_anonymous()
    }

    /// Page offset of the page at `addr`, which need not lie within.
    pub fn pgoff_at(&self, addr: u64) -> Pgoff {
        Pgoff(
            self.pgoff
                .0
                .wrapping_add(Pgoff::of_addr(addr).0)
                .wrapping_sub(Pgoff::of_addr(self.range.start).0),
        )
    }

    /// Page offset of the first page after it.
    pub fn pgoff_end(&self) -> Pgoff {
        self.pgoff_at(self.range.end)
    }

    /// Lowest address that stays free below it: a stack keeps a gap.
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
    /// No file behind the pages.
    pub fn is_anonymous(&self) -> bool {
        match self.file {
            None => true,
            Some(file) => file.kind == FileKind::DevZero && !self.flags.contains(VmFlags::MAYSHARE),
        }
    }

    /// Of `memfd_secret`: the kernel brings no page of it for a program.
    #[doc(alias = "vma_is_secretmem")]
    pub(crate) fn is_secret(&self) -> bool {
        self.file.is_some_and(|f| f.kind == FileKind::Secret)
    }

    /// May it be cut at `addr`?
    pub(crate) fn may_split(&self, addr: u64, rules: &Rules) -> bool {
        self.file.is_none_or(|f| f.kind.may_split(addr, rules))
    }

    /// Has a `close` hook, so that a merge must not take it away.
    pub fn has_close(&self) -> bool {
        self.file.is_some_and(|f| f.kind.has_close())
    }
}

impl<E: Environment> Vma<E> {
    /// First address.
    #[inline]
    pub fn start(&self) -> u64 {
        // ORDERING: Relaxed; a reader without the mm's lock checks again under the VMA's.
        self.start.load(Ordering::Relaxed)
    }

    /// First address after it.
    #[inline]
    pub fn end(&self) -> u64 {
        // ORDERING: Relaxed; as for `start`.
        self.end.load(Ordering::Relaxed)
    }

    /// Offset of its first page.
    #[inline]
    pub fn pgoff(&self) -> Pgoff {
        // ORDERING: Relaxed; as for `start`.
        Pgoff(self.pgoff.load(Ordering::Relaxed))
    }

    /// Its own anon_vma.
    #[inline]
    pub fn anon_vma(&self) -> Option<AnonVmaId> {
        // ORDERING: Acquire, pairs with the Release in `set_anon_vma`.
        AnonVmaId::from_bits(self.anon_vma.load(Ordering::Acquire))
    }

    /// The slot of the address space that it is in.
    #[inline]
    pub(crate) fn mm_index(&self) -> Option<u32> {
        // ORDERING: Relaxed; set before the VMA is linked anywhere.
        self.mm.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Is it in this address space, which is there?
    #[inline]
    pub(crate) fn is_of(&self, mm: MmId) -> bool {
        self.mm_index() == Some(mm.0.index())
    }

    pub(crate) fn set_mm(&self, mm: Option<MmId>) {
        let index = mm.map_or(0, |mm| mm.0.index() + 1);
        self.mm.store(index, Ordering::Relaxed);
    }

    /// How far it stands in the interval trees.
    pub(crate) fn rmap_span(&self) -> RmapSpan {
        // ORDERING: Relaxed; changed under the family's lock, or with the mm's held for writing.
        RmapSpan::from_bits(self.rmap_span.load(Ordering::Relaxed))
    }

    pub(crate) fn set_rmap_span(&self, rmap_span: RmapSpan) {
        // ORDERING: Relaxed; see `rmap_span`.
        self.rmap_span.store(rmap_span.to_bits(), Ordering::Relaxed);
    }

    /// What it is in the interval trees: first and last page offset.
    pub(crate) fn interval(&self) -> (u64, u64) {
        let first = self.pgoff().0;
        (first, first.saturating_add(self.rmap_span().pages() - 1))
    }

    /// The VMA as it is now, for who may see its body.
    #[inline]
    pub(crate) fn view(&self, id: VmaId, body: &VmaBody) -> VmaView {
        let chain_singular = self.chain.lock().len() <= 1;
        VmaView {
            chain_singular,
            ..self.view_without_chain(id, body)
        }
    }

    /// As [`view`](Self::view), but for the chain, which is given out as not singular. For a fault, which
    /// asks for the chains of the VMA's neighbours alone and saves itself a lock.
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

    /// New bounds; the caller keeps tree and interval trees in step.
    pub(crate) fn set_range(&self, range: VmRange, pgoff: Pgoff) {
        // ORDERING: Relaxed; the writer holds the mm's lock, see `start`.
        self.start.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Relaxed);
        self.pgoff.store(pgoff.0, Ordering::Relaxed);
    }
}

impl<E: Environment> Space<E> {
    pub(crate) fn vma(&self, id: VmaId) -> &Vma<E> {
        self.vmas.get(id.0).expect("VMA in use")
    }

    /// The VMA as it is now.
    pub(crate) fn view(&self, id: VmaId, guard: &impl LockGuard) -> VmaView {
        let vma = self.vma(id);
        vma.view(id, vma.body.get(guard))
    }
}
