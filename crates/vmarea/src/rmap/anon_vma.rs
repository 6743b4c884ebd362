//! `AnonVma`: the object that owns anonymous pages.
//!
//! An anon_vma is allocated by the first fault that needs it. Neighbouring VMAs that might merge
//! later share one anon_vma. After a fork, the child's VMAs are linked to it as well. An anon_vma
//! exists as long as a VMA is linked to it. A root also exists as long as any other anon_vma in its
//! family exists, because the family uses the root's lock.
//!
//! # Invariants
//! A1  the tree contains exactly the VMAs with links to this anon_vma, with their page offsets
//! A2  `num_active_vmas` is the number of VMAs that have this anon_vma as their own
//! A3  `num_children` is the number of anon_vmas that have VMAs and whose parent is this one (a
//!     root counts itself)
//! A4  an anon_vma outlives the pages that it owns: before it is freed, they get another anon_vma
//!
//! # Linux
//! `mm/rmap.c`, `struct anon_vma`, 6.18: `num_children`, `num_active_vmas`, `root`, `parent`. The
//! chain entries (`anon_vma_chain`) are [`Link`](crate::vma::chain::Link)s inside the VMA.

use super::interval::IntervalTree;
use crate::Space;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, Errno};
use core::sync::atomic::{AtomicU32, Ordering};
use vmarea_sync::{Guarded, Lock, Rank, ReadGuard, Spin, Wait, WriteGuard};

/// Rank of the anon_vma root locks in the lock order: after `mmap_lock` and the VMA locks.
const FAMILY: Rank = Rank(96);

/// An anon_vma: its place in a family, and a tree of the VMAs that may map its pages.
#[derive(Debug)]
#[doc(alias = "anon_vma")]
pub struct AnonVma<W: Wait = Spin> {
    /// Slot index of the root; a root refers to itself. The root outlives the rest of its family.
    root: AtomicU32,
    /// Slot index of the parent; a root refers to itself.
    ///
    /// The parent exists, because every VMA that is linked to a child is also linked to the parent.
    parent: AtomicU32,
    /// The lock for the whole family, used only if this anon_vma is the root.
    pub(crate) lock: Lock<W>,
    /// The counts and the interval tree, protected by the root's lock.
    pub(crate) inner: Guarded<Inner>,
}

impl<W: Wait> Default for AnonVma<W> {
    fn default() -> Self {
        AnonVma {
            root: AtomicU32::default(),
            parent: AtomicU32::default(),
            lock: Lock::with_rank(FAMILY),
            inner: Guarded::default(),
        }
    }
}

/// The counts and the interval tree of an anon_vma, protected by the root's lock.
#[derive(Debug, Default)]
pub struct Inner {
    /// The VMAs that may map pages of this anon_vma.
    pub tree: IntervalTree,
    /// Number of child anon_vmas that have VMAs of their own; a root counts itself as a child.
    pub num_children: u32,
    /// Number of VMAs that have this anon_vma as their own.
    pub num_active_vmas: u32,
    /// Number of anon_vmas that exist in the family, including the root; used only in the root.
    family: u32,
}

/// A snapshot of an anon_vma, for merge decisions and sharing checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnonVmaView {
    /// The anon_vma.
    pub id: AnonVmaId,
    /// The root of the anon_vma's family.
    pub root: AnonVmaId,
    /// See [`Inner::num_children`].
    pub num_children: u32,
    /// See [`Inner::num_active_vmas`].
    pub num_active_vmas: u32,
}

impl<E: Environment> Space<E> {
    /// Returns the anon_vma `id`, to which a VMA or frame must refer.
    #[inline]
    pub(crate) fn anon_vma(&self, id: AnonVmaId) -> &AnonVma<E::Wait> {
        self.anon_vmas.get(id.0).expect("anon_vma in use")
    }

    /// Returns the root of an anon_vma. The documentation of [`rmap`](crate::rmap) has an example.
    ///
    /// # Panics
    /// If the anon_vma has been freed.
    #[inline]
    pub fn anon_vma_root(&self, id: AnonVmaId) -> AnonVmaId {
        self.anon_vma_root_of(id).expect("anon_vma in use")
    }

    /// Returns the root of an anon_vma, or `None` if the anon_vma has been freed.
    #[inline]
    pub(crate) fn anon_vma_root_of(&self, id: AnonVmaId) -> Option<AnonVmaId> {
        // ORDERING: Relaxed; set before the id is published, and unchanged until the anon_vma is
        // freed.
        let root = self.anon_vmas.get(id.0)?.root.load(Ordering::Relaxed);
        self.anon_vmas.key_at(root).map(AnonVmaId)
    }

