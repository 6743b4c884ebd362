//! `AnonVma`: the object that anonymous pages belong to.
//!
//! Made by the first fault that needs one, shared by neighbours that may merge, inherited and
//! extended by fork. It lives as long as a VMA hangs on it, a root also as long as any anon_vma of
//! its family does, because the family's lock is the root's.
//!
//! # Invariants
//! A1  the tree holds exactly the VMAs whose chains link here, with their page offsets
//! A2  `num_active_vmas` VMAs have it as their own
//! A3  `num_children` anon_vmas that still have VMAs name it as parent (a root counts itself)
//! A4  it outlives the pages that belong to it: who ends it has given them another before
//!
//! # Linux
//! `mm/rmap.c`, `struct anon_vma`, 6.18: `num_children`, `num_active_vmas`, `root`, `parent`. The
//! chain entries (`anon_vma_chain`) are [`Link`](super::Link)s inside the VMA.

use super::interval::IntervalTree;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, Errno};
use core::sync::atomic::{AtomicU32, Ordering};
use vmarea_sync::{Guarded, Lock, Rank, Spin, Wait, WriteGuard};

/// After `mmap_lock` and the VMAs' locks.
const FAMILY: Rank = Rank(96);

/// A slot for an anonymous object.
#[derive(Debug)]
#[doc(alias = "anon_vma")]
pub struct AnonVma<W: Wait = Spin> {
    /// Index of the root's slot, its own for a root. Roots outlive their families.
    root: AtomicU32,
    /// Index of the slot that it was forked from, its own for a root. Whatever hangs on a child hangs on
    /// its parent as well, so the parent is there.
    parent: AtomicU32,
    /// The family's lock, where this is the root.
    pub(crate) lock: Lock<W>,
    /// Guarded by the root's lock.
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

/// What the root's lock guards.
#[derive(Debug, Default)]
pub struct Inner {
    /// The VMAs that may map pages of this object.
    pub tree: IntervalTree,
    /// anon_vmas with VMAs whose parent this is; a root counts itself once.
    pub num_children: u32,
    /// VMAs whose own anon_vma this is.
    pub num_active_vmas: u32,
    /// For a root: anon_vmas of the family that exist, itself included.
    family: u32,
}

/// What the merge decision and the share checks see of an anon_vma.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnonVmaView {
    /// Which.
    pub id: AnonVmaId,
    /// Its root.
    pub root: AnonVmaId,
    /// See [`Inner::num_children`].
    pub num_children: u32,
    /// See [`Inner::num_active_vmas`].
    pub num_active_vmas: u32,
}

impl<E: Environment> Space<E> {
    /// The anon_vma of an id that a VMA or frame holds.
    #[inline]
    pub(crate) fn anon_vma(&self, id: AnonVmaId) -> &AnonVma<E::Wait> {
        self.anon_vmas.get(id.0).expect("anon_vma in use")
    }

    /// The root of an anon_vma that is in use.
    #[inline]
    pub fn anon_vma_root(&self, id: AnonVmaId) -> AnonVmaId {
        self.anon_vma_root_of(id).expect("anon_vma in use")
    }

    /// The root of an anon_vma that may have ended.
    #[inline]
    pub(crate) fn anon_vma_root_of(&self, id: AnonVmaId) -> Option<AnonVmaId> {
        // ORDERING: Relaxed; set before the id is published and never changed in one life.
        let root = self.anon_vmas.get(id.0)?.root.load(Ordering::Relaxed);
        self.anon_vmas.key_at(root).map(AnonVmaId)
    }

    /// The anon_vma that one in use was forked from; itself for a root.
    pub(crate) fn anon_vma_parent_of(&self, id: AnonVmaId) -> AnonVmaId {
        // ORDERING: Relaxed; as for `anon_vma_root_of`.
        let parent = self.anon_vma(id).parent.load(Ordering::Relaxed);
        let key = self.anon_vmas.key_at(parent);
        key.map(AnonVmaId).expect("a parent outlives its children")
    }

    /// Locks the family that `id` belongs to.
    #[doc(alias = "anon_vma_lock_write")]
    pub(crate) fn anon_vma_lock(&self, id: AnonVmaId) -> WriteGuard<'_, E::Wait> {
        self.anon_vma(self.anon_vma_root(id)).lock.write()
    }

    /// A new root.
    pub(crate) fn anon_vma_alloc_root(&self) -> Result<AnonVmaId, Errno> {
        crate::mutant::allocate()?;
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

    /// A new anon_vma for a fork's child, below `parent`.
    pub(crate) fn anon_vma_alloc_child(&self, parent: AnonVmaId) -> Result<AnonVmaId, Errno> {
        crate::mutant::allocate()?;
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

    /// The last VMA has left `id`: ends it, and its root if it was the last of the family.
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

    /// The numbers that merging looks at.
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

    /// A VMA hangs on it that has another anon_vma of its own: a child of a fork (child check).
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
