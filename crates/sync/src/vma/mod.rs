//! The per-VMA lock and the cell that it guards.
//!
//! A fault wants one VMA and not the whole address space. It finds the VMA without a lock, takes the
//! VMA's own lock for reading with one atomic, and then knows that the VMA is in the address space
//! and stays as it is. A writer holds `mmap_lock`, marks each VMA that it is going to change with
//! the section's number, and lets go of all of them at once when that number moves on.
//!
//! Which VMA it is, is for the caller to check after the lock is had (range and generation, which
//! are atomics outside of the cell): a slot may have been used again meanwhile.
//!
//! # Picture
//! ```text
//!  released ──claim──▶ detached, write-locked ──attach──▶ attached ⇄ read by n
//!      ▲                   │        ▲                        │  ▲
//!      └──────release──────┘        └────────detach──────────┘  │ the section ends
//!                                             └── start_write ──┘
//! ```
//! All but reading needs `mmap_lock` for writing.
//!
//! | who holds | `&B` | `&mut B` |
//! |---|---|---|
//! | `VmaReadGuard` | yes | no |
//! | `ReadGuard` of the owner's lock | yes | no |
//! | `WriteGuard` of the owner's lock | yes | after `start_write` |
//!
//! # Misuse from safe code
//! - The guard of another lock, `get_mut` without `start_write`, `attach` of what is attached, and so
//!   on: panics, and nothing has changed.
//! - A reader that never leaves, while its VMA is to be changed: the writer waits for ever.
//! - A thread that reads a VMA and waits for `mmap_lock`, or calls `start_write`: may wait for
//!   itself. Debug builds with the feature `std` panic instead.
//! - [`core::mem::forget`] of a guard: the lock stays taken.
//! - Taking a VMA's lock for a check of range and generation, and not checking: the body is that of
//!   another VMA of the same address space.
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

/// Why a VMA could not be locked for reading; the caller falls back to `mmap_lock`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It is not in an address space now, or in another one: look it up again.
    Gone,
    /// A writer has locked it.
    WriteLocked,
    /// As many read it as can be counted.
    TooMany,
    /// This kind of lock has no readers.
    NoLock,
}

/// The state of one VMA's lock.
///
/// # Safety
/// Between a `try_read` or `read_locked` that succeeded and its `end_read`, the lock keeps its
/// owner and stays attached, and no call of `start_write` returns. Between `start_write` and the
/// moment when the owner's number moves on, `try_read` fails. `owner` is exact for whoever holds the
/// owner's lock. What was done before `end_read` happens before the return of `start_write`; what a
/// section did happens before the return of a later `try_read`.
pub unsafe trait VmaLockKind: fmt::Debug + Default + Send + Sync + 'static {
    /// As tables call it.
    const NAME: &'static str;
    /// False where `try_read` never succeeds, so that nobody need try.
    const HAS_READERS: bool = true;
    /// Bytes that each lock has outside of itself.
    const SIDE_BYTES: usize = 0;

    /// The lock's owner, if it has one.
    fn owner(&self) -> Option<LockId>;
    /// Detached → owned, detached and write-locked. False if it has an owner.
    fn claim(&self, owner: LockId, section: u64) -> bool;
    /// Owned and detached → without owner.
    fn release(&self);
    /// Lets readers in when the section ends.
    fn attach(&self);
    /// Keeps new readers out for good and waits for those that are inside. It is write-locked.
    fn detach<W: Wait>(&self);
    /// True while it is in an address space.
    fn is_attached(&self) -> bool;
    /// Takes it for reading without any other lock; `number` is the owner's.
    fn try_read<W: Wait>(&self, owner: LockId, number: &AtomicU64) -> Result<(), Refused>;
    /// Takes it for reading under the owner's lock.
    fn read_locked(&self) -> Result<(), Refused>;
    /// Ends either.
    fn end_read<W: Wait>(&self);
    /// Keeps readers out until the section ends, and waits for those that are inside.
    fn start_write<W: Wait>(&self, section: u64);
    /// True if `start_write` was called in this section.
    fn is_write_locked(&self, section: u64) -> bool;
}

/// No lock of its own: whoever wants the VMA takes `mmap_lock`.
#[derive(Debug, Default)]
pub struct MmapLockOnly {
    owner: AtomicU64,
    /// 1 while attached.
    attached: AtomicU64,
}

// SAFETY: nobody ever reads; the owner changes under its lock only.
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
    fn try_read<W: Wait>(&self, _owner: LockId, _number: &AtomicU64) -> Result<(), Refused> {
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
    // ORDERING: Relaxed; if it equals the id of a lock that we hold, the claim happened under that
    // lock, and so before us.
    match word.load(Ordering::Relaxed) {
        0 => None,
        id => Some(LockId(id)),
    }
}

/// A VMA's body and the lock that guards it, the lock first; see the module.
#[derive(Debug, Default)]
#[repr(C)]
pub struct VmaCell<B, K: VmaLockKind = VmaLock> {
    lock: K,
    body: UnsafeCell<B>,
}

// SAFETY: `&mut B` needs the owner's write guard, borrowed mutably, after `start_write`. Then no
// `VmaReadGuard` lives and none can come before that guard goes, and no `&B` of the owner's guards
// lives, since they borrow such a guard. The owner changes under the same conditions.
unsafe impl<B: Send + Sync, K: VmaLockKind> Sync for VmaCell<B, K> {}

impl<B, K: VmaLockKind> VmaCell<B, K> {
    /// Where in the cell its body lies; the lock is at its beginning.
    pub const BODY_OFFSET: usize = core::mem::offset_of!(Self, body);

