//! Stops all other CPUs, so that one thread is alone with what all threads read without a lock.
//!
//! An interrupt stops a CPU, and interrupts are off in the kernel. So a CPU stops only while it runs
//! a program, is idle, or where a thread of the kernel yields, and never inside the core or with a
//! spin lock. Nothing else pays for it: no call and no page fault announces itself.
//!
//! # Linux
//! `kernel/stop_machine.c` `stop_machine`.

use super::{apic, number, online};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use spin::Mutex;

static ALONE: Mutex<()> = Mutex::new(());
/// Number of CPUs that have stopped.
static STOPPED: AtomicUsize = AtomicUsize::new(0);
static GO_ON: AtomicBool = AtomicBool::new(false);

/// A value that all threads share, and that one can change while it is alone.
pub struct Shared<T>(UnsafeCell<T>);

// SAFETY: `get` gives all threads `&T`, and while `alone` has `&mut T` no other thread runs.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

/// Proof that no other CPU runs.
#[derive(Debug)]
pub struct Alone(());

impl<T> Shared<T> {
    /// Creates a shared value.
    pub fn new(value: T) -> Self {
        Shared(UnsafeCell::new(value))
    }

    /// Returns the value. The caller must not call the scheduler while it uses the reference.
    #[inline]
    pub fn get(&self) -> &T {
        // SAFETY: other CPUs stop only where no reference is used, as this function demands.
        unsafe { &*self.0.get() }
    }

    /// Calls `f` with the value while no other CPU runs. Returns `None` if another CPU is about to do
    /// the same; the caller then has to yield, so that its CPU can be stopped.
    ///
    /// The caller holds no lock and uses no reference to the value.
    pub fn alone<R>(&self, f: impl FnOnce(&mut T, &Alone) -> R) -> Option<R> {
        // SAFETY: no other thread uses a reference (`get`), nor does the caller.
        alone(|alone| f(unsafe { &mut *self.0.get() }, alone))
    }
}

fn alone<R>(f: impl FnOnce(&Alone) -> R) -> Option<R> {
    let _alone = ALONE.try_lock()?;
    // ORDERING: Relaxed; the interrupts, which other CPUs receive afterwards, order it.
    GO_ON.store(false, Ordering::Relaxed);
    (0..online())
        .filter(|&cpu| cpu != number())
        .for_each(apic::send_stop);
    // ORDERING: Acquire, pairs with the Release in `wait`: what the CPUs did before is visible.
    wait_until(|| STOPPED.load(Ordering::Acquire) == online() - 1);
    let result = f(&Alone(()));
    // ORDERING: Release, pairs with the Acquire in `wait`: the CPUs see what `f` has changed.
    GO_ON.store(true, Ordering::Release);
    // ORDERING: Acquire; the next caller must find no CPU that still waits for this one.
    wait_until(|| STOPPED.load(Ordering::Acquire) == 0);
    Some(result)
}

/// Handles the interrupt that stops this CPU: waits until the CPU that has sent it is done.
pub fn wait() {
    // ORDERING: Release, pairs with the Acquire in `alone`.
    STOPPED.fetch_add(1, Ordering::Release);
    // ORDERING: Acquire, pairs with the Release in `alone`.
    wait_until(|| GO_ON.load(Ordering::Acquire));
    // Page tables may have gone, to which the TLB refers.
    x86_64::instructions::tlb::flush_all();
    // ORDERING: Release; as above.
    STOPPED.fetch_sub(1, Ordering::Release);
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        core::hint::spin_loop();
    }
}
