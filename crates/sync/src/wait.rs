//! How threads wait for locks.
//!
//! A thread that cannot take a lock passes a condition to [`Wait::wait`], which returns when the
//! condition holds. [`Spin`] polls the condition. An embedder with a scheduler can instead put the
//! thread to sleep under a key, the address of the lock; [`Wait::wake`] then wakes all threads that
//! sleep under that key.

use crate::primitive::spin_loop;

/// How a thread waits for a lock and is woken.
///
/// ```
/// use vmarea_sync::{Lock, Wait};
///
/// /// Gives the processor to another thread between two attempts.
/// struct Yield;
///
/// impl Wait for Yield {
///     const SLEEPS: bool = false;
///
///     fn wait(_key: usize, until: &mut dyn FnMut() -> bool) {
///         while !until() {
///             std::thread::yield_now();
///         }
///     }
///
///     fn wake(_key: usize) {}
/// }
///
/// let lock = Lock::<Yield>::default();
/// drop(lock.write());
/// ```
pub trait Wait: Send + Sync + 'static {
    /// False if waiting threads never sleep, so that unlocking need not wake them.
    const SLEEPS: bool;

    /// Waits until `until` returns true.
    ///
    /// The call of `until` that returns true may have taken the lock, so `until` must not be called
    /// again afterwards. An implementation that sleeps must register the thread under `key` before
    /// it calls `until`, sleep only after `until` has returned false, and call `until` again after
    /// each wake-up. A [`wake`](Self::wake) that follows a false result must find the thread
    /// registered.
    fn wait(key: usize, until: &mut dyn FnMut() -> bool);

    /// Wakes all threads that wait under `key`.
    fn wake(key: usize);
}

/// Waits by polling.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spin;

impl Wait for Spin {
    const SLEEPS: bool = false;

    fn wait(_key: usize, until: &mut dyn FnMut() -> bool) {
        while !until() {
            spin_loop();
        }
    }

    fn wake(_key: usize) {}
}
