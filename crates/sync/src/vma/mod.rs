//! Per-VMA lock, and the cell that it guards.
//!
//! A page fault needs one VMA, not the whole address space. It finds the VMA without a lock and
//! takes the VMA's own lock for reading with one atomic operation. Until the fault unlocks the VMA,
//! the VMA remains in the address space and does not change. A writer holds `mmap_lock` and stores
//! the sequence number of its write section in each VMA that it is going to change. Advancing the
//! lock's sequence number unlocks all these VMAs at once.
//!
//! Because the slot of a VMA may be reused, a reader that has taken the lock must check that the
//! VMA is still the one that it found. For this the reader checks the VMA's range and generation,
//! which are atomics outside of the cell.
//!
//! # Picture
//! ```text
//!  released ──claim──▶ detached, write-locked ──attach──▶ attached ⇄ read by n
//!      ▲                   │        ▲                        │  ▲
//!      └──────release──────┘        └────────detach──────────┘  │ the section ends
//!                                             └── start_write ──┘
//! ```
//! All transitions except reading need `mmap_lock` for writing.
//!
//! | guard | `&B` | `&mut B` |
//! |---|---|---|
//! | `VmaReadGuard` | yes | no |
//! | `ReadGuard` of the owner's lock | yes | no |
//! | `WriteGuard` of the owner's lock | yes | after `start_write` |
//!
//! # Misuse from safe code
//! - Errors such as a guard of another lock, `get_mut` without `start_write`, or `attach` of an
//!   attached VMA panic and change nothing.
//! - A writer waits forever for a reader that never unlocks the VMA to be changed.
//! - A thread that holds a VMA lock for reading and waits for `mmap_lock` or calls `start_write`
//!   can deadlock with itself. Debug builds with the feature `std` panic instead.
//! - A guard passed to [`core::mem::forget`] leaves its lock taken.
//! - A caller that does not check range and generation can read the body of another VMA in the same
//!   address space.
//!
//! # Linux
//! `include/linux/mmap_lock.h` 6.18: `vma_start_read`, `vma_start_read_locked(_nested)`,
//! `vma_start_write`, `vma_mark_attached`, `vma_mark_detached`; `mm/mmap_lock.c`.

mod counted;
mod flagged;

pub use counted::VmaLock;
pub use flagged::{AlignedRwLock, BoxedRwLock, FlaggedCount, FlaggedVmaLock, ReadWrite};

use crate::lock::{ExclusiveGuard, LockGuard, LockId, OwnerLock, ReadGuard, WriteGuard};
use crate::primitive::{AtomicU64, Ordering};
use crate::{Rank, Spin, Subclass, Wait, rank};
use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;

/// Reason why a VMA could not be locked for reading. Unless the VMA is gone, the caller then takes
/// `mmap_lock`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The VMA is detached or belongs to another address space: look it up again.
    Gone,
    /// A writer has locked the VMA.
    WriteLocked,
    /// The reader count has reached its maximum.
    TooMany,
    /// This kind of lock does not support readers.
    NoLock,
}

/// State of a per-VMA lock.
///
/// # Safety
/// Between a successful `try_read` or `read_locked` and its `end_read`, the lock keeps its owner
/// and remains attached, and no call of `start_write` returns. From `start_write` until the owner's
/// sequence number advances, `try_read` fails. `owner` is exact for a thread that holds the owner's
/// lock. What happens before `end_read` happens before `start_write` returns; what happens in a
/// write section happens before a later `try_read` returns.
pub unsafe trait VmaLockKind: fmt::Debug + Default + Send + Sync + 'static {
    /// Name of the lock kind in printed tables.
    const NAME: &'static str;
    /// False if `try_read` never succeeds, so that callers can omit the call.
    const HAS_READERS: bool = true;
    /// Number of bytes that each lock needs in separate allocations.
    const SIDE_BYTES: usize = 0;

    /// Returns the id of the lock that owns this VMA lock, if there is an owner.
    fn owner(&self) -> Option<LockId>;
    /// Sets the owner, or returns false if the lock has an owner. On success, the lock is detached
    /// and write-locked.
    fn claim(&self, owner: LockId, section: u64) -> bool;
    /// Clears the owner of a detached lock.
    fn release(&self);
    /// Attaches the VMA. Readers can lock it after the write section ends.
    fn attach(&self);
    /// Detaches a write-locked VMA: blocks new readers and waits for current readers.
    fn detach<W: Wait>(&self);
    /// Returns true if the VMA is in an address space.
    fn is_attached(&self) -> bool;
    /// Takes the lock for reading, without any other lock; `lock_sequence` is the owner's.
    fn try_read<W: Wait>(&self, owner: LockId, lock_sequence: &AtomicU64) -> Result<(), Refused>;
    /// Takes the lock for reading under the owner's lock.
    fn read_locked(&self) -> Result<(), Refused>;
    /// Releases the lock after `try_read` or `read_locked`.
    fn end_read<W: Wait>(&self);
    /// Blocks new readers until the write section ends, and waits for current readers.
    fn start_write<W: Wait>(&self, section: u64);
    /// Returns true if `start_write` was called in the current write section.
    fn is_write_locked(&self, section: u64) -> bool;
}

