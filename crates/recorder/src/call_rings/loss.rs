//! Losses of records: how many, when and why.

use crate::clock::clock;
use std::fmt;
use vmarea_trace::event::Nanos;

/// Records that were lost, or may have been, in a span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Loss {
    /// Number of records; 0 if another record says it later.
    pub(crate) count: u64,
    /// Earliest time of a lost record.
    pub(crate) from: Nanos,
    /// Time after which nothing more was lost.
    pub(crate) until: Nanos,
    pub(crate) why: Why,
}

/// Why records were lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// They did not fit into a ring.
    RingFull,
    /// The kernel did not run the programs that write them, for some call of some process, or they
    /// could not write.
    NotWritten,
}

impl Loss {
    /// Returns the loss that a ring may have had since time `from`, and whose number it reports
    /// later.
    pub(crate) fn of_overflow(from: Nanos) -> Loss {
        Loss {
            count: 0,
            from,
            until: clock(),
            why: Why::RingFull,
        }
    }

    /// Returns a phrase about memory calls, with times since `begun`.
    pub(crate) fn told(&self, begun: Nanos) -> impl fmt::Display {
        let seconds = |t: Nanos| t.saturating_sub(begun) as f64 / 1e9;
        let when = match (seconds(self.from), seconds(self.until)) {
            (from, until) if until - from < 0.001 => format!("at {from:.3} s"),
            (from, until) => format!("between {from:.3} s and {until:.3} s"),
        };
        match self.why {
            Why::RingFull => format!(
                "memory calls were lost {when}, because a ring overflowed: they were made faster \
                 than they could be read"
            ),
            Why::NotWritten => format!(
                "memory calls may have been lost {when}, because the kernel did not write up to {} \
                 records",
                self.count
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_names_its_time_and_its_cause() {
        let loss = Loss {
            count: 3,
            from: 2_500_000_000,
            until: 2_520_000_000,
            why: Why::NotWritten,
        };
        let told = loss.told(1_000_000_000).to_string();
        assert!(told.contains("between 1.500 s and 1.520 s"), "{told}");
        assert!(told.contains("up to 3 records"), "{told}");
        let full = Loss {
            until: loss.from,
            why: Why::RingFull,
            ..loss
        };
        let told = full.told(1_000_000_000).to_string();
        assert!(
            told.contains("at 1.500 s, because a ring overflowed"),
            "{told}"
        );
    }
}
