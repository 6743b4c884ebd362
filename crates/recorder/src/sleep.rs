//! The tracer's sleep between two rounds of stops.

use super::RecordError;
use super::attachment::Attachment;
use super::tracer::Tracer;
use rustix::event::{PollFd, PollFlags, Timespec};
use vmarea_trace::event::Nanos;

/// Longest sleep of the tracer.
const SLEEP: Nanos = 200_000_000;
/// Longest sleep of the tracer if the rings can no longer wake it.
const SLEEP_WITHOUT_RINGS: Nanos = 20_000_000;

impl Tracer<'_> {
    /// Sleeps until a signal arrives, a ring fills, or a deadline passes.
    ///
    /// # Errors
    /// [`RecordError::Follow`] if `poll` fails.
    pub(super) fn sleep(&mut self, now: Nanos) -> Result<(), RecordError> {
        let longest = if self.rings_silent || self.observed.is_some() {
            SLEEP_WITHOUT_RINGS
        } else {
            SLEEP
        };
        let turn = self.turn();
        let until = self.spaces.values().filter_map(|s| s.next_due(turn));
        let until = until.chain(self.signals.deadline());
        let until = until.chain(self.attachment.as_ref().map(Attachment::deadline));
        let until = until.min();
        let nanos = match self.is_behind() {
            true => 0,
            false => until.map_or(longest, |until| until.saturating_sub(now).min(longest)),
        };
        let mut fds: Vec<PollFd<'_>> = self
            .signals
            .fds()
            .into_iter()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        if !self.rings_silent
            && let Some(samples) = &self.samples
        {
            let rings = samples.poll_fds();
            fds.extend(rings.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        // Calls that no thread stops for do not count as silence of the other rings.
        let quiet = fds.len();
        if let Some(observed) = &self.observed {
            let rings = observed.poll_fds();
            fds.extend(rings.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: nanos as i64,
        };
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(RecordError::Follow(error.into())),
        }
        // The task on which the rings were opened has exited; its children still fill the rings.
        let silent = fds[..quiet]
            .iter()
            .any(|fd| fd.revents().contains(PollFlags::HUP));
        self.rings_silent |= silent;
        Ok(())
    }
}
