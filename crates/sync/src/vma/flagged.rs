//! Earlier forms of the per-VMA lock: a reader–writer lock with a separate `detached` flag.
//!
//! There are three forms. One is the atomic counter of Suren Baghdasaryan's series "move per-vma
//! lock into vm_area_struct" (v1, 2024). The other two are reader–writer locks with which that
//! series compares the counter: one in a separate allocation, the other in the VMA on a separate
//! cache line. A reader may take the lock of a detached or reused VMA, but then detects this and
//! unlocks.
//!
//! # Linux
//! 6.4 to 6.14: `vm_lock->lock` or `vm_lock.lock`, `vm_lock_seq`, `detached`.

use super::{Refused, VmaLockKind, owner};
use crate::Wait;
use crate::lock::LockId;
use crate::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::raw::RawRwLock;
use alloc::boxed::Box;
use core::fmt::Debug;

/// A lock that admits readers or one writer.
///
/// # Safety
/// The implementation must be a reader–writer lock: no reader holds it between `write` and
/// `end_write`, and operations under the lock happen before later operations under the lock, except
/// between readers.
pub unsafe trait ReadWrite: Debug + Default + Send + Sync + 'static {
    /// Name of the lock in printed tables.
    const NAME: &'static str;
    /// Number of bytes that each lock needs in separate allocations.
    const SIDE_BYTES: usize = 0;

    /// Takes the lock for reading, without waiting.
    fn try_read(&self) -> Result<(), Refused>;
    /// Unlocks after `try_read`.
    fn end_read<W: Wait>(&self);
    /// Takes the lock for writing; waits for readers.
    fn write<W: Wait>(&self);
    /// Unlocks after `write`.
    fn end_write<W: Wait>(&self);
}

/// One atomic: a reader count and a writer bit.
#[derive(Debug, Default)]
pub struct FlaggedCount(AtomicU32);

const WRITER: u32 = 1 << 31;
/// Maximum number of readers. Tests use a small value.
const MAX_READERS: u32 = if cfg!(any(test, loom)) { 2 } else { WRITER - 1 };

impl FlaggedCount {
    fn key(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}

// SAFETY: `write` sets the WRITER bit, which keeps new readers out, and waits until there are no
// readers; Acquire and Release as noted.
unsafe impl ReadWrite for FlaggedCount {
    const NAME: &'static str = "atomic and flag, embedded";

    #[inline]
    fn try_read(&self) -> Result<(), Refused> {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            if now & WRITER != 0 {
                return Err(Refused::WriteLocked);
            }
            if now >= MAX_READERS {
                return Err(Refused::TooMany);
            }
            // ORDERING: Acquire, pairs with the Release in `end_write`.
            match self
                .0
                .compare_exchange_weak(now, now + 1, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(other) => now = other,
            }
        }
    }

    #[inline]
    fn end_read<W: Wait>(&self) {
        // ORDERING: Release, pairs with the Acquire in `write`.
        let before = self.0.fetch_sub(1, Ordering::Release);
        if W::SLEEPS && before == WRITER + 1 {
            W::wake(self.key());
        }
    }

    fn write<W: Wait>(&self) {
        // ORDERING: Acquire, pairs with the Release in `end_read`.
        if self.0.fetch_or(WRITER, Ordering::Acquire) != 0 {
            W::wait(self.key(), &mut || self.0.load(Ordering::Acquire) == WRITER);
        }
    }

    fn end_write<W: Wait>(&self) {
        // ORDERING: Release, pairs with the Acquire in `try_read`. No other thread changes the word
        // at this point.
        self.0.store(0, Ordering::Release);
    }
}

/// A reader–writer lock in a separate allocation, as in Linux before the lock became part of the
/// VMA.
#[derive(Debug, Default)]
pub struct BoxedRwLock(Box<RawRwLock>);

/// A reader–writer lock in the VMA, on a separate cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct AlignedRwLock(RawRwLock);

