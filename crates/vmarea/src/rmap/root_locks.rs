//! Locks of anon_vma roots, for changes that may need to lock several roots.
//!
//! # Locking
//! A change that needs several roots locks them all in one call, in the order of their ids.

use crate::Space;
use crate::types::AnonVmaId;
use crate::types::platform::Environment;
use smallvec::SmallVec;
use vmarea_sync::WriteGuard;

/// Maximum number of roots that one change locks: those of three neighbouring VMAs. A list of up to
/// this many roots needs no heap allocation.
const MOST: usize = 3;

/// A set of anon_vma root locks, held for writing until the set is dropped.
#[derive(Debug)]
pub(crate) struct AnonVmaRootLocks<'s, E: Environment>(
    SmallVec<[(AnonVmaId, WriteGuard<'s, E::Wait>); MOST]>,
);

impl<'s, E: Environment> AnonVmaRootLocks<'s, E> {
    /// Returns an empty set, to which [`of`](Self::of) can add one lock.
    pub(crate) fn none() -> Self {
        AnonVmaRootLocks(SmallVec::new())
    }

    /// True if no lock is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the lock of `anon_vma`'s root; if the set is empty, takes that lock first.
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
    /// Locks the roots of these anon_vmas for writing.
    pub(crate) fn lock_anon_vma_roots(
        &self,
        of: impl IntoIterator<Item = AnonVmaId>,
    ) -> AnonVmaRootLocks<'_, E> {
        // Usually there is only one root.
        let mut roots: SmallVec<[AnonVmaId; MOST]> = SmallVec::new();
        for id in of {
            let root = self.anon_vma_root(id);
            if let Err(at) = roots.binary_search(&root) {
                roots.insert(at, root);
            }
        }
        debug_assert!(!roots.spilled(), "three VMAs have three roots");
        let mut root_locks = AnonVmaRootLocks::none();
        for root in roots {
            root_locks
                .0
                .push((root, self.anon_vma(root).lock.write_nested()));
        }
        root_locks
    }
}
