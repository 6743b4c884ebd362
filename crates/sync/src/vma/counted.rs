//! The lock as Linux has it since 6.15, in one word: owner, a bit that keeps readers out, a count.
//!
//! # Picture
//! ```text
//! word      owner : 40 │ WRITER : 1 │ count : 23      count: 0 detached, 1 attached, 1 + readers
//! sequence  the section that has locked it            locked ⇔ equal to the owner's number now
//!           OVER: that section is known to have ended
//! ```
//! A reader counts itself in and then looks at the two numbers. A writer sets WRITER, waits until
//! the count is 1, writes its section's number, and takes WRITER away. So either the writer sees the
//! reader's count, or the reader sees the writer's number.
//!
//! The owner's number changes with each of its sections, so it is asked for only once after each
//! section that has locked the VMA: the first reader who finds that over says so, while the writers
//! wait for it. Those who come next do not touch the owner's cache line.
//!
//! # Linux
//! `vm_refcnt` and `vm_lock_seq`. Differences: the owner is in the word, so that the atomic which
//! takes the lock also finds a slot that has gone to another address space.

use super::{Refused, VmaLockKind};
use crate::Wait;
use crate::lock::LockId;
use crate::primitive::{AtomicU64, Ordering};

const WRITER: u64 = 1 << 23;
const COUNT: u64 = WRITER - 1;
/// Highest count: attached, and 2²³ − 2 readers. Small in tests.
const LIMIT: u64 = if cfg!(any(test, loom)) { 3 } else { COUNT };
const OWNER: u32 = 64 - LockId::BITS;
/// No section has this number.
const OVER: u64 = 0;

/// See the module.
#[derive(Debug, Default)]
pub struct VmaLock {
    word: AtomicU64,
    sequence: AtomicU64,
}

impl VmaLock {
    fn key(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Keeps new readers out and waits for those inside. Gives the word without count and bit.
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

    /// Counts a reader in.
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
            if word & COUNT >= LIMIT {
                return Err(Refused::TooMany);
            }
            // ORDERING: Acquire, pairs with the Release in `start_write` and `attach`: whoever comes
            // after a writer sees its section's number.
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

// SAFETY: a reader is counted under the owner that it asked for, and `drain` lets neither
// `start_write` nor `detach` go on before the count says that there is none. A reader that comes
// after `start_write` finds the section's number equal to the owner's until that moves on; it reads
// the latter with Acquire, so that it sees what the section did.
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
        // ORDERING: Release, pairs with the Acquire in `count_in`. Nobody else changes the word of a
        // detached lock.
        self.word.store(word | 1, Ordering::Release);
    }

    fn detach<W: Wait>(&self) {
        let word = self.drain::<W>();
        // ORDERING: Relaxed; nobody counts itself in at 0.
        self.word.store(word, Ordering::Relaxed);
    }

    fn is_attached(&self) -> bool {
        self.word.load(Ordering::Relaxed) & COUNT > 0
    }

    #[inline]
    fn try_read<W: Wait>(&self, owner: LockId, number: &AtomicU64) -> Result<(), Refused> {
        // An early look; what it says may be wrong, in which case `mmap_lock` is taken.
        let section = self.sequence.load(Ordering::Relaxed);
        if section != OVER && section == number.load(Ordering::Relaxed) {
            return Err(Refused::WriteLocked);
        }
        self.count_in(Some(owner))?;
        // ORDERING: Acquire, pairs with the Release below: what the section did is seen.
        let section = self.sequence.load(Ordering::Acquire);
        if section == OVER {
            return Ok(());
        }
        // ORDERING: Acquire, pairs with the Release of `Lock::end_section`.
        if section == number.load(Ordering::Acquire) {
            self.end_read::<W>();
            return Err(Refused::WriteLocked);
        }
        // ORDERING: Release, pairs with the Acquire above. No writer changes it while we are counted.
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
        // The slot may be of another VMA by now; then somebody is woken in vain.
        if W::SLEEPS && before & WRITER != 0 && before & COUNT == 2 {
            W::wake(self.key());
        }
    }

    fn start_write<W: Wait>(&self, section: u64) {
        let count = self.word.load(Ordering::Relaxed) & COUNT;
        let word = self.drain::<W>();
        self.sequence.store(section, Ordering::Relaxed);
        // ORDERING: Release, pairs with the Acquire in `count_in`. Nobody changes the word while
        // WRITER is set and nobody is inside.
        self.word.store(word | count.min(1), Ordering::Release);
    }

    #[inline]
    fn is_write_locked(&self, section: u64) -> bool {
        self.sequence.load(Ordering::Relaxed) == section
    }
}