    /// Returns the parent of an anon_vma; for a root, the root itself.
    pub(crate) fn anon_vma_parent_of(&self, id: AnonVmaId) -> AnonVmaId {
        // ORDERING: Relaxed; as for `anon_vma_root_of`.
        let parent = self.anon_vma(id).parent.load(Ordering::Relaxed);
        let key = self.anon_vmas.key_at(parent);
        key.map(AnonVmaId).expect("a parent outlives its children")
    }

    /// Locks the family of `id` for writing.
    #[doc(alias = "anon_vma_lock_write")]
    pub(crate) fn anon_vma_lock(&self, id: AnonVmaId) -> WriteGuard<'_, E::Wait> {
        self.anon_vma(self.anon_vma_root(id)).lock.write()
    }

    /// Locks the family of an anon_vma for reading; `None` if the anon_vma has been freed.
    pub(crate) fn anon_vma_read_lock(&self, id: AnonVmaId) -> Option<ReadGuard<'_, E::Wait>> {
        let root = self.anon_vma_root_of(id)?;
        let guard = self.anon_vmas.get(root.0)?.lock.read();
        // The anon_vma may have been freed, and its slot reused, during the wait for the lock.
        let same = self.anon_vma_root_of(id) == Some(root);
        same.then_some(guard)
    }

    /// Allocates a new root anon_vma.
    pub(crate) fn anon_vma_alloc_root(&self) -> Result<AnonVmaId, Errno> {
        let id = AnonVmaId(self.anon_vmas.insert()?);
        let av = self.anon_vma(id);
        av.root.store(id.0.index(), Ordering::Relaxed);
        av.parent.store(id.0.index(), Ordering::Relaxed);
        let mut guard = av.lock.write();
        av.inner.claim(&mut guard);
        *av.inner.get_mut(&mut guard) = Inner {
            num_children: 1,
            family: 1,
            ..Inner::default()
        };
        Ok(id)
    }

    /// Allocates a new anon_vma with the given parent, for the child of a fork.
    pub(crate) fn anon_vma_alloc_child(&self, parent: AnonVmaId) -> Result<AnonVmaId, Errno> {
        let id = AnonVmaId(self.anon_vmas.insert()?);
        let root = self.anon_vma_root(parent);
        let av = self.anon_vma(id);
        av.root.store(root.0.index(), Ordering::Relaxed);
        av.parent.store(parent.0.index(), Ordering::Relaxed);
        let mut guard = self.anon_vma(root).lock.write();
        av.inner.claim(&mut guard);
        *av.inner.get_mut(&mut guard) = Inner::default();
        self.anon_vma(root).inner.get_mut(&mut guard).family += 1;
        self.anon_vma(parent).inner.get_mut(&mut guard).num_children += 1;
        Ok(id)
    }

    /// Frees an anon_vma that has no VMAs; also frees the root if the family has no more members.
    pub(crate) fn anon_vma_put(&self, id: AnonVmaId, guard: &mut WriteGuard<'_, E::Wait>) {
        let root = self.anon_vma_root(id);
        if id != root {
            let av = self.anon_vma(id);
            debug_assert_eq!(av.inner.get(guard).num_active_vmas, 0);
            av.inner.release(guard);
            self.anon_vmas.remove(id.0);
        }
        let root_vma = self.anon_vma(root);
        let inner = root_vma.inner.get_mut(guard);
        inner.family -= 1;
        if inner.family == 0 {
            root_vma.inner.release(guard);
            self.anon_vmas.remove(root.0);
        }
    }

    /// Returns the parent of an anon_vma; `id` itself for a root; `None` if `id` has been freed.
    ///
    /// The documentation of [`rmap`](crate::rmap) has an example.
    pub fn anon_vma_parent(&self, id: AnonVmaId) -> Option<AnonVmaId> {
        let there = self.anon_vmas.get(id.0).is_some();
        there.then(|| self.anon_vma_parent_of(id))
    }

    /// Returns a snapshot of the counts that the merge decision uses.
    ///
    /// The documentation of [`rmap`](crate::rmap) has an example.
    pub fn anon_vma_view(&self, id: AnonVmaId) -> AnonVmaView {
        let root = self.anon_vma_root(id);
        let guard = self.anon_vma(root).lock.read();
        let inner = self.anon_vma(id).inner.get(&guard);
        AnonVmaView {
            id,
            root,
            num_children: inner.num_children,
            num_active_vmas: inner.num_active_vmas,
        }
    }

    /// True if a linked VMA has a different anon_vma as its own, as after a fork.
    pub(crate) fn anon_vma_has_other_owners(&self, id: AnonVmaId) -> bool {
        let guard = self.anon_vma(self.anon_vma_root(id)).lock.read();
        let mut other = false;
        self.anon_vma(id)
            .inner
            .get(&guard)
            .tree
            .for_each_overlapping(0, u64::MAX, |vma| {
                other |= self
                    .vmas
                    .get(vma.0)
                    .is_some_and(|v| v.anon_vma() != Some(id));
            });
        other
    }
}
