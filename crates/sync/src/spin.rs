//! Spin lock around its data.

use crate::primitive::{AtomicBool, Ordering, spin_loop};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

/// Mutual exclusion by spinning, for critical sections of a few instructions.
///
/// ```
/// use vmarea_sync::SpinLock;
///
/// static COUNT: SpinLock<u64> = SpinLock::new(0);
/// *COUNT.lock() += 1;
/// assert_eq!(*COUNT.lock(), 1);
/// ```
#[derive(Debug)]
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessible only through the guard, and only one guard exists at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T: Default> Default for SpinLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> SpinLock<T> {
    /// Creates an unlocked lock around `value`.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self {
            held: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Creates an unlocked lock around `value`.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self {
            held: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock; spins while another thread holds it.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        // ORDERING: Acquire, pairs with the Release in `SpinGuard::drop`.
        while self
            .held
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            while self.held.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
        SpinGuard { lock: self }
    }

    /// Takes the lock unless it is held.
    ///
    /// ```
    /// use vmarea_sync::SpinLock;
    ///
    /// let count = SpinLock::new(0);
    /// let held = count.lock();
    /// assert!(count.try_lock().is_none());
    /// drop(held);
    /// assert!(count.try_lock().is_some());
    /// ```
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        // ORDERING: Acquire, pairs with the Release in `SpinGuard::drop`.
        self.held
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| SpinGuard { lock: self })
    }
}

/// Guard of a locked [`SpinLock`].
#[derive(Debug)]
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while the guard lives, it is the only access to the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Release, pairs with the Acquire in `SpinLock::lock`.
        self.lock.held.store(false, Ordering::Release);
    }
}
