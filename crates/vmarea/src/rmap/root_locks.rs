//! Locks of anon_vma roots, several of which one change may need.
//!
//! # Locking
//! A change that needs several names them all at once; they are taken in the order of their ids.

use crate::space::Space;
use crate::types::AnonVmaId;
use crate::types::platform::Environment;
use smallvec::SmallVec;
use vmarea_sync::WriteGuard;

/// Locks of anon_vma roots, held for writing until this is dropped.
#[derive(Debug)]
pub(crate) struct AnonVmaRootLocks<'s, E: Environment>(
    SmallVec<[(AnonVmaId, WriteGuard<'s, E::Wait>); 2]>,
);

impl<'s, E: Environment> AnonVmaRootLocks<'s, E> {
    /// None yet: what needs one takes it.
    pub(crate) fn none() -> Self {
        AnonVmaRootLocks(SmallVec::new())
    }

    /// True where none is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lock of the root of `anon_vma`, taken now if it is the first.
    pub(crate) fn of(
        &mut self,
        space: &'s Space<E>,
        anon_vma: AnonVmaId,
    ) -> &mut WriteGuard<'s, E::Wait> {
        let root = space.anon_vma_root(anon_vma);
        let held = self.0.iter().position(|(held, _)| *held == root);
        let at = held.unwrap_or_else(|| {
            debug_assert!(self.0.is_empty(), "roots are locked all at once");
            self.0.push((root, space.anon_vma(root).lock.write()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

impl<E: Environment> Space<E> {
    /// Locks the roots of these anon_vmas.
    pub(crate) fn lock_anon_vma_roots(
        &self,
        of: impl IntoIterator<Item = AnonVmaId>,
    ) -> AnonVmaRootLocks<'_, E> {
        // Mostly there is one.
        let mut roots: SmallVec<[AnonVmaId; 4]> = SmallVec::new();
        for id in of {
            let root = self.anon_vma_root(id);
            if let Err(at) = roots.binary_search(&root) {
                roots.insert(at, root);
            }
        }
        let mut root_locks = AnonVmaRootLocks::none();
        for root in roots {
            root_locks
                .0
                .push((root, self.anon_vma(root).lock.write_nested()));
        }
        root_locks
    }
}
