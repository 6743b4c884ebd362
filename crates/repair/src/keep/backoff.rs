//! How long the keeper waits after a merge that did not help.

use std::time::{Duration, Instant};

use super::LONGEST;

/// Shortest wait after a merge that did not help.
const AGAIN: Duration = Duration::from_secs(1);

/// The wait before the next merge of a process.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    wait: Duration,
    until: Option<Instant>,
    left: u64,
}

impl Backoff {
    /// True if the wait is over, or if there are many new mappings.
    pub(super) fn allows(&self, count: u64, now: Instant) -> bool {
        count > self.left + self.left / 8 || self.until.is_none_or(|until| now >= until)
    }

    /// Sets how long to wait after a merge that began at `begun`, with the numbers of mappings
    /// before and after it.
    pub(super) fn learn(&mut self, (before, after): (u64, u64), begun: Instant) {
        let took = begun.elapsed();
        // If the merge removed at least a tenth of the mappings, the process runs for as long as the
        // merge took.
        self.wait = match after * 10 > before * 9 {
            true => (self.wait * 2)
                .max(AGAIN)
                .clamp(took * 10, LONGEST.max(took * 10)),
            false => took,
        };
        self.until = Some(Instant::now() + self.wait);
        self.left = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_in_vain_doubles_the_wait_and_many_new_mappings_end_it() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        assert!(backoff.allows(1000, now));
        backoff.learn((1000, 10), now);
        assert!(
            backoff.allows(5, Instant::now() + backoff.wait),
            "it helped"
        );
        assert!(backoff.wait < AGAIN);
        backoff.learn((1000, 1000), now);
        let first = backoff.wait;
        assert!(first >= AGAIN && !backoff.allows(1125, Instant::now()));
        assert!(backoff.allows(1126, Instant::now()));
        backoff.learn((1000, 1000), now);
        assert!(backoff.wait >= 2 * first);
        assert!(backoff.allows(1000, now + 2 * LONGEST));
    }
}
