//! The guards of `mmap_lock`: what a thread may do with an address space while it holds the lock.
//!
//! Operations that both guards allow are methods of [`MmapGuard`]; operations that need the lock
//! for writing are methods of [`MmapWriteGuard`].

use super::{Mm, MmState};
use crate::Space;
use crate::page::{PageTable, PageTables};
use crate::types::platform::{Environment, Standard};
use crate::types::{AnonVmaId, MmId, VmRange, VmaId};
use crate::vma::merge::CallKind;
use crate::vma::{VmaBody, VmaView};
use alloc::vec::Vec;
use vmarea_sync::{CachePaddedLock, LockGuard, ReadGuard, WriteGuard};

/// `mmap_lock` of one mm, held for reading or for writing.
#[derive(Debug)]
pub struct MmapGuard<'s, E: Environment, T> {
    pub(crate) space: &'s Space<E>,
    pub(crate) mm: &'s Mm<E::Wait>,
    pub(crate) id: MmId,
    /// The kind of call to which merges are attributed in the statistics.
    pub(crate) call: CallKind,
    pub(crate) token: T,
}

/// `mmap_lock` of one mm, held for reading.
pub type MmapReadGuard<'s, E = Standard> =
    MmapGuard<'s, E, ReadGuard<'s, <E as Environment>::Wait>>;

/// `mmap_lock` of one mm, held for writing.
pub type MmapWriteGuard<'s, E = Standard> =
    MmapGuard<'s, E, WriteGuard<'s, <E as Environment>::Wait>>;

impl<E: Environment> Space<E> {
    /// Takes an address space's `mmap_lock` for writing; `None` if the mm no longer exists.
    pub fn mmap_write_lock(&self, id: MmId) -> Option<MmapWriteGuard<'_, E>> {
        self.lock_by(id, |lock| lock.write())
    }

    /// Takes `mmap_lock` of a fork's child for writing, while the parent's `mmap_lock` is held.
    pub(crate) fn mmap_write_lock_nested(&self, id: MmId) -> Option<MmapWriteGuard<'_, E>> {
        self.lock_by(id, |lock| lock.write_nested())
    }

    /// Takes an address space's `mmap_lock` for reading; `None` if the mm no longer exists.
    pub fn mmap_read_lock(&self, id: MmId) -> Option<MmapReadGuard<'_, E>> {
        self.lock_by(id, |lock| lock.read())
    }

    /// Takes a second `mmap_lock` for reading; the mm that is already locked must have a lower id.
    pub(crate) fn mmap_read_lock_nested(&self, id: MmId) -> Option<MmapReadGuard<'_, E>> {
        self.lock_by(id, |lock| lock.read_nested())
    }

    fn lock_by<'s, T>(
        &'s self,
        id: MmId,
        take: impl FnOnce(&'s CachePaddedLock<E::Wait>) -> T,
    ) -> Option<MmapGuard<'s, E, T>> {
        let mm = self.mms.get(id.0).filter(|_| id.0.is_valid())?;
        let guard = MmapGuard {
            space: self,
            mm,
            id,
            call: CallKind::Other,
            token: take(&mm.mmap_lock),
        };
        // The address space may have ended, and its slot been reused, during the wait.
        self.mms.get(id.0).is_some().then_some(guard)
    }
}

impl<'s, E: Environment, T: LockGuard> MmapGuard<'s, E, T> {
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
        self.vmas_in(VmRange::new(0, u64::MAX))
    }

    /// Returns the VMAs that overlap `range`, in address order.
    pub fn vmas_in(&self, range: VmRange) -> impl Iterator<Item = VmaView> + '_ {
        let mut at = range.start;
        core::iter::from_fn(move || {
            let vma = self.find(at).filter(|v| v.range.start < range.end)?;
            at = vma.range.end;
            Some(vma)
        })
    }

    /// Returns the anon_vmas of a VMA in this address space, oldest first, beginning with the root.
    ///
    /// The list is empty for a VMA in another address space and for a VMA that no longer exists.
    #[doc(alias = "anon_vma_chain")]
    pub fn chain(&self, vma: VmaId) -> Vec<AnonVmaId> {
        let ours = self.space.vmas.get(vma.0);
        let ours = ours.filter(|vma| vma.is_of(self.id));
        ours.map_or_else(Vec::new, |vma| {
            vma.chain.lock().iter().map(|link| link.anon_vma).collect()
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

impl<E: Environment> MmapWriteGuard<'_, E> {
    /// Returns the counters, layout and limits for modification.
    pub(crate) fn state_mut(&mut self) -> &mut MmState {
        self.mm.state.get_mut(&mut self.token)
    }

    /// Waits until no fault holds the VMA's lock, then write-locks the VMA until this guard is
    /// dropped.
    ///
    /// This method must be called before the VMA's range, body or pages change.
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
}
