//! The clock of a recording.

use vmarea_trace::event::Nanos;

/// Returns the time of `CLOCK_MONOTONIC`, the clock that the samples use.
pub(crate) fn clock() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
