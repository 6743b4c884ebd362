//! Cell whose value is accessible only with a guard of the lock that owns it.

use crate::primitive::{AtomicU64, Ordering};
use crate::{ExclusiveGuard, LockGuard, LockId};
use core::cell::UnsafeCell;

/// Value that is accessible only with a guard of the lock that owns the cell.
///
/// A default cell has no owner, and its value is not accessible. [`claim`](Self::claim) sets the
/// owner and [`release`](Self::release) clears it. Both can be repeated, so a cell in a type-stable
/// slot can serve one address space after another.
///
/// # Misuse from safe code
/// Passing the guard of a lock that does not own the cell panics. Nothing else can go wrong.
///
/// ```
/// use vmarea_sync::{Guarded, Lock};
///
/// let (one, other) = (Lock::new(), Lock::new());
/// let cell = Guarded::new(one.id(), 7);
/// cell.release(&mut one.write());
/// let mut guard = other.write();
/// cell.claim(&mut guard);
/// *cell.get_mut(&mut guard) += 1;
/// assert_eq!(*cell.get(&guard), 8);
/// ```
#[derive(Debug)]
pub struct Guarded<T> {
    /// Id of the owning lock; 0 for none.
    owner: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: the cell hands out `&T` only for a guard of the owner, and `&mut T` only for the owner's
// write guard, borrowed mutably. The owner changes only from none, or under that write guard.
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
    /// Creates a cell that is owned by the lock `owner`.
    #[cfg(not(loom))]
    pub const fn new(owner: LockId, value: T) -> Self {
        Self {
            owner: AtomicU64::new(owner.0),
            value: UnsafeCell::new(value),
        }
    }

    /// Creates a cell that is owned by the lock `owner`.
    #[cfg(loom)]
    pub fn new(owner: LockId, value: T) -> Self {
        Self {
            owner: AtomicU64::new(owner.0),
            value: UnsafeCell::new(value),
        }
    }

    /// Makes the lock of `guard` the owner of the cell.
    ///
    /// # Panics
    /// If the cell has an owner.
    pub fn claim(&self, guard: &mut impl ExclusiveGuard) {
        // ORDERING: Acquire, pairs with the Release in `release`: the new owner sees what the
        // previous one wrote.
        let was =
            self.owner
                .compare_exchange(0, guard.lock_id().0, Ordering::Acquire, Ordering::Relaxed);
        assert!(was.is_ok(), "cell already has an owner");
    }

    /// Clears the owner. The value is not accessible until the cell is claimed again.
    ///
    /// # Panics
    /// If the lock of `guard` does not own the cell.
    pub fn release(&self, guard: &mut impl ExclusiveGuard) {
        self.check(guard);
        // ORDERING: Release, pairs with the Acquire in `claim`.
        self.owner.store(0, Ordering::Release);
    }

    /// Returns the value for reading.
    ///
    /// # Panics
    /// If the lock of `guard` does not own the cell.
    #[inline]
    pub fn get<'g, G: LockGuard>(&'g self, guard: &'g G) -> &'g T {
        self.check(guard);
        // SAFETY: the owner's lock is held, and `get_mut` needs a mutable borrow of the write
        // guard.
        unsafe { &*self.value.get() }
    }

    /// Returns the value for writing.
    ///
    /// # Panics
    /// If the lock of `guard` does not own the cell.
    #[inline]
    pub fn get_mut<'g, G: ExclusiveGuard>(&'g self, guard: &'g mut G) -> &'g mut T {
        self.check(guard);
        // SAFETY: the owner's lock is held for writing and its only guard is borrowed mutably, so
        // no other reference obtained with a guard of this lock is alive.
        unsafe { &mut *self.value.get() }
    }

    #[inline]
    fn check(&self, guard: &impl LockGuard) {
        // ORDERING: Relaxed; if this thread holds the lock with that id, the claim happened under
        // the same lock and therefore before this load.
        assert!(
            self.owner.load(Ordering::Relaxed) == guard.lock_id().0,
            "guard of a lock that does not own the cell"
        );
    }
}
