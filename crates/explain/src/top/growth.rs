//! Growth of a process's number of mappings, averaged over about a minute.
//!
//! A rate over one interval jumps with every burst; a rate since the start hides a change. Two
//! moments are remembered, and the rate is measured from the older one. When the newer one is
//! [`WINDOW`] old, it takes the place of the older one, so that an average spans one to two windows.

use std::time::{Duration, Instant};

/// Shortest time over which the growth is averaged, once a process has been watched for that long.
const WINDOW: Duration = Duration::from_secs(30);

/// Two past moments with the number of mappings at each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Growth {
    older: (Instant, u64),
    newer: (Instant, u64),
}

impl Growth {
    /// Begins with the first number.
    pub fn begin(now: Instant, mappings: u64) -> Growth {
        Growth {
            older: (now, mappings),
            newer: (now, mappings),
        }
    }

    /// Remembers the number at a later moment.
    pub fn continue_to(&mut self, now: Instant, mappings: u64) {
        if now.duration_since(self.newer.0) >= WINDOW {
            self.older = self.newer;
            self.newer = (now, mappings);
        }
    }

    /// Returns the growth in mappings per minute; `None` in the first sample.
    pub fn per_minute(&self, now: Instant, mappings: u64) -> Option<f64> {
        let (since, before) = self.older;
        let minutes = now.duration_since(since).as_secs_f64() / 60.0;
        (minutes > 0.0).then(|| (mappings as f64 - before as f64) / minutes)
    }
}

/// Returns the minutes until a growing number reaches the limit; `None` if it does not grow.
pub(super) fn minutes_to_limit(mappings: u64, limit: u64, per_minute: Option<f64>) -> Option<f64> {
    let per_minute = per_minute.filter(|&rate| rate > 0.0)?;
    Some(limit.saturating_sub(mappings) as f64 / per_minute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_average_of_the_last_window() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut growth = Growth::begin(begin, 100);
        assert_eq!(
            growth.per_minute(begin, 100),
            None,
            "one look shows no rate"
        );
        growth.continue_to(at(2), 110);
        assert_eq!(growth.per_minute(at(2), 110), Some(300.0));
        growth.continue_to(at(30), 160);
        assert_eq!(growth.per_minute(at(30), 160), Some(120.0));
        // The burst of the first half minute is forgotten after two windows.
        growth.continue_to(at(60), 160);
        growth.continue_to(at(90), 160);
        assert_eq!(growth.per_minute(at(90), 160), Some(0.0));
        assert_eq!(growth.per_minute(at(90), 130), Some(-60.0));
    }

    #[test]
    fn only_a_growing_process_reaches_the_limit() {
        assert_eq!(minutes_to_limit(60_000, 65_000, Some(500.0)), Some(10.0));
        assert_eq!(minutes_to_limit(70_000, 65_000, Some(500.0)), Some(0.0));
        for rate in [None, Some(0.0), Some(-5.0)] {
            assert_eq!(minutes_to_limit(60_000, 65_000, rate), None);
        }
    }
}