    /// Gives a cell without owner to the lock of `guard`. It is detached, and write-locked until
    /// the guard goes.
    ///
    /// # Panics
    /// If it has an owner.
    pub fn claim<W: Wait>(&self, guard: &mut WriteGuard<'_, W>) {
        assert!(
            self.lock.claim(guard.lock_id(), guard.sequence()),
            "cell already belongs to a lock"
        );
    }

    /// Takes a detached cell from its owner.
    ///
    /// # Panics
    /// If it is attached or belongs to another lock.
    pub fn release<W: Wait>(&self, guard: &mut WriteGuard<'_, W>) {
        self.check(guard);
        assert!(!self.lock.is_attached(), "cell is attached");
        self.lock.release();
    }

    /// Lets readers find it when the guard goes.
    ///
    /// # Panics
    /// If it is attached, not write-locked, or belongs to another lock.
    #[doc(alias = "vma_mark_attached")]
    pub fn attach<W: Wait>(&self, guard: &mut WriteGuard<'_, W>) {
        self.check_write(guard);
        assert!(!self.lock.is_attached(), "cell is attached");
        self.lock.attach();
    }

    /// Ends its time in the address space. Waits for readers. It is write-locked until the guard
    /// goes.
    ///
    /// # Panics
    /// If it is not attached, or belongs to another lock.
    #[doc(alias = "vma_mark_detached")]
    pub fn detach<W: Wait>(&self, guard: &mut WriteGuard<'_, W>) {
        self.start_write(guard);
        assert!(self.lock.is_attached(), "cell is not attached");
        self.lock.detach::<W>();
    }

    /// Keeps readers of this VMA out until `guard` goes or becomes a reader's; waits for those that
    /// are inside. Called again, it does nothing.
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

    /// Takes the VMA for reading, without `mmap_lock` and without waiting. On success it belongs to
    /// `lock`'s address space and is attached; which VMA it is, the caller checks now.
    ///
    /// # Errors
    /// If it is locked, gone, or read by too many; then take `mmap_lock`.
    #[inline]
    #[doc(alias = "vma_start_read")]
    pub fn start_read<'a, W: Wait>(
        &'a self,
        lock: &impl OwnerLock<W>,
    ) -> Result<VmaReadGuard<'a, B, K, W>, Refused> {
        self.lock.try_read::<W>(lock.id(), lock.number())?;
        Ok(self.reading(Subclass::NORMAL))
    }

    /// Takes the VMA for reading under `mmap_lock`; what was got stays when that lock goes.
    ///
    /// # Errors
    /// If it is detached or read by too many.
    ///
    /// # Panics
    /// If it belongs to another lock.
    #[doc(alias = "vma_start_read_locked")]
    pub fn start_read_locked<'a, W: Wait>(
        &'a self,
        guard: &ReadGuard<'_, W>,
    ) -> Result<VmaReadGuard<'a, B, K, W>, Refused> {
        self.start_read_locked_nested(guard, Subclass::NORMAL)
    }

    /// As [`start_read_locked`](Self::start_read_locked), of a VMA while another is read: the
    /// subclass says which of them is to be had first, and debug builds check it.
    ///
    /// # Errors
    /// If it is detached or read by too many.
    ///
    /// # Panics
    /// If it belongs to another lock.
    #[doc(alias = "vma_start_read_locked_nested")]
    pub fn start_read_locked_nested<'a, W: Wait>(
        &'a self,
        guard: &ReadGuard<'_, W>,
        subclass: Subclass,
    ) -> Result<VmaReadGuard<'a, B, K, W>, Refused> {
        self.check(guard);
        // Only where the number has come to its end: then the lock of the last sections stays.
        if self.lock.is_write_locked(guard.number()) {
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

    /// Reads under the owner's lock.
    ///
    /// # Panics
    /// If the cell belongs to another lock.
    #[inline]
    pub fn get<'g, G: LockGuard>(&'g self, guard: &'g G) -> &'g B {
        self.check(guard);
        // SAFETY: the owner's lock is held, and a writer would need its guard borrowed mutably.
        unsafe { &*self.body.get() }
    }

    /// Writes under the owner's write lock, after [`start_write`](Self::start_write).
    ///
    /// # Panics
    /// If the cell is not write-locked in this section, or belongs to another lock.
    #[inline]
    pub fn get_mut<'g, W: Wait>(&'g self, guard: &'g mut WriteGuard<'_, W>) -> &'g mut B {
        self.check_write(guard);
        // SAFETY: see the impl of Sync: the guard is the only one and is borrowed mutably, and
        // readers of the VMA alone are out until it goes.
        unsafe { &mut *self.body.get() }
    }

    #[inline]
    fn check(&self, guard: &impl LockGuard) {
        assert!(
            self.lock.owner() == Some(guard.lock_id()),
            "guard of another lock"
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

/// A VMA is read while this lives: it stays in its address space and as it is.
#[derive(Debug)]
#[must_use = "the VMA is let go when the guard is dropped"]
pub struct VmaReadGuard<'a, B, K: VmaLockKind = VmaLock, W: Wait = Spin> {
    cell: &'a VmaCell<B, K>,
    wait: PhantomData<W>,
}

impl<B, K: VmaLockKind, W: Wait> Deref for VmaReadGuard<'_, B, K, W> {
    type Target = B;
    #[inline]
    fn deref(&self) -> &B {
        // SAFETY: no `start_write` returns before this guard goes, and `get_mut` needs one.
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
