//! Limits the size of a piece so that it completes within the allowed pause.
//!
//! The cost of a piece grows with the number of its mappings and of its resident pages, by factors
//! that depend on the machine and its load. The first pieces are therefore small, and the measured
//! time of each piece corrects the estimate. What a pause takes besides, mostly to stop and resume
//! threads, is estimated by its average and its deviation, as round-trip times of networks are
//! (RFC 6298): on a quiet machine nearly the whole pause is used, and on a busy one half of it.

use std::time::Duration;

use super::plan::{Limits, PAGE};
use super::{RepairError, Way};

/// Estimated nanoseconds per mapping, for moving its pages out and removing it in the swap.
const PART_NS: f64 = 4_000.0;
/// Estimated nanoseconds per moved page, for moving it out and back.
const MOVED_NS: f64 = 160.0;
/// Estimated nanoseconds per copied page, which is copied twice and freed twice.
const COPIED_NS: f64 = 2_400.0;
/// Estimated nanoseconds for the work on a piece, independent of its size.
const PIECE_NS: f64 = 60_000.0;
/// Fraction of the time left that changes are planned to take. The rest is a reserve, because other
/// programs also use the processors.
const SHARE: f64 = 0.5;
/// Fraction of the allowed pause that a piece is planned to take with all that belongs to it.
const PLANNED: f64 = 0.9;
/// Least fraction of the allowed pause that a piece is planned to take. If stopping alone takes as
/// long, smaller pieces would only need more stops.
const LEAST_SHARE: f64 = 0.25;
/// Number of deviations from the average for which a pause has a reserve.
const DEVIATIONS: f64 = 4.0;
/// Initial factor by which the estimated cost of a piece is multiplied.
const FIRST_FACTOR: f64 = 3.0;
/// Initial factor if shared pages may be copied. Each of them is copied by a call of its own, which
/// takes as long as hundreds of moves, and a plan does not show which pages are shared.
const FIRST_FACTOR_SHARED: f64 = 400.0;
/// Lower bound for the ratio of measured to estimated cost. Without this bound, a piece without
/// resident pages would make the estimate for the next piece too low.
const LEAST: f64 = 0.5;
/// Maximum ratio by which one piece raises the estimate, so that a single piece that was interrupted
/// does not make all following ones tiny.
const RISE: f64 = 8.0;
/// Largest part of the allowed pause that stopping and resuming all threads may take. Otherwise most
/// of each pause would be spent on stopping, and a repair would need very many of them.
const MOST_STOPPING: f64 = 0.75;
/// Estimated nanoseconds for one change of a repair that moves no pages, before the first
/// measurement.
const CHANGE_NS: f64 = 50_000.0;
/// Maximum number of such changes that are made at once.
pub(super) const MOST_CHANGES: usize = 256;
/// Maximum number of mappings in a piece, even if no maximum pause was set. A piece of this size
/// takes a few milliseconds.
const MOST_PARTS_AT_ONCE: usize = 1_000;

/// Running estimate of the cost of pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    bound: Option<Duration>,
    most: Limits,
    page_ns: f64,
    factor: f64,
    base_ns: f64,
    /// What pauses take besides the planned work.
    besides: Spread,
    change_ns: f64,
}

/// Running average of a time, and of how far single times are from it.
#[derive(Clone, Copy, Debug)]
struct Spread {
    mean_ns: f64,
    deviation_ns: f64,
}

impl Spread {
    fn first(ns: f64) -> Spread {
        Spread {
            mean_ns: ns,
            deviation_ns: ns / 4.0,
        }
    }

    fn seen(&mut self, ns: f64) {
        let error = ns - self.mean_ns;
        self.mean_ns += error / 8.0;
        self.deviation_ns += (error.abs() - self.deviation_ns) / 4.0;
    }

    /// Returns a time that is rarely exceeded.
    fn most_ns(&self) -> f64 {
        self.mean_ns + DEVIATIONS * self.deviation_ns
    }
}

impl Pace {
    /// Creates a pace for pieces within the limits `most`. `copies` is the number of shared pages
    /// that may be copied.
    pub(super) fn new(bound: Option<Duration>, most: Limits, way: Way, copies: u64) -> Pace {
        Pace {
            bound,
            page_ns: match way {
                Way::Move => MOVED_NS,
                Way::Copy => COPIED_NS,
            },
            most: Limits {
                parts: most.parts.min(MOST_PARTS_AT_ONCE),
                ..most
            },
            factor: match copies {
                0 => FIRST_FACTOR,
                _ => FIRST_FACTOR_SHARED,
            },
            base_ns: PIECE_NS,
            besides: Spread::first(PIECE_NS),
            change_ns: CHANGE_NS,
        }
    }

    /// Records the measured fixed cost of a piece, which does not depend on its size.
    pub(super) fn set_base(&mut self, base: Duration) {
        self.base_ns = base.as_nanos() as f64;
        self.besides = Spread::first(self.base_ns);
    }

