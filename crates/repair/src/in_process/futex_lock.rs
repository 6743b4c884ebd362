//! A one-word lock for the two threads that work on a piece.
//!
//! A waiting thread sleeps instead of spinning, because each moved page causes an interrupt on
//! every processor that runs a thread of the process. The lock is in shared memory, like all data
//! that is used while pages are moved out.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex::{self, Flags};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// The lock is taken, and another thread sleeps until it is released.
const WAITED_FOR: u32 = 2;

/// A lock in one word; zero means unlocked.
#[repr(transparent)]
#[derive(Debug)]
pub(super) struct FutexLock(AtomicU32);

/// Guard that releases the lock when dropped.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a FutexLock);

impl FutexLock {
    /// Takes the lock.
    pub(super) fn lock(&self) -> Held<'_> {
        // ORDERING: Acquire, here and below: pairs with the Release of the previous holder.
        let free = self
            .0
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        if free.is_err() {
            // A thread that has slept does not know whether another thread sleeps, so it assumes
            // that one does.
            while self.0.swap(WAITED_FOR, Ordering::Acquire) != FREE {
                let _ = futex::wait(&self.0, Flags::empty(), WAITED_FOR, None);
            }
        }
        Held(self)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // ORDERING: Release, pairs with the Acquire in `FutexLock::lock`.
        if self.0.0.swap(FREE, Ordering::Release) == WAITED_FOR {
            let _ = futex::wake(&self.0.0, Flags::empty(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_it() {
        const EACH: u32 = 20_000;
        let (lock, sum) = (FutexLock(AtomicU32::new(FREE)), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let _held = lock.lock();
                        // ORDERING: Relaxed: the lock orders the accesses.
                        let before = sum.load(Ordering::Relaxed);
                        sum.store(before + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 3 * EACH);
    }
}
