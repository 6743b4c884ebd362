//! Lock of an address space that is divided into parts, each with a lock of its own.
//!
//! A writer takes either one part, in which case writers of other parts run beside it, or all of
//! them. A part that has never been needed is *inactive*: nobody may take it, and those who take
//! all need not lock it. Only a holder of all can activate a part, so a program that uses few parts
//! takes few locks. Each part is a [`Lock`](crate::Lock) with an id and a sequence number of its own,
//! so the cells of one part ([`Guarded`](crate::Guarded), [`VmaCell`](crate::VmaCell)) are guarded
//! exactly as the cells of an undivided lock are; this module needs no `unsafe`.
//!
//! # Picture
//! ```text
//! whole ─ active: 0b0101
//!    ├── part 0   ◀── a writer of part 0
//!    ├── part 1       inactive
//!    ├── part 2   ◀── a writer of part 2, at the same time
//!    └── part 3       inactive
//!
//! all = whole, then every active part in ascending order
//! ```
//!
//! # Invariants
//! - P1  the set of active parts changes only while `whole` is held for writing; a part is
//!   activated or deactivated only while its own lock is held for writing, too
//! - P2  a thread that holds `whole` and has taken the active parts excludes every writer of a part
//!
//! # Locking
//! `whole` comes before every part, and the parts have ascending order, except that an inactive
//! part is locked last: a thread that holds an inactive part is about to find this out and to
//! release it, and waits for no lock until then. A writer of one part waits for no other lock of
//! this kind. Dropping a guard, by a panic as well, releases all its locks.

use crate::lock::{CachePaddedLock, ReadGuard, WriteGuard};
use crate::primitive::{AtomicU64, Ordering};
use crate::{Rank, Spin, Wait};

/// Lock of an address space that is divided into `N` parts, at most 64; see the module
/// documentation.
///
/// ```
/// use vmarea_sync::{AllGuard, AllReadGuard, LockGuard, Nesting, OwnerLock, PartedLock, Rank};
///
/// let lock = PartedLock::<4>::with_rank(Rank::NONE);
/// assert!(lock.write_part(2).is_none(), "no part is active yet");
/// let mut all: AllGuard<'_, 4> = lock.write_all(Nesting::First);
/// all.part_mut(2);
/// assert_eq!(all.part(2).lock_id(), lock.part(2).id());
/// let all: AllReadGuard<'_, 4> = all.downgrade();
/// assert!(all.part(2).lock_id() != all.whole().lock_id());
/// drop(all);
///
/// // Two writers of different parts could now run at once.
/// drop(lock.write_part(2).expect("active"));
/// assert!(lock.read_part(3).is_none());
/// let mut all = lock.write_all(Nesting::First);
/// all.deactivate();
/// drop(all);
/// assert!(lock.write_part(2).is_none());
/// ```
#[derive(Debug)]
pub struct PartedLock<const N: usize, W: Wait = Spin> {
    whole: CachePaddedLock<W>,
    active: Active,
    parts: [CachePaddedLock<W>; N],
}

/// Bitmap of the active parts, on a cache line that is written only when a part is activated.
#[derive(Debug)]
#[repr(align(64))]
struct Active(AtomicU64);

/// Whether a thread already holds locks of the same rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nesting {
    /// The thread holds no lock of this rank.
    First,
    /// The thread holds another lock of this rank, which comes earlier in the order.
    Nested,
}

impl<const N: usize, W: Wait> Default for PartedLock<N, W> {
    fn default() -> Self {
        Self::with_rank(Rank::NONE)
    }
}

impl<const N: usize, W: Wait> PartedLock<N, W> {
    /// Creates an unlocked lock whose parts are inactive.
    ///
    /// # Panics
    /// If there are more than 64 parts, or 2⁴⁰ locks have been created.
    pub fn with_rank(rank: Rank) -> Self {
        assert!(N <= 64, "more than 64 parts");
        PartedLock {
            whole: CachePaddedLock::with_rank(rank),
            active: Active(AtomicU64::new(0)),
            parts: core::array::from_fn(|_| CachePaddedLock::with_rank(rank)),
        }
    }

    /// Returns the lock that comes before those of the parts.
    pub fn whole(&self) -> &CachePaddedLock<W> {
        &self.whole
    }

    /// Returns the lock of a part.
    #[inline]
    pub fn part(&self, part: usize) -> &CachePaddedLock<W> {
        &self.parts[part]
    }