/// No per-VMA lock: every reader takes `mmap_lock`.
#[derive(Debug, Default)]
pub struct MmapLockOnly {
    owner: AtomicU64,
    /// 1 while the VMA is attached, otherwise 0.
    attached: AtomicU64,
}

// SAFETY: there are no readers; the owner changes only under its write lock.
unsafe impl VmaLockKind for MmapLockOnly {
    const NAME: &'static str = "mmap_lock only";
    const HAS_READERS: bool = false;

    #[inline]
    fn owner(&self) -> Option<LockId> {
        owner(&self.owner)
    }
    fn claim(&self, owner: LockId, _section: u64) -> bool {
        // ORDERING: Acquire, pairs with the Release in `release`.
        self.owner
            .compare_exchange(0, owner.0, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }
    fn release(&self) {
        // ORDERING: Release, pairs with the Acquire in `claim`.
        self.owner.store(0, Ordering::Release);
    }
    fn attach(&self) {
        self.attached.store(1, Ordering::Relaxed);
    }
    fn detach<W: Wait>(&self) {
        self.attached.store(0, Ordering::Relaxed);
    }
    fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Relaxed) == 1
    }
    #[inline]
    fn try_read<W: Wait>(&self, _owner: LockId, _lock_sequence: &AtomicU64) -> Result<(), Refused> {
        Err(Refused::NoLock)
    }
    fn read_locked(&self) -> Result<(), Refused> {
        Err(Refused::NoLock)
    }
    fn end_read<W: Wait>(&self) {}
    #[inline]
    fn start_write<W: Wait>(&self, _section: u64) {}
    #[inline]
    fn is_write_locked(&self, _section: u64) -> bool {
        true
    }
}

#[inline]
fn owner(word: &AtomicU64) -> Option<LockId> {
    // ORDERING: Relaxed; if this thread holds the lock with that id, the claim happened under the
    // same lock and therefore before this load.
    match word.load(Ordering::Relaxed) {
        0 => None,
        id => Some(LockId(id)),
    }
}

/// The body of a VMA and the lock that guards it; see the module documentation.
///
/// ```
/// use vmarea_sync::{Lock, Subclass, VmaCell};
///
/// let lock = Lock::new();
/// let vma = VmaCell::<u64>::default();
/// let mut guard = lock.write();
/// vma.claim(&mut guard);
/// *vma.get_mut(&mut guard) = 7;
/// vma.attach(&mut guard);
/// drop(guard);
///
/// // A page fault needs no other lock.
/// assert_eq!(*vma.start_read(&lock).expect("attached"), 7);
/// // Or it takes `mmap_lock` first.
/// assert_eq!(*vma.get(&lock.read()), 7);
/// let guard = lock.read();
/// assert_eq!(*vma.start_read_locked(&guard).expect("attached"), 7);
/// let nested = vma.start_read_locked_nested(&guard, Subclass::SINGLE_DEPTH);
/// assert_eq!(*nested.expect("attached"), 7);
/// drop(guard);
///
/// let mut guard = lock.write();
/// vma.start_write(&mut guard);
/// assert!(vma.start_read(&lock).is_err(), "a writer is going to change it");
/// *vma.get_mut(&mut guard) = 8;
/// vma.detach(&mut guard);
/// vma.release(&mut guard);
/// ```
#[derive(Debug, Default)]
#[repr(C)]
pub struct VmaCell<B, K: VmaLockKind = VmaLock> {
    lock: K,
    body: UnsafeCell<B>,
}

