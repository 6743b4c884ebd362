//! Spin lock around its data.
//!
//! The lock's flag needs a byte, after which data that is aligned to words leaves seven unused.
//! [`HeldAndNumber`] keeps a number there, which is read without the lock.

use crate::primitive::{AtomicBool, AtomicU64, Ordering, spin_loop};
use core::cell::UnsafeCell;
use core::fmt::Debug;
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
pub struct SpinLock<T, F: SpinFlag = Held> {
    flag: F,
    value: UnsafeCell<T>,
}

/// The flag of a [`SpinLock`].
pub trait SpinFlag: Default + Debug + sealed::Sealed {
    /// Sets the flag and returns true if it was not set. May fail without a reason.
    fn take(&self) -> bool;
    /// Like [`take`](Self::take), but fails only if the flag is set.
    fn take_surely(&self) -> bool;
    /// True if the flag is set.
    fn is_taken(&self) -> bool;
    /// Clears the flag. Only the thread that has set it may do so.
    fn release(&self);
}

mod sealed {
    /// Only the flags of this module keep the promises of [`SpinFlag`](super::SpinFlag).
    pub trait Sealed {}
    impl Sealed for super::Held {}
    impl Sealed for super::HeldAndNumber {}
}

/// A flag alone.
#[derive(Debug)]
pub struct Held(AtomicBool);

/// A flag, and a number of 56 bits with a sign. Only the lock's holder changes either of them.
#[derive(Debug)]
pub struct HeldAndNumber(AtomicU64);

/// Number of low bits that the flag occupies in the word of [`HeldAndNumber`].
const FLAG_BITS: u32 = 8;

impl Default for Held {
    fn default() -> Self {
        Held(AtomicBool::new(false))
    }
}

impl Default for HeldAndNumber {
    fn default() -> Self {
        HeldAndNumber(AtomicU64::new(0))
    }
}

impl SpinFlag for Held {
    #[inline]
    fn take(&self) -> bool {
        // ORDERING: Acquire, pairs with the Release in `release`.
        self.0
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    fn take_surely(&self) -> bool {
        // ORDERING: Acquire, pairs with the Release in `release`.
        self.0
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    fn is_taken(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn release(&self) {
        // ORDERING: Release, pairs with the Acquire in `take`.
        self.0.store(false, Ordering::Release);
    }
}

impl SpinFlag for HeldAndNumber {
    #[inline]
    fn take(&self) -> bool {
        // ORDERING: Acquire, pairs with the Release in `release`.
        self.0.fetch_or(1, Ordering::Acquire) & 1 == 0
    }

    #[inline]
    fn take_surely(&self) -> bool {
        self.take()
    }

    #[inline]
    fn is_taken(&self) -> bool {
        self.0.load(Ordering::Relaxed) & 1 != 0
    }

    #[inline]
    fn release(&self) {
        // ORDERING: Release, pairs with the Acquire in `take`. A thread that waits sets the flag
        // again, so the word must not be stored as it was read.
        self.0.fetch_and(!1, Ordering::Release);
    }
}

// SAFETY: the value is accessible only through the guard, and only one guard exists at a time.
unsafe impl<T: Send, F: SpinFlag + Sync> Sync for SpinLock<T, F> {}

impl<T: Default, F: SpinFlag> Default for SpinLock<T, F> {
    fn default() -> Self {
        SpinLock {
            flag: F::default(),
            value: UnsafeCell::new(T::default()),
        }
    }
}

impl<T> SpinLock<T> {
    /// Creates an unlocked lock around `value`.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self {
            flag: Held(AtomicBool::new(false)),
            value: UnsafeCell::new(value),
        }
    }

    /// Creates an unlocked lock around `value`.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self {
            flag: Held(AtomicBool::new(false)),
            value: UnsafeCell::new(value),
        }
    }
}

impl<T, F: SpinFlag> SpinLock<T, F> {
    /// Takes the lock; spins while another thread holds it.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T, F> {
        while !self.flag.take() {
            while self.flag.is_taken() {
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
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T, F>> {
        self.flag.take_surely().then(|| SpinGuard { lock: self })
    }
}

impl<T> SpinLock<T, HeldAndNumber> {
    /// Returns the number, which another thread may be changing.
    ///
    /// ```
    /// use vmarea_sync::{HeldAndNumber, SpinLock};
    ///
    /// let lock = SpinLock::<u64, HeldAndNumber>::default();
    /// lock.set_number(-5);
    /// *lock.lock() = 7;
    /// assert_eq!((lock.number(), *lock.lock()), (-5, 7));
    /// ```
    #[inline]
    pub fn number(&self) -> i64 {
        // ORDERING: Relaxed; the number says nothing about the value.
        (self.flag.0.load(Ordering::Relaxed) as i64) >> FLAG_BITS
    }

    /// Sets the number, whose upper byte is lost. Takes the lock for that.
    pub fn set_number(&self, number: i64) {
        let held = self.lock();
        // ORDERING: Relaxed; the guard releases. Waiting threads can only set the flag again.
        self.flag
            .0
            .store((number << FLAG_BITS) as u64 | 1, Ordering::Relaxed);
        drop(held);
    }
}

/// Guard of a locked [`SpinLock`].
#[derive(Debug)]
pub struct SpinGuard<'a, T, F: SpinFlag = Held> {
    lock: &'a SpinLock<T, F>,
}

impl<T, F: SpinFlag> Deref for SpinGuard<'_, T, F> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while the guard lives, it is the only access to the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, F: SpinFlag> DerefMut for SpinGuard<'_, T, F> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, F: SpinFlag> Drop for SpinGuard<'_, T, F> {
    #[inline]
    fn drop(&mut self) {
        self.lock.flag.release();
    }
}
