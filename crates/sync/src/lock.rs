//! `mmap_lock`: a reader–writer lock without data, whose guards are proofs that cells ask for.
//!
//! Beside the lock itself it has a sequence number that is odd while a writer holds it and moves
//! when the writer lets go or becomes a reader. That one number unlocks every VMA that the writer
//! had locked ([`VmaCell`](crate::VmaCell)), and tells a reader without any lock whether something
//! may have changed ([`Lock::speculate`]).
//!
//! # Linux
//! `include/linux/mmap_lock.h`: `mmap_read_lock`, `mmap_write_lock`, `mmap_write_downgrade`,
//! `mm_lock_seq`, `mmap_lock_speculate_try_begin`. Differences: the number has 64 bits, and stops at
//! its last value instead of beginning again; from then on VMAs that a writer has locked stay
//! locked to readers of the VMA alone, who must take this lock. Sections of one nanosecond each get
//! there in 290 years.

use crate::primitive::{AtomicU64, Ordering, fence};
use crate::raw::RawLock;
use crate::{Rank, Spin, Wait, rank};
use core::marker::PhantomData;
use core::ops::Deref;

/// Names one lock among all of the program's; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockId(pub(crate) u64);

impl LockId {
    /// Bits of a lock's name.
    pub(crate) const BITS: u32 = 40;

    /// A name that nobody has.
    fn fresh() -> LockId {
        // Not one of the model's: it lives longer than a model.
        static NEXT: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(1);
        // ORDERING: Relaxed; only uniqueness matters.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(id < 1 << Self::BITS, "a trillion locks have been made");
        LockId(id)
    }
}

/// Where the sequence number stays. Odd. Small in tests.
pub(crate) const LAST: u64 = if cfg!(any(test, loom)) { 9 } else { u64::MAX };

/// Reader–writer lock. What it guards is in [`Guarded`](crate::Guarded) cells and
/// [`VmaCell`](crate::VmaCell)s that carry its id.
///
/// Not recursive: a thread that reads and asks again may wait for a writer who waits for it.
#[derive(Debug)]
#[doc(alias = "mmap_lock")]
pub struct Lock<W: Wait = Spin> {
    raw: RawLock,
    rank: Rank,
    /// Odd while held for writing.
    sequence: AtomicU64,
    id: LockId,
    wait: PhantomData<W>,
}

impl Lock {
    /// A free lock with an id of its own, whose threads wait by [`Spin`]ning.
    ///
    /// # Panics
    /// After 2⁴⁰ locks.
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
    /// A free lock with a place in the order of locks.
    ///
    /// # Panics
    /// After 2⁴⁰ locks.
    pub fn with_rank(rank: Rank) -> Self {
        let id = LockId::fresh();
        Lock {
            raw: RawLock::new(),
            rank,
            sequence: AtomicU64::new(2),
            id,
            wait: PhantomData,
        }
    }

    /// This lock's name.
    #[inline]
    pub fn id(&self) -> LockId {
        self.id
    }