// SAFETY: `&mut B` needs the owner's write guard, borrowed mutably, after `start_write`. At that
// point there is no `VmaReadGuard`, and none can be taken before the write guard is dropped. There
// is no `&B` from the owner's guards either, since it would borrow one. The owner changes under the
// same conditions.
unsafe impl<B: Send + Sync, K: VmaLockKind> Sync for VmaCell<B, K> {}

impl<B, K: VmaLockKind> VmaCell<B, K> {
    /// Offset of the body in the cell; the lock is at offset 0.
    pub const BODY_OFFSET: usize = core::mem::offset_of!(Self, body);

    /// Makes the lock of `guard` the owner of a cell without an owner.
    ///
    /// The cell is then detached, and write-locked until the guard is dropped.
    ///
    /// # Panics
    /// If the cell has an owner.
    pub fn claim<W: Wait>(&self, guard: &mut WriteGuard<'_, W>) {
        assert!(
            self.lock.claim(guard.lock_id(), guard.sequence()),
            "cell already has an owner"
        );
    }

    /// Clears the owner of a detached cell.
    ///
    /// # Panics
    /// If the cell is attached or belongs to another lock.
    pub fn release<W: Wait>(&self, guard: &mut WriteGuard<'_, W>) {
        self.check(guard);
        assert!(!self.lock.is_attached(), "cell is attached");
        self.lock.release();
    }

    /// Makes the VMA available to readers when the guard is dropped.
    ///
    /// # Panics
    /// If the cell is attached, not write-locked, or belongs to another lock.
    #[doc(alias = "vma_mark_attached")]
    pub fn attach<W: Wait>(&self, guard: &mut WriteGuard<'_, W>) {
        self.check_write(guard);
        assert!(!self.lock.is_attached(), "cell is attached");
        self.lock.attach();
    }

    /// Removes the VMA from its address space; waits for readers.
    ///
    /// The cell remains write-locked until the guard is dropped.
    ///
    /// # Panics
    /// If the cell is not attached, or belongs to another lock.
    #[doc(alias = "vma_mark_detached")]
    #[inline]
    pub fn detach<W: Wait>(&self, guard: &mut WriteGuard<'_, W>) {
        self.start_write(guard);
        assert!(self.lock.is_attached(), "cell is not attached");
        self.lock.detach::<W>();
    }

    /// Locks the VMA for writing until `guard` is dropped or downgraded; waits for its readers.
    ///
    /// A second call in the same section has no effect.
    ///
    /// # Panics
    /// If the cell belongs to another lock.
    #[inline]
    #[doc(alias = "vma_start_write")]
    pub fn start_write<W: Wait>(&self, guard: &mut WriteGuard<'_, W>) {
        self.check(guard);
        let section = guard.sequence();
        if !self.lock.is_write_locked(section) {
            rank::acquire(Rank::VMA);
            self.lock.start_write::<W>(section);
            rank::release(Rank::VMA);
        }
    }

