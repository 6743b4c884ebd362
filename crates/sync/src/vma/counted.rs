//! Per-VMA lock as in Linux since 6.15: owner, writer bit and reader count in one word.
//!
//! A reader increments the count and then compares the VMA's sequence number with the owner's. A
//! writer sets WRITER, waits until the count is 1, stores its section's number in the VMA, and
//! clears WRITER. Therefore either the writer sees the reader's count, or the reader sees the
//! writer's sequence number.
//!
//! Each write section writes to the cache line of the owner's sequence number, so a reader should
//! avoid loading that number. The first reader that finds that the section that last locked the VMA
//! has ended stores OVER as the VMA's number. This reader is counted while it stores OVER, so no
//! writer can store a number at the same time. Later readers see OVER and do not touch the owner's
//! cache line.
//!
//! # Picture
//! ```text
//! word      owner : 40 │ WRITER : 1 │ count : 23    count: 0 detached, 1 attached, 1 + readers
//! sequence  section that last locked the VMA        locked ⇔ equal to the owner's sequence number
//!           OVER: that section is known to have ended
//! ```
//!
//! # Linux
//! `vm_refcnt` and `vm_lock_seq`. Difference: the word contains the owner, so the atomic operation
//! that takes the lock also detects a slot that now belongs to another address space.

use super::{Refused, VmaLockKind};
use crate::Wait;
use crate::lock::LockId;
use crate::primitive::{AtomicU64, Ordering};

const WRITER: u64 = 1 << 23;
const COUNT: u64 = WRITER - 1;
/// Maximum count: 1 for an attached VMA plus 2²³ − 2 readers. Tests use a small value.
const MAX_COUNT: u64 = if cfg!(any(test, loom)) { 3 } else { COUNT };
const OWNER: u32 = 64 - LockId::BITS;
/// Value that differs from the sequence number of every write section.
const OVER: u64 = 0;

/// The default lock of a VMA; see the module documentation.
#[derive(Debug, Default)]
pub struct VmaLock {
    word: AtomicU64,
    sequence: AtomicU64,
}

impl VmaLock {
    fn key(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Blocks new readers and waits for current ones. Returns the word with WRITER and the count
    /// cleared.
    fn drain<W: Wait>(&self) -> u64 {
        let mut word = self.word.load(Ordering::Relaxed);
        // ORDERING: Acquire, here and below, pairs with the Release in `end_read`.
        while let Err(other) = self.word.compare_exchange_weak(
            word,
            word | WRITER,
            Ordering::Acquire,
            Ordering::Relaxed,
        ) {
            word = other;
        }
        if word & COUNT > 1 {
            W::wait(self.key(), &mut || {
                self.word.load(Ordering::Acquire) & COUNT <= 1
            });
        }
        word & !(WRITER | COUNT)
    }

    /// Increments the reader count.
    #[inline]
    fn count_in(&self, owner: Option<LockId>) -> Result<(), Refused> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & COUNT == 0 || owner.is_some_and(|owner| word >> OWNER != owner.0) {
                return Err(Refused::Gone);
            }
            if word & WRITER != 0 {
                return Err(Refused::WriteLocked);
            }
            if word & COUNT >= MAX_COUNT {
                return Err(Refused::TooMany);
            }
            // ORDERING: Acquire, pairs with the Release in `start_write` and `attach`: a reader
            // that comes after a writer sees the sequence number of the writer's section.
            let counted = self.word.compare_exchange_weak(
                word,
                word + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match counted {
                Ok(_) => return Ok(()),
                Err(other) => word = other,
            }
        }
    }
}

// SAFETY: a reader is counted under the owner that its caller specified, and `drain` returns to
// `start_write` and `detach` only when there are no readers. A reader that comes after
// `start_write` finds the section's number equal to the owner's until the latter advances. It loads
// the latter with Acquire and therefore sees the writes of the section.
unsafe impl VmaLockKind for VmaLock {
    const NAME: &'static str = "atomic, embedded";

    #[inline]
    fn owner(&self) -> Option<LockId> {
        match self.word.load(Ordering::Relaxed) >> OWNER {
            0 => None,
            id => Some(LockId(id)),
        }
    }

    fn claim(&self, owner: LockId, section: u64) -> bool {
        // ORDERING: Acquire, pairs with the Release in `release`.
        let claimed = self
            .word
            .compare_exchange(0, owner.0 << OWNER, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if claimed {
            self.sequence.store(section, Ordering::Relaxed);
        }
        claimed
    }

    fn release(&self) {
        // ORDERING: Release, pairs with the Acquire in `claim`.
        self.word.store(0, Ordering::Release);
    }

    fn attach(&self) {
        let word = self.word.load(Ordering::Relaxed);
        // ORDERING: Release, pairs with the Acquire in `count_in`. No other thread changes the word
        // of a detached lock.
        self.word.store(word | 1, Ordering::Release);
    }

    fn detach<W: Wait>(&self) {
        let word = self.drain::<W>();
        // ORDERING: Relaxed; no reader increments a count of 0.
        self.word.store(word, Ordering::Relaxed);
    }

    fn is_attached(&self) -> bool {
        self.word.load(Ordering::Relaxed) & COUNT > 0
    }

    #[inline]
    fn try_read<W: Wait>(&self, owner: LockId, lock_sequence: &AtomicU64) -> Result<(), Refused> {
        // Early check. It may be wrong, in which case the caller takes `mmap_lock`.
        let section = self.sequence.load(Ordering::Relaxed);
        if section != OVER && section == lock_sequence.load(Ordering::Relaxed) {
            return Err(Refused::WriteLocked);
        }
        self.count_in(Some(owner))?;
        // ORDERING: Acquire, pairs with the Release below: the section's writes are visible.
        let section = self.sequence.load(Ordering::Acquire);
        if section == OVER {
            return Ok(());
        }
        // ORDERING: Acquire, pairs with the Release in `Lock::end_section`.
        if section == lock_sequence.load(Ordering::Acquire) {
            self.end_read::<W>();
            return Err(Refused::WriteLocked);
        }
        // ORDERING: Release, pairs with the Acquire above. No writer stores it while this reader is
        // counted.
        self.sequence.store(OVER, Ordering::Release);
        Ok(())
    }

    fn read_locked(&self) -> Result<(), Refused> {
        self.count_in(None)
    }

    #[inline]
    fn end_read<W: Wait>(&self) {
        // ORDERING: Release, pairs with the Acquire in `drain`.
        let before = self.word.fetch_sub(1, Ordering::Release);
        // The slot may already belong to another VMA; the wake-up is then spurious.
        if W::SLEEPS && before & WRITER != 0 && before & COUNT == 2 {
            W::wake(self.key());
        }
    }

    fn start_write<W: Wait>(&self, section: u64) {
        let count = self.word.load(Ordering::Relaxed) & COUNT;
        let word = self.drain::<W>();
        self.sequence.store(section, Ordering::Relaxed);
        // ORDERING: Release, pairs with the Acquire in `count_in`. No other thread changes the word
        // while WRITER is set and there are no readers.
        self.word.store(word | count.min(1), Ordering::Release);
    }

    #[inline]
    fn is_write_locked(&self, section: u64) -> bool {
        self.sequence.load(Ordering::Relaxed) == section
    }
}