    /// Returns the bitmap of the active parts. It can change unless the caller holds a guard.
    #[inline]
    pub fn active(&self) -> u64 {
        // ORDERING: Relaxed; under the lock of a part, its bit does not change (P1), and an earlier
        // change happened under the same lock. Without it, the bitmap is a hint.
        self.active.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn is_active(&self, part: usize) -> bool {
        self.active() >> part & 1 == 1
    }

    /// Takes one part for writing; `None` if the part is inactive, for which its lock is taken
    /// briefly.
    #[inline]
    pub fn write_part(&self, part: usize) -> Option<WriteGuard<'_, W>> {
        let guard = self.parts[part].write();
        self.is_active(part).then_some(guard)
    }

    /// Takes one part for reading; `None` if the part is inactive, for which its lock is taken
    /// briefly.
    #[inline]
    pub fn read_part(&self, part: usize) -> Option<ReadGuard<'_, W>> {
        let guard = self.parts[part].read();
        self.is_active(part).then_some(guard)
    }

    /// Takes all parts for writing; waits for the writer or readers of each.
    pub fn write_all(&self, nesting: Nesting) -> AllGuard<'_, N, W> {
        let whole = match nesting {
            Nesting::First => self.whole.write(),
            Nesting::Nested => self.whole.write_nested(),
        };
        let active = self.active();
        AllGuard {
            parts: core::array::from_fn(|part| {
                (active >> part & 1 == 1).then(|| self.parts[part].write_nested())
            }),
            whole,
            lock: self,
        }
    }
}

/// Guard of all parts, held for writing.
#[derive(Debug)]
#[must_use = "the locks are released when the guard is dropped"]
pub struct AllGuard<'a, const N: usize, W: Wait = Spin> {
    parts: [Option<WriteGuard<'a, W>>; N],
    whole: WriteGuard<'a, W>,
    lock: &'a PartedLock<N, W>,
}

impl<'a, const N: usize, W: Wait> AllGuard<'a, N, W> {
    /// Returns the guard of the whole.
    pub fn whole(&self) -> &WriteGuard<'a, W> {
        &self.whole
    }

    /// Returns the guard of the whole for writing.
    pub fn whole_mut(&mut self) -> &mut WriteGuard<'a, W> {
        &mut self.whole
    }

    /// Returns the guard of an active part.
    ///
    /// # Panics
    /// If the part is inactive.
    #[inline]
    pub fn part(&self, part: usize) -> &WriteGuard<'a, W> {
        self.parts[part].as_ref().expect("an active part")
    }

    /// Returns the guard of a part for writing, and activates the part if it is inactive.
    #[inline]
    pub fn part_mut(&mut self, part: usize) -> &mut WriteGuard<'a, W> {
        let lock = self.lock;
        self.parts[part].get_or_insert_with(|| {
            // Waits at most for a thread that is about to find the part inactive.
            let guard = lock.parts[part].write_nested();
            lock.active
                .0
                .store(lock.active() | 1 << part, Ordering::Relaxed);
            guard
        })
    }

    /// Returns the guards of the whole and of each active part for writing.
    pub fn split_mut(&mut self) -> (&mut WriteGuard<'a, W>, &mut [Option<WriteGuard<'a, W>>]) {
        (&mut self.whole, &mut self.parts)
    }

    /// Makes all parts inactive, for the next user of the lock.
    pub fn deactivate(&mut self) {
        self.lock.active.0.store(0, Ordering::Relaxed);
        self.parts.iter_mut().for_each(|part| *part = None);
    }

    /// Turns the write lock into a read lock without letting in a writer.
    pub fn downgrade(self) -> AllReadGuard<'a, N, W> {
        AllReadGuard {
            parts: self.parts.map(|part| part.map(WriteGuard::downgrade)),
            whole: self.whole.downgrade(),
        }
    }
}

/// Guard of all parts, held for reading.
#[derive(Debug)]
#[must_use = "the locks are released when the guard is dropped"]
pub struct AllReadGuard<'a, const N: usize, W: Wait = Spin> {
    parts: [Option<ReadGuard<'a, W>>; N],
    whole: ReadGuard<'a, W>,
}

impl<'a, const N: usize, W: Wait> AllReadGuard<'a, N, W> {
    /// Returns the guard of the whole.
    pub fn whole(&self) -> &ReadGuard<'a, W> {
        &self.whole
    }

    /// Returns the guard of an active part.
    ///
    /// # Panics
    /// If the part is inactive.
    #[inline]
    pub fn part(&self, part: usize) -> &ReadGuard<'a, W> {
        self.parts[part].as_ref().expect("an active part")
    }
}
