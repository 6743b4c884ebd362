//! A reader–writer lock in one word.
//!
//! # Picture
//! ```text
//! WRITER : 1 │ PENDING : 1 │ SLEEPERS : 1 │ readers : 29
//! ```
//! A writer that waits sets PENDING, which keeps new readers out, so readers cannot starve it. A
//! writer that leaves takes PENDING away, so that readers who wait have a chance before the next
//! writer: writers cannot starve them either, though no order is promised. SLEEPERS says that
//! somebody must be woken.

use crate::Wait;
use crate::primitive::{AtomicU32, Ordering};

const WRITER: u32 = 1 << 31;
const PENDING: u32 = 1 << 30;
const SLEEPERS: u32 = 1 << 29;
const READERS: u32 = SLEEPERS - 1;
/// Readers at one time; one more waits. Small in tests.
pub(crate) const LIMIT: u32 = if cfg!(any(test, loom)) { 3 } else { READERS };

/// See the module.
#[derive(Debug)]
pub(crate) struct RawLock {
    state: AtomicU32,
}

impl Default for RawLock {
    fn default() -> Self {
        Self::new()
    }
}

impl RawLock {
    crate::const_fn! {
        /// A free lock.
        pub fn new() -> Self {
            RawLock { state: AtomicU32::new(0) }
        }
    }

    fn key(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Takes the lock for reading if no writer has it or waits, and the count has room.
    #[inline]
    pub fn try_read(&self) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        while now & (WRITER | PENDING) == 0 && now & READERS < LIMIT {
            // ORDERING: Acquire, pairs with the Release of `end_write` and `downgrade`.
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
                    if self.announced::<W>(0) {
                        return false;
                    }
                }
                true
            });
        }
    }

    /// Takes the lock for writing if nobody has it.
    #[inline]
    pub fn try_write(&self) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        while now & (WRITER | READERS) == 0 {
            let then = WRITER | now & SLEEPERS;
            // ORDERING: Acquire, pairs with the Release of `end_read` and `end_write`.
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
                    if self.announced::<W>(PENDING) {
                        return false;
                    }
                }
                true
            });
        }
    }

    /// Says that somebody waits. False if the lock looks free for them by now.
    fn announced<W: Wait>(&self, who: u32) -> bool {
        let mark = who | if W::SLEEPS { SLEEPERS } else { 0 };
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            let taken = match who {
                PENDING => now & (WRITER | READERS) != 0,
                _ => now & (WRITER | PENDING) != 0 || now & READERS >= LIMIT,
            };
            if !taken || now & mark == mark {
                return taken;
            }
            // ORDERING: Relaxed; the mark carries nothing, and `wake` orders the sleepers.
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
        // ORDERING: Release, pairs with the Acquire of `try_write`.
        let before = self.state.fetch_sub(1, Ordering::Release);
        debug_assert!(before & READERS > 0, "nobody reads");
        if W::SLEEPS && before & SLEEPERS != 0 {
            self.wake::<W>();
        }
    }

    #[inline]
    pub fn end_write<W: Wait>(&self) {
        if W::SLEEPS {
            // ORDERING: Release, pairs with the Acquire of `try_read` and `try_write`.
            let before = self.state.swap(0, Ordering::Release);
            if before & SLEEPERS != 0 {
                W::wake(self.key());
            }
        } else {
            // ORDERING: Release, as above. What is lost, PENDING, its owner sets again.
            self.state.store(0, Ordering::Release);
        }
    }

    /// Turns the writer into a reader.
    pub fn downgrade<W: Wait>(&self) {
        // ORDERING: Release, pairs with the Acquire of `try_read`.
        let before = self.state.fetch_sub(WRITER - 1, Ordering::Release);
        if W::SLEEPS && before & SLEEPERS != 0 {
            self.wake::<W>();
        }
    }

    #[cold]
    fn wake<W: Wait>(&self) {
        // ORDERING: Relaxed; whoever sleeps sets the mark again before it sleeps again.
        self.state.fetch_and(!SLEEPERS, Ordering::Relaxed);
        W::wake(self.key());
    }
}