    /// Checks whether the smallest piece fits into the allowed pause, and whether enough of the pause
    /// is left after the threads have been stopped.
    ///
    /// # Errors
    /// [`RepairError::PauseTooShort`] if it does not fit.
    pub(super) fn check(&self) -> Result<(), RepairError> {
        let needed = (self.base_ns + 2.0 * PART_NS) / MOST_STOPPING;
        let needed = Duration::from_nanos(needed as u64);
        match self.bound {
            Some(asked) if needed >= asked => Err(RepairError::PauseTooShort { asked, needed }),
            _ => Ok(()),
        }
    }

    /// True if a pause was longer than allowed.
    pub(super) fn is_too_long(&self, pause: Duration) -> bool {
        self.bound.is_some_and(|bound| pause > bound)
    }

    /// Returns the number of small changes that may still be made in a stop that has lasted for
    /// `elapsed`.
    ///
    /// `stopping` is the part of `elapsed` until all threads stood still. If this alone takes most of
    /// the allowed pause, because the machine has become busy or the process has started thousands
    /// of threads, each further stop would take as long. The changes may then take as long again, so
    /// that few stops are needed.
    pub(super) fn changes(&self, stopping: Duration, elapsed: Duration) -> usize {
        let Some(bound) = self.bound else {
            return MOST_CHANGES;
        };
        let most = match stopping >= bound.mul_f64(MOST_STOPPING) {
            true => stopping * 2,
            false => stopping + (bound - stopping).mul_f64(SHARE),
        };
        let left = most.saturating_sub(elapsed).as_nanos() as f64;
        ((left / self.change_ns) as usize).min(MOST_CHANGES)
    }

    /// Records the time that a number of small changes took together.
    pub(super) fn changed(&mut self, changes: usize, work: Duration) {
        let seen = work.as_nanos() as f64 / changes.max(1) as f64;
        self.change_ns = match seen > self.change_ns {
            true => seen.min(RISE * self.change_ns),
            false => 0.5 * self.change_ns + 0.5 * seen,
        }
        .max(1.0);
    }

    /// Returns the limits for the next piece.
    pub(super) fn limits(&self) -> Limits {
        let Some(bound) = self.bound else {
            return self.most;
        };
        let bound = bound.as_nanos() as f64;
        let left = bound * PLANNED - self.besides.most_ns();
        let left = left.max(bound * LEAST_SHARE) / self.factor;
        Limits {
            parts: self.most.parts,
            bytes: ((left / self.page_ns) as u64 * PAGE).clamp(PAGE, self.most.bytes),
            part_bytes: (PART_NS / self.page_ns) as u64 * PAGE,
        }
    }

    /// Records the times of a piece that was refused. A part of the piece's cost shows only that the
    /// pieces are too large.
    pub(super) fn refused(&mut self, parts: usize, bytes: u64, work: Duration, pause: Duration) {
        if self.is_too_long(work) {
            self.took(parts, bytes, work, pause);
        }
    }

    /// Records how long a piece took: the pause, and the work alone, which does not depend on how
    /// many threads are stopped and on how busy the processors are.
    pub(super) fn took(&mut self, parts: usize, bytes: u64, work: Duration, pause: Duration) {
        let planned = parts as f64 * PART_NS + (bytes / PAGE) as f64 * self.page_ns;
        if let Some(bound) = self.bound {
            // The longest pauses of a busy machine say nothing about the next ones.
            let besides = pause.as_nanos() as f64 - self.factor * planned;
            self.besides
                .seen(besides.clamp(0.0, bound.as_nanos() as f64));
        }
        let seen = (work.as_nanos() as f64 - PIECE_NS).max(0.0) / planned;
        let seen = seen.clamp(LEAST, RISE * self.factor);
        // The size of pieces shrinks immediately and grows slowly.
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

    /// A piece that takes as long as its pause.
    fn took(pace: &mut Pace, parts: usize, bytes: u64, time: Duration) {
        pace.took(parts, bytes, time, time);
    }

    #[test]
    fn a_stop_that_is_too_long_by_itself_is_used_for_as_long_again() {
        let ms = Duration::from_millis;
        let pace = Pace::new(Some(ms(5)), MOST, Way::Move, 0);
        assert!(pace.changes(ms(1), ms(2)) > 0);
        assert_eq!(pace.changes(ms(1), ms(3)), 0);
        assert!(pace.changes(ms(100), ms(101)) > 100);
        assert!(pace.changes(ms(100), ms(199)) > 0);
        assert_eq!(pace.changes(ms(100), ms(200)), 0);
    }

    #[test]
    fn changes_are_made_by_the_dozen_once_it_is_known_how_fast_they_are() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        let mut pace = Pace::new(Some(ms(5)), MOST, Way::Move, 0);
        let first = pace.changes(us(100), us(100));
        for _ in 0..10 {
            pace.changed(10, us(50));
        }
        let fast = pace.changes(us(100), us(100));
        assert!(fast > 3 * first, "{first} {fast}");
        for _ in 0..3 {
            pace.changed(10, ms(20));
        }
        assert!(pace.changes(us(100), us(100)) < first);
    }

