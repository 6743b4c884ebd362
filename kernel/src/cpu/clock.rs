//! Time in nanoseconds since the kernel started, from the time-stamp counter.

use core::sync::atomic::{AtomicU64, Ordering};

static START: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds per time-stamp count, multiplied by 2³².
static SCALE: AtomicU64 = AtomicU64::new(1 << 32);

fn counter() -> u64 {
    // SAFETY: reads a register.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Calibrates the time-stamp counter; `wait` waits for its argument, a number of nanoseconds.
pub fn calibrate(wait: impl FnOnce(u32)) {
    const NANOSECONDS: u32 = 5_000_000;
    let before = counter();
    wait(NANOSECONDS);
    let counts = (counter() - before).max(1);
    // ORDERING: Relaxed; other CPUs start later.
    SCALE.store((u64::from(NANOSECONDS) << 32) / counts, Ordering::Relaxed);
    START.store(before, Ordering::Relaxed);
}

/// Returns the number of nanoseconds since the kernel started.
pub fn now() -> u64 {
    // ORDERING: Relaxed; the start and the scale do not change any more.
    let counts = counter() - START.load(Ordering::Relaxed);
    ((u128::from(counts) * u128::from(SCALE.load(Ordering::Relaxed))) >> 32) as u64
}
