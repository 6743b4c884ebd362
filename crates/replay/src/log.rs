//! Log of a replay: merge attempts with the verdict of each policy, and differences, as they occur.
//!
//! A [`Report`](crate::Report) contains counts; the log contains each item with its place, for
//! programs that write tables. [`Options::log`](crate::Options::log) turns it on, and the caller
//! empties it after each event, so it stays small.

use super::Replayer;
use super::attempts::Attempted;
use super::report::Difference;
use vmarea_trace::event::MmId as TraceMm;

/// What a replay has logged since the log was last emptied.
#[derive(Clone, Debug, Default)]
pub struct Logged {
    /// Merge attempts, in the order in which they were decided.
    pub attempts: Vec<Attempted>,
    /// Differences between the kernel and the core, also those that turn out to be undecided because
    /// a setting of the machine was written at that time.
    pub differences: Vec<Difference>,
}

impl Replayer {
    /// Returns what was logged since the last call ([`Options::log`](crate::Options::log)).
    pub fn take_log(&mut self) -> Logged {
        let world = &self.worlds[0];
        let attempts = self.attempts.take().into_iter();
        Logged {
            attempts: attempts
                .map(|(id, attempted)| Attempted {
                    mm: world.recorded_mm(id),
                    ..attempted
                })
                .collect(),
            differences: self
                .report
                .log
                .as_mut()
                .map_or_else(Vec::new, std::mem::take),
        }
    }

    /// Returns the number of VMAs in an address space under each policy, the recorded kernel's
    /// first; 0 if the address space does not exist.
    pub fn vmas(&self, mm: TraceMm) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let worlds = self.worlds.iter().filter(|world| world.changed.is_none());
        worlds.map(move |world| (world.name, world.vmas(mm)))
    }
}
