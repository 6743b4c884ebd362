//! Reader–writer lock (`mmap_lock`) that owns cells; its guards give access to them.
//!
//! The lock has a sequence number, which is odd while a writer holds the lock. When the writer
//! unlocks or downgrades, the number advances. Advancing the number unlocks every VMA that the
//! writer has locked ([`VmaCell`](crate::VmaCell)) at once. A lockless reader compares sequence
//! numbers to detect whether a writer could have made changes ([`Lock::speculate`]).
//!
//! # Linux
//! `include/linux/mmap_lock.h`: `mmap_read_lock`, `mmap_write_lock`, `mmap_write_downgrade`,
//! `mm_lock_seq`, `mmap_lock_speculate_try_begin`. Differences: the sequence number has 64 bits and
//! stops at its last value instead of wrapping around. From then on, a VMA that a writer locks
//! remains locked for readers without `mmap_lock`, so readers of this VMA must take `mmap_lock`. At
//! one write section per nanosecond this happens after 290 years.

use crate::primitive::{AtomicU64, Ordering, fence};
use crate::raw::RawRwLock;
use crate::{Rank, Spin, Wait, rank};
use core::marker::PhantomData;
use core::ops::Deref;

/// Identifies a lock among all locks of the program. Ids are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockId(pub(crate) u64);

impl LockId {
    /// Number of bits in an id.
    pub(crate) const BITS: u32 = 40;

    /// Returns an id that no other lock has.
    fn fresh() -> LockId {
        // This is an atomic of `core` even under loom, because the counter outlives a model.
        static NEXT: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(1);
        // ORDERING: Relaxed; only uniqueness matters.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(id < 1 << Self::BITS, "out of lock ids");
        LockId(id)
    }
}

/// Last sequence number, at which the counter stops. It is odd; tests use a small one.
pub(crate) const LAST_SEQUENCE: u64 = if cfg!(any(test, loom)) { 9 } else { u64::MAX };

/// Reader–writer lock.
///
/// The lock guards the [`Guarded`](crate::Guarded) cells and [`VmaCell`](crate::VmaCell)s that
/// carry its id.
///
/// Not recursive: a thread that takes the lock twice for reading can deadlock with a waiting
/// writer.
///
/// ```
/// use vmarea_sync::{Guarded, Lock, Rank, Spin};
///
/// let lock = Lock::<Spin>::with_rank(Rank(1));
/// let brk = Guarded::new(lock.id(), 0x1000);
/// *brk.get_mut(&mut lock.write()) += 0x1000;
/// assert_eq!(*brk.get(&lock.read()), 0x2000);
///
/// // A reader without the lock finds out whether a writer has been there.
/// let before = lock.speculate().expect("no writer");
/// assert!(lock.unchanged(before));
/// drop(lock.write());
/// assert!(!lock.unchanged(before));
/// # let _ = Lock::new();
/// ```
#[derive(Debug)]
#[doc(alias = "mmap_lock")]
pub struct Lock<W: Wait = Spin> {
    raw: RawRwLock,
    rank: Rank,
    /// Sequence number; odd while the lock is held for writing.
    sequence: AtomicU64,
    id: LockId,
    wait: PhantomData<W>,
}

impl Lock {
    /// Creates an unlocked lock whose threads wait by spinning ([`Spin`]).
    ///
    /// # Panics
    /// If 2⁴⁰ locks have been created.
    pub fn new() -> Self {
        Self::with_rank(Rank::NONE)
    }
}

impl<W: Wait> Default for Lock<W> {
    fn default() -> Self {
        Self::with_rank(Rank::NONE)
    }
}

impl<W: Wait> Lock<W> {
    /// Creates an unlocked lock with a rank in the lock order.
    ///
    /// # Panics
    /// If 2⁴⁰ locks have been created.
    pub fn with_rank(rank: Rank) -> Self {
        let id = LockId::fresh();
        Lock {
            raw: RawRwLock::new(),
            rank,
            sequence: AtomicU64::new(2),
            id,
            wait: PhantomData,
        }
    }

    /// Returns the id of this lock.
    #[inline]
    pub fn id(&self) -> LockId {
        self.id
    }

