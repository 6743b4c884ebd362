//! Reader–writer lock whose readers do not disturb each other, for a value that nearly all calls
//! read.
//!
//! Each reader takes the lock of its own lane, for example its processor's; a writer takes those of
//! all lanes. So a reader writes only to a cache line that is already its own, and a writer, who is
//! rare, pays for it.
//!
//! # Linux
//! `struct percpu_rw_semaphore`.

use crate::lock::{CachePaddedLock, ReadGuard, WriteGuard};
use crate::{Spin, Wait};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

/// Reader–writer lock with `N` lanes; see the module documentation.
///
/// Not recursive: a thread that holds the lock and takes it again can wait for itself.
///
/// ```
/// use vmarea_sync::{BigReadGuard, BigReaderLock, BigWriteGuard, Slots};
///
/// let slots = BigReaderLock::<_, 4>::new(Slots::<u64>::new());
/// let this_cpu = 3;
/// let inside: BigReadGuard<'_, _> = slots.read(this_cpu);
/// let key = inside.insert()?;
/// inside.remove(key);
/// drop(inside);
/// // A writer waits until no reader is inside.
/// let mut alone: BigWriteGuard<'_, _, 4> = slots.write();
/// alone.shrink(|_| ());
/// # Ok::<(), vmarea_sync::OutOfMemory>(())
/// ```
#[derive(Debug)]
#[doc(alias = "percpu_rw_semaphore")]
#[doc(alias = "brlock")]
pub struct BigReaderLock<T, const N: usize, W: Wait = Spin> {
    lanes: [CachePaddedLock<W>; N],
    value: UnsafeCell<T>,
}

// SAFETY: readers share the value as `&T`, and a writer, who may be any thread, is alone with it.
unsafe impl<T: Send + Sync, const N: usize, W: Wait> Sync for BigReaderLock<T, N, W> where
    CachePaddedLock<W>: Sync
{
}

impl<T, const N: usize, W: Wait> BigReaderLock<T, N, W> {
    /// Creates an unlocked lock around a value.
    pub fn new(value: T) -> Self {
        const { assert!(N > 0, "readers need a lane") };
        BigReaderLock {
            lanes: core::array::from_fn(|_| CachePaddedLock::default()),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock for reading; any lane number is valid. Waits while a writer holds the lock or
    /// is waiting.
    #[inline]
    pub fn read(&self, lane: usize) -> BigReadGuard<'_, T, W> {
        BigReadGuard {
            _lane: self.lanes[lane % N].read(),
            value: &self.value,
        }
    }

    /// Takes the lock for writing; waits until no other thread holds it.
    pub fn write(&self) -> BigWriteGuard<'_, T, N, W> {
        // All writers take the lanes in the same order, and a reader takes only one.
        BigWriteGuard {
            _lanes: core::array::from_fn(|lane| self.lanes[lane].write()),
            value: &self.value,
        }
    }
}

/// Guard of a [`BigReaderLock`] that is held for reading.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct BigReadGuard<'a, T, W: Wait = Spin> {
    _lane: ReadGuard<'a, W>,
    value: &'a UnsafeCell<T>,
}

/// Guard of a [`BigReaderLock`] that is held for writing.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct BigWriteGuard<'a, T, const N: usize, W: Wait = Spin> {
    _lanes: [WriteGuard<'a, W>; N],
    value: &'a UnsafeCell<T>,
}

// SAFETY: threads that share the guard share the value as `&T`.
unsafe impl<T: Sync, W: Wait> Sync for BigReadGuard<'_, T, W> where CachePaddedLock<W>: Sync {}
// SAFETY: threads that share the guard share the value as `&T`.
unsafe impl<T: Sync, const N: usize, W: Wait> Sync for BigWriteGuard<'_, T, N, W> where
    CachePaddedLock<W>: Sync
{
}

impl<T, W: Wait> Deref for BigReadGuard<'_, T, W> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a lane is held, so no writer is alone with the value.
        unsafe { &*self.value.get() }
    }
}

impl<T, const N: usize, W: Wait> Deref for BigWriteGuard<'_, T, N, W> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: all lanes are held, and `deref_mut` needs a mutable borrow of the guard.
        unsafe { &*self.value.get() }
    }
}

impl<T, const N: usize, W: Wait> DerefMut for BigWriteGuard<'_, T, N, W> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: all lanes are held, and the guard is borrowed mutably.
        unsafe { &mut *self.value.get() }
    }
}