    #[test]
    fn pieces_shrink_when_they_take_long_and_grow_again() {
        let mut pace = Pace::new(Some(Duration::from_millis(5)), MOST, Way::Move, 0);
        let first = pace.limits();
        took(&mut pace, 1, first.bytes, Duration::from_millis(50));
        let careful = pace.limits();
        assert!(careful.bytes < first.bytes);
        for _ in 0..50 {
            let limits = pace.limits();
            took(&mut pace, 1, limits.bytes, Duration::from_micros(200));
        }
        assert!(pace.limits().bytes > first.bytes);
    }

    /// A shared page costs as much as hundreds of moves. A factor that is bounded from above would
    /// make every piece too long, not only the first ones.
    #[test]
    fn a_few_long_pieces_are_enough_to_learn_what_pages_cost() {
        const BOUND: Duration = Duration::from_millis(5);
        let mut pace = Pace::new(Some(BOUND), MOST, Way::Move, 0);
        let part_time = Duration::from_micros(700);
        let parts = |limits: Limits| (limits.bytes / (PAGE + limits.part_bytes) + 1) as u32;
        let mut long = 0;
        while part_time * parts(pace.limits()) > BOUND {
            let parts = parts(pace.limits());
            took(
                &mut pace,
                parts as usize,
                u64::from(parts) * PAGE,
                part_time * parts,
            );
            long += 1;
            assert!(long < 4, "{parts} parts");
        }
        assert!(long > 0);
        let copying = Pace::new(Some(BOUND), MOST, Way::Move, 1);
        let first = parts(copying.limits());
        assert!(part_time * first <= BOUND, "{first} parts");
    }

    /// Simulates pieces whose work takes 4 us a page, on a machine that adds `besides` to each pause.
    /// Returns the average part of the bound that is used for work, and the part of long pauses.
    fn simulated(mut besides: impl FnMut(u32) -> Duration) -> (f64, f64) {
        const PIECES: u32 = 2_000;
        let bound = Duration::from_millis(5);
        let mut pace = Pace::new(Some(bound), MOST, Way::Move, 0);
        pace.set_base(besides(0));
        let (mut used, mut long) = (Duration::ZERO, 0);
        for n in 0..PIECES {
            let pages = (pace.limits().bytes / (PAGE + pace.limits().part_bytes) + 1) as u32;
            let work = Duration::from_micros(4) * pages;
            let pause = work + besides(n);
            pace.took(pages as usize, u64::from(pages) * PAGE, work, pause);
            used += work;
            long += u32::from(pace.is_too_long(pause));
        }
        let part = |n: f64| n / f64::from(PIECES);
        (part(used.div_duration_f64(bound)), part(long.into()))
    }

    #[test]
    fn a_steady_machine_is_used_well_and_an_unsteady_one_with_care() {
        let us = |us: u32| Duration::from_micros(us.into());
        let (used, long) = simulated(|n| us(1_000 + n % 7 * 20));
        assert!(used > 0.6, "{used}");
        assert!(long < 0.01, "{long}");
        let (used, long) = simulated(|n| us(1_000 + n * 7_919 % 1_500));
        assert!(used > 0.25, "{used}");
        assert!(long < 0.05, "{long}");
        // Every hundredth pause is ten times as long as permitted; the others are not worse for it.
        let (used, long) = simulated(|n| us(if n % 100 == 99 { 50_000 } else { 1_000 }));
        assert!(used > 0.5, "{used}");
        assert!(long < 0.03, "{long}");
    }

    #[test]
    fn a_machine_that_stops_slowly_is_not_stopped_for_nothing() {
        let (used, _) = simulated(|_| Duration::from_millis(20));
        assert!(used > 0.1, "{used}");
    }

    #[test]
    fn without_a_bound_pieces_are_as_large_as_they_may_be() {
        let mut pace = Pace::new(None, MOST, Way::Move, 0);
        took(&mut pace, 1, PAGE, Duration::from_secs(1));
        assert_eq!(pace.limits(), MOST);
        assert!(pace.check().is_ok());
    }

    #[test]
    fn a_bound_below_the_smallest_piece_is_seen() {
        let mut pace = Pace::new(Some(Duration::from_millis(1)), MOST, Way::Move, 0);
        assert!(pace.check().is_ok());
        pace.set_base(Duration::from_micros(700));
        assert!(pace.check().is_ok());
        pace.set_base(Duration::from_micros(800));
        assert!(
            pace.check().is_err(),
            "hardly anything is left for the work"
        );
        pace.set_base(Duration::from_millis(2));
        assert!(pace.check().is_err());
    }
}
