//! The processor's time-stamp counter.

/// Reads the counter after all earlier instructions have executed; returns 0 except on x86-64.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both instructions exist on every x86-64 processor and touch no memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}