    /// Waits until no writer holds it or waits for it.
    #[inline]
    #[doc(alias = "mmap_read_lock")]
    pub fn read(&self) -> ReadGuard<'_, W> {
        rank::acquire(self.rank);
        self.raw.read::<W>();
        ReadGuard { lock: self }
    }

    /// As [`read`](Self::read), by who holds others of its rank: the order among them is the caller's.
    #[inline]
    #[doc(alias = "mmap_read_lock_nested")]
    pub fn read_nested(&self) -> ReadGuard<'_, W> {
        rank::acquire_more(self.rank);
        self.raw.read::<W>();
        ReadGuard { lock: self }
    }

    /// Takes it for reading, if no writer holds it or waits for it and fewer than 2²⁹ read.
    #[inline]
    #[doc(alias = "mmap_read_trylock")]
    pub fn try_read(&self) -> Option<ReadGuard<'_, W>> {
        self.raw.try_read().then(|| {
            rank::acquired(self.rank);
            ReadGuard { lock: self }
        })
    }

    /// Waits until nobody holds it.
    #[inline]
    #[doc(alias = "mmap_write_lock")]
    pub fn write(&self) -> WriteGuard<'_, W> {
        rank::acquire(self.rank);
        self.raw.write::<W>();
        self.begin_section()
    }

    /// As [`write`](Self::write), by who holds others of its rank: the order among them is the caller's.
    #[inline]
    #[doc(alias = "mmap_write_lock_nested")]
    pub fn write_nested(&self) -> WriteGuard<'_, W> {
        rank::acquire_more(self.rank);
        self.raw.write::<W>();
        self.begin_section()
    }

    /// Takes it for writing, if nobody holds it.
    #[inline]
    #[doc(alias = "mmap_write_trylock")]
    pub fn try_write(&self) -> Option<WriteGuard<'_, W>> {
        self.raw.try_write().then(|| {
            rank::acquired(self.rank);
            self.begin_section()
        })
    }

    /// Begins to look without the lock. `None` while a writer holds it.
    #[doc(alias = "mmap_lock_speculate_try_begin")]
    pub fn speculate(&self) -> Option<Speculation> {
        // ORDERING: Acquire, pairs with the Release in `end_section`.
        let seen = self.sequence.load(Ordering::Acquire);
        (seen & 1 == 0).then_some(Speculation(seen))
    }

    /// True if no writer has held the lock since `speculate`, so that all that was read meanwhile,
    /// from atomics, belongs together.
    #[doc(alias = "mmap_lock_speculate_retry")]
    pub fn unchanged(&self, since: Speculation) -> bool {
        // ORDERING: Acquire fence, pairs with the Release fence in `begin_section`.
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == since.0
    }

    #[inline]
    fn begin_section(&self) -> WriteGuard<'_, W> {
        let before = self.sequence.load(Ordering::Relaxed);
        // ORDERING: Release, pairs with the Acquire of a VMA's reader: it may meet this number instead
        // of the one that ended the last section, and must see that section all the same.
        self.sequence.store(before | 1, Ordering::Release);
        // ORDERING: Release fence, pairs with the Acquire fence in `unchanged`.
        fence(Ordering::Release);
        WriteGuard { lock: self }
    }

    /// Unlocks every VMA that was locked in this section.
    #[inline]
    fn end_section(&self) {
        let now = self.sequence.load(Ordering::Relaxed);
        let then = if now == LAST { LAST } else { now + 1 };
        // ORDERING: Release, pairs with the Acquire of a VMA's reader and of `speculate`.
        self.sequence.store(then, Ordering::Release);
    }
}

/// When a look without the lock began; see [`Lock::speculate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Speculation(u64);

mod sealed {
    pub trait Sealed {}
}

/// A lock that cells belong to: who wants to read one without the lock needs its name and its number.
pub trait OwnerLock<W: Wait>: sealed::Sealed {
    /// Its name.
    fn id(&self) -> LockId;
    /// Its sequence number.
    fn number(&self) -> &AtomicU64;
}

impl<W: Wait> sealed::Sealed for Lock<W> {}
impl<W: Wait> OwnerLock<W> for Lock<W> {
    #[inline]
    fn id(&self) -> LockId {
        self.id
    }
    #[inline]
    fn number(&self) -> &AtomicU64 {
        &self.sequence
    }
}

/// A lock on cache lines of its own, with its name on another: whoever reads cells without the lock
/// does not meet those who take it.
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
    /// As [`Lock::with_rank`].
    ///
    /// # Panics
    /// After 2⁴⁰ locks.
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
    fn number(&self) -> &AtomicU64 {
        &self.lock.0.sequence
    }
}

/// Proof that a lock is held at least for reading.
pub trait LockGuard: sealed::Sealed {
    /// Which lock.
    fn lock_id(&self) -> LockId;
}

/// Proof that a lock is held for writing.
pub trait ExclusiveGuard: LockGuard {
    /// The section's number: odd, and another for each time that the lock is taken.
    fn sequence(&self) -> u64;
}

/// Held for reading while this lives.
#[derive(Debug)]
#[must_use = "the lock is let go when the guard is dropped"]
pub struct ReadGuard<'a, W: Wait = Spin> {
    lock: &'a Lock<W>,
}

/// Held for writing while this lives.
#[derive(Debug)]
#[must_use = "the lock is let go when the guard is dropped"]
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
        // ORDERING: Relaxed; it moves only when this guard goes.
        self.lock.sequence.load(Ordering::Relaxed)
    }
}

impl<W: Wait> ReadGuard<'_, W> {
    /// The lock's number; even, unless it has come to its end.
    pub(crate) fn number(&self) -> u64 {
        // ORDERING: Relaxed; it does not move while there are readers.
        self.lock.sequence.load(Ordering::Relaxed)
    }
}

impl<'a, W: Wait> WriteGuard<'a, W> {
    /// Lets readers in and keeps writers out. Unlocks the VMAs that were locked.
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