    /// Takes the lock for reading; waits while a writer holds it or is waiting.
    #[inline]
    #[doc(alias = "mmap_read_lock")]
    pub fn read(&self) -> ReadGuard<'_, W> {
        rank::acquire(self.rank);
        self.raw.read::<W>();
        ReadGuard { lock: self }
    }

    /// Like [`read`](Self::read), for a thread that holds other locks of the same rank.
    ///
    /// The caller must take the locks of one rank in a fixed order.
    ///
    /// [`write_nested`](Self::write_nested) has an example.
    #[inline]
    #[doc(alias = "mmap_read_lock_nested")]
    pub fn read_nested(&self) -> ReadGuard<'_, W> {
        rank::acquire_more(self.rank);
        self.raw.read::<W>();
        ReadGuard { lock: self }
    }

    /// Takes the lock for reading unless a writer holds it or waits, or 2²⁹ − 1 readers hold it.
    #[inline]
    #[doc(alias = "mmap_read_trylock")]
    pub fn try_read(&self) -> Option<ReadGuard<'_, W>> {
        self.raw.try_read().then(|| {
            rank::acquired(self.rank);
            ReadGuard { lock: self }
        })
    }

    /// Takes the lock for writing; waits while other threads hold it.
    #[inline]
    #[doc(alias = "mmap_write_lock")]
    pub fn write(&self) -> WriteGuard<'_, W> {
        rank::acquire(self.rank);
        self.raw.write::<W>();
        self.begin_section()
    }

    /// Like [`write`](Self::write), for a thread that holds other locks of the same rank.
    ///
    /// The caller must take the locks of one rank in a fixed order.
    ///
    /// ```
    /// use vmarea_sync::{Lock, Rank, Spin};
    ///
    /// let (parent, child) = (Lock::<Spin>::with_rank(Rank(1)), Lock::<Spin>::with_rank(Rank(1)));
    /// // `fork` takes the parent's lock, and then the child's.
    /// let held = parent.write();
    /// assert!(parent.try_read().is_none());
    /// drop((child.write_nested(), held));
    /// // To compare two address spaces, lock the one with the lower id first.
    /// let held = parent.read();
    /// drop((child.read_nested(), held));
    /// ```
    #[inline]
    #[doc(alias = "mmap_write_lock_nested")]
    pub fn write_nested(&self) -> WriteGuard<'_, W> {
        rank::acquire_more(self.rank);
        self.raw.write::<W>();
        self.begin_section()
    }

    /// Takes the lock for writing unless another thread holds it.
    #[inline]
    #[doc(alias = "mmap_write_trylock")]
    pub fn try_write(&self) -> Option<WriteGuard<'_, W>> {
        self.raw.try_write().then(|| {
            rank::acquired(self.rank);
            self.begin_section()
        })
    }

    /// Starts a lockless read section. Returns `None` while a writer holds the lock.
    #[doc(alias = "mmap_lock_speculate_try_begin")]
    pub fn speculate(&self) -> Option<Speculation> {
        // ORDERING: Acquire, pairs with the Release in `end_section`.
        let seen = self.sequence.load(Ordering::Acquire);
        (seen & 1 == 0).then_some(Speculation(seen))
    }

    /// Returns true if no writer has held the lock since the call to `speculate`.
    ///
    /// All values that the caller has read from atomics since that call are then consistent.
    #[doc(alias = "mmap_lock_speculate_retry")]
    pub fn unchanged(&self, since: Speculation) -> bool {
        // ORDERING: Acquire fence, pairs with the Release fence in `begin_section`.
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == since.0
    }

    #[inline]
    fn begin_section(&self) -> WriteGuard<'_, W> {
        let before = self.sequence.load(Ordering::Relaxed);
        // ORDERING: Release, pairs with the Acquire load in `VmaLockKind::try_read`: that load may
        // read this number instead of the one that ended the previous section, and must still see
        // the writes of the previous section.
        self.sequence.store(before | 1, Ordering::Release);
        // ORDERING: Release fence, pairs with the Acquire fence in `unchanged`.
        fence(Ordering::Release);
        WriteGuard { lock: self }
    }

    /// Unlocks every VMA that was write-locked in this write section.
    #[inline]
    fn end_section(&self) {
        let now = self.sequence.load(Ordering::Relaxed);
        let then = if now == LAST_SEQUENCE {
            LAST_SEQUENCE
        } else {
            now + 1
        };
        // ORDERING: Release, pairs with the Acquire in `VmaLockKind::try_read` and in `speculate`.
        self.sequence.store(then, Ordering::Release);
    }
}

/// Start of a lockless read section; see [`Lock::speculate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Speculation(u64);

mod sealed {
    pub trait Sealed {}
}

/// A lock that can own cells. Its id and sequence number permit reading cells without the lock.
pub trait OwnerLock<W: Wait>: sealed::Sealed {
    /// Returns the id of the lock.
    fn id(&self) -> LockId;
    /// Returns the sequence number of the lock.
    fn sequence(&self) -> &AtomicU64;
}

impl<W: Wait> sealed::Sealed for Lock<W> {}
impl<W: Wait> OwnerLock<W> for Lock<W> {
    #[inline]
    fn id(&self) -> LockId {
        self.id
    }
    #[inline]
    fn sequence(&self) -> &AtomicU64 {
        &self.sequence
    }
}

