//! The lock in its earlier forms: something that counts readers, and a flag `detached` beside it.
//!
//! As the text has it (an atomic in the VMA), and the two forms that it compares itself with: a
//! reader–writer lock that is allocated by itself, and one in the VMA on a cache line of its own.
//! Readers may count themselves in at a detached or reused lock; they see it afterwards and leave.
//!
//! # Linux
//! 6.4 to 6.14: `vm_lock->lock` or `vm_lock.lock`, `vm_lock_seq`, `detached`.

use super::{Refused, VmaLockKind, owner};
use crate::Wait;
use crate::lock::LockId;
use crate::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::raw::RawLock;
use alloc::boxed::Box;
use core::fmt::Debug;

/// What lets in readers or one writer.
///
/// # Safety
/// As a reader–writer lock: no reader between `write` and `end_write`, and what was done under the
/// lock happens before what is done under it later, except between readers.
pub unsafe trait ReadWrite: Debug + Default + Send + Sync + 'static {
    /// As tables call it.
    const NAME: &'static str;
    /// Bytes outside of the lock itself.
    const SIDE_BYTES: usize = 0;

    /// Takes it for reading, if that is possible at once.
    fn try_read(&self) -> Result<(), Refused>;
    /// Ends it.
    fn end_read<W: Wait>(&self);
    /// Waits until it can be had for writing.
    fn write<W: Wait>(&self);
    /// Ends it.
    fn end_write<W: Wait>(&self);
}

/// One atomic: readers, or a bit for a writer.
#[derive(Debug, Default)]
pub struct FlaggedCount(AtomicU32);

const WRITER: u32 = 1 << 31;
/// Readers at one time. Small in tests.
const LIMIT: u32 = if cfg!(any(test, loom)) { 2 } else { WRITER - 1 };

impl FlaggedCount {
    fn key(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}

// SAFETY: `write` sets the bit, at which no reader comes in, and waits until none is inside; Acquire
// and Release as noted.
unsafe impl ReadWrite for FlaggedCount {
    const NAME: &'static str = "atomic and flag, embedded";

    #[inline]
    fn try_read(&self) -> Result<(), Refused> {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            if now & WRITER != 0 {
                return Err(Refused::WriteLocked);
            }
            if now >= LIMIT {
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
        // ORDERING: Release, pairs with the Acquire in `try_read`. Nobody else changes it now.
        self.0.store(0, Ordering::Release);
    }
}

/// A reader–writer lock in an allocation of its own, as before the text.
#[derive(Debug, Default)]
pub struct BoxedRwLock(Box<RawLock>);

/// A reader–writer lock in the VMA, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct AlignedRwLock(RawLock);

macro_rules! read_write {
    ($lock:ty, $name:literal, $side:expr) => {
        // SAFETY: it is a reader–writer lock.
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

read_write!(BoxedRwLock, "rwlock, allocated", size_of::<RawLock>());
read_write!(AlignedRwLock, "rwlock, embedded and aligned", 0);

/// A VMA's lock with a separate flag; see the module.
#[derive(Debug, Default)]
pub struct FlaggedVmaLock<R: ReadWrite = FlaggedCount> {
    lock: R,
    /// Changed under the lock's owner only, after `start_write`.
    attached: AtomicBool,
    sequence: AtomicU64,
    owner: AtomicU64,
}

// SAFETY: a reader inside keeps `start_write` waiting, and only after `start_write` the flag and the
// owner change. One that comes after it finds the section's number equal to the owner's. When that
// has moved on, the reader has it by Acquire and so sees flag and owner as the section left them.
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
            // ORDERING: Release, pairs with the Acquire in `try_read`: a reader of the last owner's
            // who meets this number also sees that the lock has changed hands.
            self.sequence.store(section, Ordering::Release);
        }
        claimed
    }

    fn release(&self) {
        // ORDERING: Release, pairs with the Acquire in `claim`.
        self.owner.store(0, Ordering::Release);
    }

    fn attach(&self) {
        // ORDERING: Release, pairs with the Acquire in `try_read`: whoever finds it attached sees
        // the number of the section that did it.
        self.attached.store(true, Ordering::Release);
    }

    fn detach<W: Wait>(&self) {
        self.attached.store(false, Ordering::Relaxed);
    }

    fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Relaxed)
    }

    #[inline]
    fn try_read<W: Wait>(&self, owner: LockId, number: &AtomicU64) -> Result<(), Refused> {
        if self.sequence.load(Ordering::Relaxed) == number.load(Ordering::Relaxed) {
            return Err(Refused::WriteLocked);
        }
        self.lock.try_read()?;
        // ORDERING: Acquire, pairs with the Release in `attach`; the number is read after it.
        let attached = self.attached.load(Ordering::Acquire);
        // ORDERING: Acquire, pairs with the Release in `claim`; the owner's number is read after it.
        let sequence = self.sequence.load(Ordering::Acquire);
        // ORDERING: Acquire, pairs with the Release of `Lock::end_section`; flag and owner after it.
        let refused = if sequence == number.load(Ordering::Acquire) {
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