    /// Locks the VMA for reading, without `mmap_lock` and without waiting.
    ///
    /// On success the VMA is attached and belongs to `lock`'s address space. The caller must then
    /// check that this VMA is the one that it found.
    ///
    /// # Errors
    /// If the VMA is write-locked or gone, or has too many readers; the caller then searches again
    /// or takes `mmap_lock`.
    #[inline]
    #[doc(alias = "vma_start_read")]
    pub fn start_read<'a, W: Wait>(
        &'a self,
        lock: &impl OwnerLock<W>,
    ) -> Result<VmaReadGuard<'a, B, K, W>, Refused> {
        self.lock.try_read::<W>(lock.id(), lock.sequence())?;
        Ok(self.reading(Subclass::NORMAL))
    }

    /// Locks the VMA for reading under `mmap_lock`. The returned guard can outlive `guard`.
    ///
    /// # Errors
    /// If the VMA is detached or has too many readers.
    ///
    /// # Panics
    /// If the cell belongs to another lock.
    #[doc(alias = "vma_start_read_locked")]
    pub fn start_read_locked<'a, W: Wait>(
        &'a self,
        guard: &ReadGuard<'_, W>,
    ) -> Result<VmaReadGuard<'a, B, K, W>, Refused> {
        self.start_read_locked_nested(guard, Subclass::NORMAL)
    }

    /// Like [`start_read_locked`](Self::start_read_locked), for a further VMA.
    ///
    /// The thread already holds another VMA lock for reading. The subclass determines the order of
    /// these locks, which debug builds check.
    ///
    /// # Errors
    /// If the VMA is detached or has too many readers.
    ///
    /// # Panics
    /// If the cell belongs to another lock.
    #[doc(alias = "vma_start_read_locked_nested")]
    pub fn start_read_locked_nested<'a, W: Wait>(
        &'a self,
        guard: &ReadGuard<'_, W>,
        subclass: Subclass,
    ) -> Result<VmaReadGuard<'a, B, K, W>, Refused> {
        self.check(guard);
        // This is possible only at the last sequence number, at which VMAs remain locked.
        if self.lock.is_write_locked(guard.sequence()) {
            return Err(Refused::WriteLocked);
        }
        self.lock.read_locked()?;
        Ok(self.reading(subclass))
    }

    #[inline]
    fn reading<W: Wait>(&self, subclass: Subclass) -> VmaReadGuard<'_, B, K, W> {
        rank::nested(Rank::VMA, subclass);
        VmaReadGuard {
            cell: self,
            wait: PhantomData,
        }
    }

    /// Returns the body for reading, under the owner's lock.
    ///
    /// # Panics
    /// If the cell belongs to another lock.
    #[inline]
    pub fn get<'g, G: LockGuard>(&'g self, guard: &'g G) -> &'g B {
        self.check(guard);
        // SAFETY: the owner's lock is held, and `get_mut` needs a mutable borrow of the write
        // guard.
        unsafe { &*self.body.get() }
    }

    /// Returns the body for writing, after [`start_write`](Self::start_write).
    ///
    /// # Panics
    /// If the cell is not write-locked in this section, or belongs to another lock.
    #[inline]
    pub fn get_mut<'g, W: Wait>(&'g self, guard: &'g mut WriteGuard<'_, W>) -> &'g mut B {
        self.check_write(guard);
        // SAFETY: see the impl of Sync: the guard is the only one and is borrowed mutably, and
        // readers without `mmap_lock` are kept out until it is dropped.
        unsafe { &mut *self.body.get() }
    }

    #[inline]
    fn check(&self, guard: &impl LockGuard) {
        assert!(
            self.lock.owner() == Some(guard.lock_id()),
            "guard of a lock that does not own the cell"
        );
    }

    #[inline]
    fn check_write(&self, guard: &impl ExclusiveGuard) {
        self.check(guard);
        assert!(
            self.lock.is_write_locked(guard.sequence()),
            "start_write was not called"
        );
    }
}

/// Guard of a VMA that is locked for reading: the VMA remains attached and unchanged.
#[derive(Debug)]
#[must_use = "the VMA is unlocked when the guard is dropped"]
pub struct VmaReadGuard<'a, B, K: VmaLockKind = VmaLock, W: Wait = Spin> {
    cell: &'a VmaCell<B, K>,
    wait: PhantomData<W>,
}

impl<B, K: VmaLockKind, W: Wait> Deref for VmaReadGuard<'_, B, K, W> {
    type Target = B;
    #[inline]
    fn deref(&self) -> &B {
        // SAFETY: no `start_write` returns before this guard is dropped, and `get_mut` requires
        // `start_write`.
        unsafe { &*self.cell.body.get() }
    }
}

impl<B, K: VmaLockKind, W: Wait> Drop for VmaReadGuard<'_, B, K, W> {
    #[inline]
    #[doc(alias = "vma_end_read")]
    fn drop(&mut self) {
        self.cell.lock.end_read::<W>();
        rank::release(Rank::VMA);
    }
}
