//! A cell that asks for the guard of one certain lock.

use crate::primitive::{AtomicU64, Ordering};
use crate::{ExclusiveGuard, LockGuard, LockId};
use core::cell::UnsafeCell;

/// A value that is reached only with a guard of the lock that owns the cell.
///
/// A cell begins without owner; then nobody can reach the value. [`claim`](Self::claim) gives it
/// one, [`release`](Self::release) takes it back. Both may be called again and again, so that a
/// cell in a type-stable slot can serve one address space after another.
///
/// # Misuse from safe code
/// Asking with the guard of another lock panics. Nothing else can go wrong.
#[derive(Debug)]
pub struct Guarded<T> {
    /// Id of the owning lock, 0 for none.
    owner: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: `&T` is handed out only under a guard of the owner, `&mut T` only under its write guard,
// borrowed mutably; the owner changes only from none, or under that write guard.
unsafe impl<T: Send + Sync> Sync for Guarded<T> {}

impl<T: Default> Default for Guarded<T> {
    fn default() -> Self {
        Self {
            owner: AtomicU64::new(0),
            value: UnsafeCell::new(T::default()),
        }
    }
}

impl<T> Guarded<T> {
    /// A cell that belongs to the lock `owner`.
    #[cfg(not(loom))]
    pub const fn new(owner: LockId, value: T) -> Self {
        Self {
            owner: AtomicU64::new(owner.0),
            value: UnsafeCell::new(value),
        }
    }

    /// A cell that belongs to the lock `owner`.
    #[cfg(loom)]
    pub fn new(owner: LockId, value: T) -> Self {
        Self {
            owner: AtomicU64::new(owner.0),
            value: UnsafeCell::new(value),
        }
    }

    /// Gives a cell without owner to the lock of `guard`.
    ///
    /// # Panics
    /// If it has an owner.
    pub fn claim(&self, guard: &mut impl ExclusiveGuard) {
        // ORDERING: Acquire, pairs with the Release in `release`: the new owner sees what the last left.
        let was =
            self.owner
                .compare_exchange(0, guard.lock_id().0, Ordering::Acquire, Ordering::Relaxed);
        assert!(was.is_ok(), "cell already belongs to a lock");
    }

    /// Takes the cell from its owner; until it is claimed again nobody reaches the value.
    pub fn release(&self, guard: &mut impl ExclusiveGuard) {
        self.check(guard);
        // ORDERING: Release, pairs with the Acquire in `claim`.
        self.owner.store(0, Ordering::Release);
    }

    /// Reads under the owner's lock.
    #[inline]
    pub fn get<'g, G: LockGuard>(&'g self, guard: &'g G) -> &'g T {
        self.check(guard);
        // SAFETY: the owner's lock is held, and a writer would need its guard borrowed mutably.
        unsafe { &*self.value.get() }
    }

    /// Writes under the owner's write lock.
    #[inline]
    pub fn get_mut<'g, G: ExclusiveGuard>(&'g self, guard: &'g mut G) -> &'g mut T {
        self.check(guard);
        // SAFETY: the owner's lock is held for writing and its only guard is borrowed mutably, so
        // no other reference from any cell of this lock is alive.
        unsafe { &mut *self.value.get() }
    }

    #[inline]
    fn check(&self, guard: &impl LockGuard) {
        // ORDERING: Relaxed; if it equals the id of a lock that we hold, the claim happened under
        // that lock, and so before us.
        assert!(
            self.owner.load(Ordering::Relaxed) == guard.lock_id().0,
            "guard of another lock"
        );
    }
}
