//! State of the pauses in which the recorder keeps threads of a command stopped.
//!
//! [`super::throttle`] and [`super::resumption`] say when.

use super::tasks::UNRECORDED;
use vmarea_trace::event::{MmId, Nanos};

/// Memory of the waiting records above which the recorder stops threads, in bytes.
///
/// The threads continue when the records need a quarter of it.
const MOST_BYTES: usize = 64 << 20;

/// Whether threads are being stopped, and for how long they were.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// Memory of the waiting records above which the recorder stops threads, in bytes.
    pub(super) most_bytes: usize,
    /// Time since which threads are being stopped.
    pub(super) since: Option<Nanos>,
    /// Total time for which threads were being stopped.
    pub(super) total: Nanos,
}

impl Default for Throttle {
    fn default() -> Self {
        Throttle {
            most_bytes: MOST_BYTES,
            since: None,
            total: 0,
        }
    }
}

impl Throttle {
    /// True while a thread that was asked to stop is kept at its stop.
    pub(crate) fn is_active(&self) -> bool {
        self.since.is_some()
    }
}

/// Address spaces that are to be recorded anew.
#[derive(Debug)]
pub(crate) struct Stale {
    /// Time at which each address space became known, by its id.
    pub(super) born: Vec<Nanos>,
    /// The newest of the address spaces that existed when calls were lost.
    pub(super) up_to: MmId,
    /// Time since which threads are being stopped.
    pub(super) since: Option<Nanos>,
    /// Time of the next attempt.
    pub(super) due: Nanos,
}

impl Default for Stale {
    fn default() -> Self {
        Stale {
            born: Vec::new(),
            up_to: UNRECORDED,
            since: None,
            due: 0,
        }
    }
}

impl Stale {
    /// Returns the newest address space that existed at time `t`.
    pub(crate) fn newest_at(&self, t: Nanos) -> MmId {
        let count = self.born.partition_point(|born| *born <= t);
        MmId(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// True if the calls of an address space were lost.
    pub(crate) fn contains(&self, mm: MmId) -> bool {
        mm != UNRECORDED && mm <= self.up_to
    }

    /// True if the threads of an address space are being stopped.
    pub(crate) fn stops(&self, mm: MmId) -> bool {
        self.since.is_some() && self.contains(mm)
    }
}
