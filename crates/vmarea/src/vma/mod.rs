//! `Vma`: an address range with one set of attributes.
//!
//! # Picture
//! ```text
//!            ┌ range, page offsets, anon_vma  read without a lock (atomics)
//! Vma slot ──┤ body: flags, file, policy …    through a guard of `mmap_lock`
//!            └ chain: links to its anon_vmas  see `chain`
//! ```
//! Which VMAs merge is decided in [`merge`], from [`VmaView`]s. Nothing here changes the map of an
//! address space; [`mm`](crate::mm) does, with `mmap_lock` held.
//!
//! # Invariants
//! V1  `start < end`, and both are page aligned
//! V2  the tree holds exactly the VMAs of the mm, and they are disjoint
//! V3  an anonymous VMA without an anon_vma has no anonymous page
//! V4  a chain ends with the VMA's own anon_vma; without an anon_vma the chain is empty

pub mod chain;
pub mod layout;
pub mod lock;

use crate::Space;
use crate::rmap::span::RmapSpan;
use crate::types::platform::{Environment, Standard};
use crate::types::{AnonVmaId, MmId, PAGE_SHIFT, PageOffsets, VmRange, VmaId};
pub use vmarea_merge as merge;
pub use vmarea_merge::partial_view;
pub use vmarea_merge::view::{MappedFile, VmaBody, VmaView};

use chain::Chain;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vmarea_sync::{HeldAndNumber, SpinLock, VmaCell};

/// A slot that stores a VMA.
///
/// A `Vma` and the eight bytes of its slot header fill two cache lines. The first contains the lock
/// and the fields that are read without a lock; the second contains the body and the chain.
#[derive(Debug, Default)]
#[doc(alias = "vm_area_struct")]
#[repr(C)]
pub struct Vma<E: Environment = Standard> {
    start: AtomicU64,
    end: AtomicU64,
    /// The first number of [`PageOffsets::to_parts`].
    offsets: AtomicU64,
    pub(crate) anon_vma: AtomicU64,
    /// Slot index of the mm that contains the VMA, plus one.
    mm: AtomicU32,
    /// A [`RmapSpan`]: the length of the VMA's interval, which changes together with the chain.
    rmap_span: AtomicU32,
    pub(crate) body: VmaCell<VmaBody, E::VmaLock>,
    /// The number of the lock is the second one of [`PageOffsets::to_parts`].
    pub(crate) chain: SpinLock<Chain, HeldAndNumber>,
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

    /// Returns the page offsets of the VMA's pages.
    #[inline]
    pub fn offsets(&self) -> PageOffsets {
        // ORDERING: Relaxed; as for `start`.
        let anon = self.offsets.load(Ordering::Relaxed);
        PageOffsets::from_parts(anon, self.chain.number())
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

    /// Returns the length of the VMA's interval in the interval trees, in pages.
    pub(crate) fn rmap_span(&self) -> RmapSpan {
        // ORDERING: Relaxed; changed under the anon_vma root's lock, or with `mmap_lock` held for
        // writing.
        RmapSpan::from_bits(self.rmap_span.load(Ordering::Relaxed))
    }

    pub(crate) fn set_rmap_span(&self, rmap_span: RmapSpan) {
        // ORDERING: Relaxed; see `rmap_span`.
        self.rmap_span.store(rmap_span.to_bits(), Ordering::Relaxed);
    }

    /// Returns the address that corresponds to the end of the VMA's interval.
    pub(crate) fn rmap_limit(&self) -> u64 {
        self.start() + (self.rmap_span().pages() << PAGE_SHIFT)
    }

    /// Returns the VMA's interval in the interval trees: its first and its last page offset.
    pub(crate) fn interval(&self) -> (u64, u64) {
        let first = self.offsets().anon_pgoff_at(self.start()).0;
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

    /// Like [`view`](Self::view), but does not take the chain lock, and always reports the chain as
    /// not singular. Faults use this snapshot for their own VMA, because a fault needs the chain
    /// lengths only of the VMA's neighbours.
    #[inline]
    pub(crate) fn view_without_chain(&self, id: VmaId, body: &VmaBody) -> VmaView {
        VmaView {
            id,
            range: VmRange::new(self.start(), self.end()),
            offsets: self.offsets(),
            anon_vma: self.anon_vma(),
            chain_singular: false,
            body: *body,
        }
    }

    /// Sets the range and the page offsets. The caller must keep the VMA tree and the interval trees
    /// consistent.
    pub(crate) fn set_range(&self, range: VmRange, offsets: PageOffsets) {
        // ORDERING: Relaxed; the writer holds `mmap_lock`, see `start`.
        self.start.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Relaxed);
        let (anon, apart) = offsets.to_parts();
        self.offsets.store(anon, Ordering::Relaxed);
        // The number of most VMAs is and remains 0.
        if self.chain.number() != apart {
            self.chain.set_number(apart);
        }
    }
}

impl<E: Environment> Space<E> {
    pub(crate) fn vma(&self, id: VmaId) -> &Vma<E> {
        self.vmas.get(id.0).expect("VMA in use")
    }
}
