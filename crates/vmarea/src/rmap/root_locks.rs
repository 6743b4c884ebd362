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
pub(crate) struct AnonVmaRootLocks<'s, E: Environment> {
    held: SmallVec<[(AnonVmaId, WriteGuard<'s, E::Wait>); MOST]>,
    /// An anon_vma, and the position of its root in `held`: nearly always the next one to be asked
    /// for as well.
    last: Option<(AnonVmaId, usize)>,
}

impl<'s, E: Environment> AnonVmaRootLocks<'s, E> {
    /// Returns an empty set, to which [`of`](Self::of) can add one lock.
    pub(crate) fn none() -> Self {
        AnonVmaRootLocks {
            held: SmallVec::new(),
            last: None,
        }
    }

    /// True if no lock is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the lock of `anon_vma`'s root; if the set is empty, takes that lock first.
    #[inline]
    pub(crate) fn of(
        &mut self,
        space: &'s Space<E>,
        anon_vma: AnonVmaId,
    ) -> &mut WriteGuard<'s, E::Wait> {
        let at = match self.last {
            Some((last, at)) if last == anon_vma => at,
            _ => self.find(space, anon_vma),
        };
        &mut self.held[at].1
    }
}

impl<'s, E: Environment> AnonVmaRootLocks<'s, E> {
    /// Returns the position of the lock of `anon_vma`'s root; if the set is empty, takes the lock.
    #[inline(never)]
    fn find(&mut self, space: &'s Space<E>, anon_vma: AnonVmaId) -> usize {
        let root = space.anon_vma_root(anon_vma);
        let held = self.held.iter().position(|(held, _)| *held == root);
        let at = held.unwrap_or_else(|| {
            debug_assert!(self.held.is_empty(), "roots are locked all at once");
            self.held.push((root, space.anon_vma(root).lock.write()));
            self.held.len() - 1
        });
        self.last = Some((anon_vma, at));
        at
    }
}

impl<E: Environment> Space<E> {
    /// Locks the roots of these anon_vmas for writing.
    pub(crate) fn lock_anon_vma_roots(
        &self,
        of: impl IntoIterator<Item = AnonVmaId>,
    ) -> AnonVmaRootLocks<'_, E> {
        // Usually there is only one root, and often only one anon_vma.
        let mut roots: SmallVec<[AnonVmaId; MOST]> = SmallVec::new();
        let mut last = None;
        for id in of {
            if last.replace(id) == Some(id) {
                continue;
            }
            let root = self.anon_vma_root(id);
            if let Err(at) = roots.binary_search(&root) {
                roots.insert(at, root);
            }
        }
        debug_assert!(!roots.spilled(), "three VMAs have three roots");
        let mut root_locks = AnonVmaRootLocks::none();
        for root in roots {
            root_locks
                .held
                .push((root, self.anon_vma(root).lock.write_nested()));
        }
        root_locks
    }
}
