//! Reader–writer lock in one word.
//!
//! # Picture
//! ```text
//! WRITER : 1 │ PENDING : 1 │ SLEEPERS : 1 │ readers : 29
//! ```
//! A waiting writer sets PENDING, which keeps new readers out, so readers cannot starve writers. A
//! writer clears PENDING when it unlocks, so waiting readers have a chance before the next writer
//! and writers cannot starve readers, although no order is guaranteed. SLEEPERS means that
//! unlocking must wake the waiting threads.

use crate::Wait;
use crate::primitive::{AtomicU32, Ordering};

const WRITER: u32 = 1 << 31;
const PENDING: u32 = 1 << 30;
const SLEEPERS: u32 = 1 << 29;
const READER_COUNT: u32 = SLEEPERS - 1;
/// Maximum number of readers; further readers wait. Tests use a small value.
pub(crate) const MAX_READERS: u32 = if cfg!(any(test, loom)) {
    3
} else {
    READER_COUNT
};

/// Reader–writer lock in one word; see the module documentation.
#[derive(Debug)]
pub(crate) struct RawRwLock {
    state: AtomicU32,
}

impl Default for RawRwLock {
    fn default() -> Self {
        Self::new()
    }
}

impl RawRwLock {
    crate::const_fn! {
        /// Creates an unlocked lock.
        pub fn new() -> Self {
            RawRwLock { state: AtomicU32::new(0) }
        }
    }

    fn key(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Takes the lock for reading unless a writer holds or awaits it, or [`MAX_READERS`] readers
    /// hold it.
    #[inline]
    pub fn try_read(&self) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        while now & (WRITER | PENDING) == 0 && now & READER_COUNT < MAX_READERS {
            // ORDERING: Acquire, pairs with the Release in `end_write` and `downgrade`.
            let swapped = self.state.compare_exchange_weak(
                now,
                now + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match swapped {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    #[inline]
    pub fn read<W: Wait>(&self) {
        if !self.try_read() {
            W::wait(self.key(), &mut || {
                while !self.try_read() {
                    if self.announce_waiter::<W>(0) {
                        return false;
                    }
                }
                true
            });
        }
    }

    /// Takes the lock for writing unless another thread holds it.
    #[inline]
    pub fn try_write(&self) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        while now & (WRITER | READER_COUNT) == 0 {
            let then = WRITER | now & SLEEPERS;
            // ORDERING: Acquire, pairs with the Release in `end_read` and `end_write`.
            let swapped =
                self.state
                    .compare_exchange_weak(now, then, Ordering::Acquire, Ordering::Relaxed);
            match swapped {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    #[inline]
    pub fn write<W: Wait>(&self) {
        if !self.try_write() {
            W::wait(self.key(), &mut || {
                while !self.try_write() {
                    if self.announce_waiter::<W>(PENDING) {
                        return false;
                    }
                }
                true
            });
        }
    }

    /// Sets the bits that announce a waiter. Returns false if the waiter can now take the lock.
    fn announce_waiter<W: Wait>(&self, who: u32) -> bool {
        let mark = who | if W::SLEEPS { SLEEPERS } else { 0 };
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            let taken = match who {
                PENDING => now & (WRITER | READER_COUNT) != 0,
                _ => now & (WRITER | PENDING) != 0 || now & READER_COUNT >= MAX_READERS,
            };
            if !taken || now & mark == mark {
                return taken;
            }
            // ORDERING: Relaxed; the bits publish no data, and `Wait` orders sleeping and waking.
            match self.state.compare_exchange_weak(
                now,
                now | mark,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
    }

    #[inline]
    pub fn end_read<W: Wait>(&self) {
        // ORDERING: Release, pairs with the Acquire in `try_write`.
        let before = self.state.fetch_sub(1, Ordering::Release);
        debug_assert!(before & READER_COUNT > 0, "no reader holds the lock");
        if W::SLEEPS && before & SLEEPERS != 0 {
            self.wake::<W>();
        }
    }

    #[inline]
    pub fn end_write<W: Wait>(&self) {
        if W::SLEEPS {
            // ORDERING: Release, pairs with the Acquire in `try_read` and `try_write`.
            let before = self.state.swap(0, Ordering::Release);
            if before & SLEEPERS != 0 {
                W::wake(self.key());
            }
        } else {
            // ORDERING: Release, pairs with the Acquire in `try_read` and `try_write`. If this
            // clears the PENDING bit of another writer, that writer sets the bit again.
            self.state.store(0, Ordering::Release);
        }
    }

    /// Turns the write lock into a read lock.
    pub fn downgrade<W: Wait>(&self) {
        // ORDERING: Release, pairs with the Acquire in `try_read`.
        let before = self.state.fetch_sub(WRITER - 1, Ordering::Release);
        if W::SLEEPS && before & SLEEPERS != 0 {
            self.wake::<W>();
        }
    }

    #[cold]
    fn wake<W: Wait>(&self) {
        // ORDERING: Relaxed; a thread that sleeps again sets the bit again before it does so.
        self.state.fetch_and(!SLEEPERS, Ordering::Relaxed);
        W::wake(self.key());
    }
}