macro_rules! read_write {
    ($lock:ty, $name:literal, $side:expr) => {
        // SAFETY: `RawRwLock` is a reader–writer lock.
        unsafe impl ReadWrite for $lock {
            const NAME: &'static str = $name;
            const SIDE_BYTES: usize = $side;

            #[inline]
            fn try_read(&self) -> Result<(), Refused> {
                if self.0.try_read() {
                    Ok(())
                } else {
                    Err(Refused::WriteLocked)
                }
            }
            #[inline]
            fn end_read<W: Wait>(&self) {
                self.0.end_read::<W>();
            }
            fn write<W: Wait>(&self) {
                self.0.write::<W>();
            }
            fn end_write<W: Wait>(&self) {
                self.0.end_write::<W>();
            }
        }
    };
}

read_write!(BoxedRwLock, "rwlock, allocated", size_of::<RawRwLock>());
read_write!(AlignedRwLock, "rwlock, embedded and aligned", 0);

/// Per-VMA lock with a separate flag; see the module documentation.
#[derive(Debug, Default)]
pub struct FlaggedVmaLock<R: ReadWrite = FlaggedCount> {
    lock: R,
    /// True if the VMA is attached. Changes only under the owner's write lock after `start_write`.
    attached: AtomicBool,
    sequence: AtomicU64,
    owner: AtomicU64,
}

// SAFETY: `start_write` waits for readers, and the flag and the owner change only after it. A
// reader that comes after it finds the section's number equal to the owner's. When the owner's
// number has advanced, the reader has loaded it with Acquire and sees the flag and the owner that
// the section stored.
unsafe impl<R: ReadWrite> VmaLockKind for FlaggedVmaLock<R> {
    const NAME: &'static str = R::NAME;
    const SIDE_BYTES: usize = R::SIDE_BYTES;

    #[inline]
    fn owner(&self) -> Option<LockId> {
        owner(&self.owner)
    }

    fn claim(&self, owner: LockId, section: u64) -> bool {
        // ORDERING: Acquire, pairs with the Release in `release`.
        let claimed = self
            .owner
            .compare_exchange(0, owner.0, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if claimed {
            // ORDERING: Release, pairs with the Acquire in `try_read`: a reader for the previous
            // owner that loads this number also sees that the owner has changed.
            self.sequence.store(section, Ordering::Release);
        }
        claimed
    }

    fn release(&self) {
        // ORDERING: Release, pairs with the Acquire in `claim`.
        self.owner.store(0, Ordering::Release);
    }

    fn attach(&self) {
        // ORDERING: Release, pairs with the Acquire in `try_read`: a reader that finds the VMA
        // attached sees the number of the section that attached it.
        self.attached.store(true, Ordering::Release);
    }

    fn detach<W: Wait>(&self) {
        self.attached.store(false, Ordering::Relaxed);
    }

    fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Relaxed)
    }

    #[inline]
    fn try_read<W: Wait>(&self, owner: LockId, lock_sequence: &AtomicU64) -> Result<(), Refused> {
        if self.sequence.load(Ordering::Relaxed) == lock_sequence.load(Ordering::Relaxed) {
            return Err(Refused::WriteLocked);
        }
        self.lock.try_read()?;
        // ORDERING: Acquire, pairs with the Release in `attach`; also orders the load of `sequence`
        // after this load.
        let attached = self.attached.load(Ordering::Acquire);
        // ORDERING: Acquire, pairs with the Release in `claim`; orders the load of the owner's
        // number.
        let sequence = self.sequence.load(Ordering::Acquire);
        // ORDERING: Acquire, pairs with the Release in `Lock::end_section`; orders flag and owner.
        let refused = if sequence == lock_sequence.load(Ordering::Acquire) {
            Refused::WriteLocked
        } else if !attached || !self.is_attached() || self.owner() != Some(owner) {
            Refused::Gone
        } else {
            return Ok(());
        };
        self.lock.end_read::<W>();
        Err(refused)
    }

    fn read_locked(&self) -> Result<(), Refused> {
        if !self.is_attached() {
            return Err(Refused::Gone);
        }
        self.lock.try_read()
    }

    #[inline]
    fn end_read<W: Wait>(&self) {
        self.lock.end_read::<W>();
    }

    fn start_write<W: Wait>(&self, section: u64) {
        self.lock.write::<W>();
        self.sequence.store(section, Ordering::Relaxed);
        self.lock.end_write::<W>();
    }

    #[inline]
    fn is_write_locked(&self, section: u64) -> bool {
        self.sequence.load(Ordering::Relaxed) == section
    }
}
