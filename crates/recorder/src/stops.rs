//! Queue of stops that the kernel has reported but the tracer has not yet handled.
//!
//! `wait` scans the traced threads in a fixed order and reports the first one with an event. If the
//! tracer handled each report before asking for the next, a few threads that stop constantly could
//! starve the others for seconds. So the tracer first collects all pending reports and handles them
//! in the order of collection: no thread is handled a second time before every other waiting thread
//! has been handled once.

use rustix::io::Errno;
use rustix::process::WaitOptions;
use std::collections::{HashMap, VecDeque};
use vmarea_trace::event::Nanos;

/// Flags `__WALL | __WNOTHREAD`: every kind of child, but only children of this thread.
const OWN_CHILDREN: u32 = 0x4000_0000 | 0x2000_0000;

/// A report of `wait` about a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stop {
    /// Id of the thread.
    pub tid: i32,
    /// Wait status of the thread.
    pub status: i32,
    /// Time at which the report was collected; the thread stopped at or before this time.
    pub t: Nanos,
}

/// The queue of reports; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    queue: VecDeque<Stop>,
    /// Number of queued reports for each thread.
    of: HashMap<i32, u32>,
}

/// Whether traced threads remain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tree {
    /// Traced threads remain, stopped or running.
    Alive,
    /// No traced threads remain.
    Gone,
}

impl Stops {
    /// Collects all reports that are pending in the kernel.
    ///
    /// # Errors
    /// The errors of `wait` except `ECHILD` and `EINTR`.
    pub(crate) fn collect(&mut self, clock: impl Fn() -> Nanos) -> Result<Tree, Errno> {
        let options = WaitOptions::NOHANG | WaitOptions::from_bits_retain(OWN_CHILDREN);
        loop {
            match rustix::process::wait(options) {
                Ok(Some((tid, status))) => self.push(Stop {
                    tid: tid.as_raw_nonzero().get(),
                    status: status.as_raw(),
                    t: clock(),
                }),
                Ok(None) => return Ok(Tree::Alive),
                Err(Errno::CHILD) => return Ok(Tree::Gone),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn push(&mut self, stop: Stop) {
        *self.of.entry(stop.tid).or_default() += 1;
        self.queue.push_back(stop);
    }

    /// Removes and returns the next report to handle.
    pub(crate) fn next(&mut self) -> Option<Stop> {
        let stop = self.queue.pop_front()?;
        if let Some(count) = self.of.get_mut(&stop.tid) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&stop.tid);
            }
        }
        Some(stop)
    }

    /// True if another report on the thread is queued: the thread was killed and has left its stop.
    pub(crate) fn waits(&self, tid: i32) -> bool {
        self.of.contains_key(&tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_waits_as_long_as_one_of_its_reports_does() {
        let stop = |tid, t| Stop { tid, status: 0, t };
        let mut stops = Stops::default();
        for one in [stop(7, 1), stop(8, 2), stop(7, 3)] {
            stops.push(one);
        }
        assert_eq!(stops.next(), Some(stop(7, 1)));
        assert!(stops.waits(7) && stops.waits(8));
        assert_eq!(stops.next(), Some(stop(8, 2)));
        assert!(stops.waits(7) && !stops.waits(8));
        assert_eq!(stops.next(), Some(stop(7, 3)));
        assert!(!stops.waits(7) && stops.next().is_none());
    }
}
