//! How a thread waits: the embedder's affair.
//!
//! A lock that cannot be had hands a condition to its [`Wait`], which comes back when the condition
//! holds. [`Spin`] asks again and again. An embedder with a scheduler puts the thread to sleep under
//! the key, which is the lock's address, and wakes all that sleep under it when told to.

use crate::primitive::spin_loop;

/// How a thread waits, and how it is woken.
pub trait Wait: Send + Sync + 'static {
    /// False where threads never sleep, so that nobody need be woken.
    const SLEEPS: bool;

    /// Returns when `until` has answered true. That answer may have taken the lock, so `until` must
    /// not be asked again after it.
    ///
    /// An implementation that sleeps must announce itself under `key` before it asks, sleep only
    /// after a false answer, and ask again when woken: a [`wake`](Self::wake) that comes after the
    /// answer must find the thread.
    fn wait(key: usize, until: &mut dyn FnMut() -> bool);

    /// Wakes all threads that wait under `key`.
    fn wake(key: usize);
}

/// Waiting by asking again and again.
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
