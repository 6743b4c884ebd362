//! How large a piece may be so that it is done within a pause.
//!
//! What a piece costs follows its mappings and its resident pages; how much, depends on the machine
//! and on what else it does. So the first pieces are small, and each one's time is held against
//! the estimate.

use std::time::Duration;

use super::plan::{Limits, PAGE};
use super::{RepairError, Way};

/// Nanoseconds for a mapping: out, and taken away by the swap.
const PART_NS: f64 = 4_000.0;
/// Nanoseconds for a page that is moved: out and back, if it is there.
const MOVED_NS: f64 = 160.0;
/// Nanoseconds for a page that is copied: out and back, and both copies made and given up.
const COPIED_NS: f64 = 2_400.0;
/// Nanoseconds for a piece, however small.
const PIECE_NS: f64 = 60_000.0;
/// A piece is planned to take this part of the pause: other programs run as well.
const SHARE: f64 = 0.5;
/// The first pieces are taken to cost so much more than they should.
const DOUBT: f64 = 3.0;
/// What pieces cost less than they should is not believed beyond this part: the next may have pages
/// where these had none.
const LEAST: f64 = 0.5;
/// Where nobody set a bound: pieces of some milliseconds, so that nothing waits for very long.
const MOST_PARTS: usize = 1_000;

/// What pieces have cost so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    bound: Option<Duration>,
    most: Limits,
    page_ns: f64,
    factor: f64,
    base_ns: f64,
}

impl Pace {
    /// A pace for pieces of `most` at the most.
    pub(super) fn new(bound: Option<Duration>, most: Limits, way: Way) -> Pace {
        Pace {
            bound,
            page_ns: match way {
                Way::Move => MOVED_NS,
                Way::Copy => COPIED_NS,
            },
            most: Limits {
                parts: most.parts.min(MOST_PARTS),
                ..most
            },
            factor: DOUBT,
            base_ns: PIECE_NS,
        }
    }

    /// What an empty piece was seen to take.
    pub(super) fn set_base(&mut self, base: Duration) {
        self.base_ns = base.as_nanos() as f64;
    }

    /// Whether the smallest piece is done within the bound.
    ///
    /// # Errors
    /// [`RepairError::PauseTooShort`] where it is not.
    pub(super) fn check(&self) -> Result<(), RepairError> {
        let needed = Duration::from_nanos((self.base_ns + 2.0 * PART_NS) as u64);
        match self.bound {
            Some(asked) if needed >= asked => Err(RepairError::PauseTooShort { asked, needed }),
            _ => Ok(()),
        }
    }

    /// What the next piece may hold.
    pub(super) fn limits(&self) -> Limits {
        let Some(bound) = self.bound else {
            return self.most;
        };
        let left = (bound.as_nanos() as f64 * SHARE - self.base_ns).max(PART_NS) / self.factor;
        Limits {
            parts: self.most.parts,
            bytes: ((left / self.page_ns) as u64 * PAGE).clamp(PAGE, self.most.bytes),
            part_bytes: (PART_NS / self.page_ns) as u64 * PAGE,
        }
    }

    /// A piece has taken so long.
    pub(super) fn took(&mut self, parts: usize, bytes: u64, time: Duration) {
        let planned = parts as f64 * PART_NS + (bytes / PAGE) as f64 * self.page_ns;
        let seen = ((time.as_nanos() as f64 - self.base_ns).max(0.0) / planned).clamp(LEAST, 8.0);
        // Quickly more careful, slowly bolder.
        self.factor = if seen > self.factor {
            seen
        } else {
            0.7 * self.factor + 0.3 * seen
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Limits = Limits {
        parts: 1_000,
        bytes: 1 << 28,
        part_bytes: 0,
    };

    #[test]
    fn pieces_shrink_when_they_take_long_and_grow_again() {
        let mut pace = Pace::new(Some(Duration::from_millis(5)), MOST, Way::Move);
        let first = pace.limits();
        pace.took(1, first.bytes, Duration::from_millis(50));
        let careful = pace.limits();
        assert!(careful.bytes < first.bytes);
        for _ in 0..50 {
            let limits = pace.limits();
            pace.took(1, limits.bytes, Duration::from_micros(200));
        }
        assert!(pace.limits().bytes > first.bytes);
    }

    #[test]
    fn without_a_bound_pieces_are_as_large_as_they_may_be() {
        let mut pace = Pace::new(None, MOST, Way::Move);
        pace.took(1, PAGE, Duration::from_secs(1));
        assert_eq!(pace.limits(), MOST);
        assert!(pace.check().is_ok());
    }

    #[test]
    fn a_bound_below_the_smallest_piece_is_seen() {
        let mut pace = Pace::new(Some(Duration::from_millis(1)), MOST, Way::Move);
        assert!(pace.check().is_ok());
        pace.set_base(Duration::from_millis(2));
        assert!(pace.check().is_err());
    }
}