/// A [`Lock`] that shares no cache line with other data, with its id on a separate line.
///
/// Threads that read cells without the lock share no cache line with threads that take the lock.
///
/// ```
/// use vmarea_sync::{CachePaddedLock, Guarded, OwnerLock, Rank, Spin};
///
/// let lock = CachePaddedLock::<Spin>::with_rank(Rank::NONE);
/// let cell = Guarded::new(lock.id(), 7);
/// assert_eq!(*cell.get(&lock.read()), 7);
/// ```
#[derive(Debug)]
pub struct CachePaddedLock<W: Wait = Spin> {
    id: LockId,
    lock: CachePadded<Lock<W>>,
}

#[derive(Debug)]
#[repr(align(64))]
struct CachePadded<T>(T);

impl<W: Wait> Default for CachePaddedLock<W> {
    fn default() -> Self {
        Self::with_rank(Rank::NONE)
    }
}

impl<W: Wait> CachePaddedLock<W> {
    /// Creates an unlocked lock with a rank in the lock order, like [`Lock::with_rank`].
    ///
    /// # Panics
    /// If 2⁴⁰ locks have been created.
    pub fn with_rank(rank: Rank) -> Self {
        let lock = Lock::with_rank(rank);
        CachePaddedLock {
            id: lock.id,
            lock: CachePadded(lock),
        }
    }
}

impl<W: Wait> Deref for CachePaddedLock<W> {
    type Target = Lock<W>;
    #[inline]
    fn deref(&self) -> &Lock<W> {
        &self.lock.0
    }
}

impl<W: Wait> sealed::Sealed for CachePaddedLock<W> {}
impl<W: Wait> OwnerLock<W> for CachePaddedLock<W> {
    #[inline]
    fn id(&self) -> LockId {
        self.id
    }
    #[inline]
    fn sequence(&self) -> &AtomicU64 {
        &self.lock.0.sequence
    }
}

/// Proof that a lock is held for reading or writing.
pub trait LockGuard: sealed::Sealed {
    /// Returns the id of the held lock.
    fn lock_id(&self) -> LockId;
}

/// Proof that a lock is held for writing.
pub trait ExclusiveGuard: LockGuard {
    /// Returns the sequence number of this write section: odd, and different for each section.
    fn sequence(&self) -> u64;
}

/// Guard of a lock that is held for reading.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard<'a, W: Wait = Spin> {
    lock: &'a Lock<W>,
}

/// Guard of a lock that is held for writing.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard<'a, W: Wait = Spin> {
    lock: &'a Lock<W>,
}

impl<W: Wait> sealed::Sealed for ReadGuard<'_, W> {}
impl<W: Wait> sealed::Sealed for WriteGuard<'_, W> {}

impl<W: Wait> LockGuard for ReadGuard<'_, W> {
    #[inline]
    fn lock_id(&self) -> LockId {
        self.lock.id
    }
}

impl<W: Wait> LockGuard for WriteGuard<'_, W> {
    #[inline]
    fn lock_id(&self) -> LockId {
        self.lock.id
    }
}

impl<W: Wait> ExclusiveGuard for WriteGuard<'_, W> {
    #[inline]
    fn sequence(&self) -> u64 {
        // ORDERING: Relaxed; the number changes only when this guard is dropped or downgraded.
        self.lock.sequence.load(Ordering::Relaxed)
    }
}

impl<W: Wait> ReadGuard<'_, W> {
    /// Returns the sequence number of the lock: even, unless it has reached its last value.
    pub(crate) fn sequence(&self) -> u64 {
        // ORDERING: Relaxed; the number does not change while there are readers.
        self.lock.sequence.load(Ordering::Relaxed)
    }
}

impl<'a, W: Wait> WriteGuard<'a, W> {
    /// Turns the write lock into a read lock without letting in another writer.
    ///
    /// Unlocks all VMAs that are locked in this write section.
    ///
    /// ```
    /// use vmarea_sync::{Guarded, Lock};
    ///
    /// let lock = Lock::new();
    /// let count = Guarded::new(lock.id(), 0);
    /// let mut guard = lock.write();
    /// *count.get_mut(&mut guard) += 1;
    /// // The rest only reads, so other readers need not wait.
    /// let guard = guard.downgrade();
    /// assert_eq!(*count.get(&guard), 1);
    /// assert!(lock.try_read().is_some() && lock.try_write().is_none());
    /// ```
    #[doc(alias = "mmap_write_downgrade")]
    pub fn downgrade(self) -> ReadGuard<'a, W> {
        let lock = self.lock;
        core::mem::forget(self);
        lock.end_section();
        lock.raw.downgrade::<W>();
        ReadGuard { lock }
    }
}

impl<W: Wait> Drop for ReadGuard<'_, W> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.end_read::<W>();
        rank::release(self.lock.rank);
    }
}

impl<W: Wait> Drop for WriteGuard<'_, W> {
    #[inline]
    fn drop(&mut self) {
        self.lock.end_section();
        self.lock.raw.end_write::<W>();
        rank::release(self.lock.rank);
    }
}
