//! Estimated cost of a repair, computed from measured rates.
//!
//! The rates were measured on one machine (Linux 6.18, 2 cores). A repair of another process stops
//! it for each piece, and each stop must stop and resume every thread; between the stops it also
//! reads the mappings again. `vmarea merge --apply` replaces the estimate by the speed of its first
//! pieces. Without `smaps` the number of resident pages is unknown; its upper bound is then the size
//! of the mappings, or the private memory of the whole process if that is smaller.

use serde::Serialize;
use std::time::Duration;
use vmarea::types::PAGE_SIZE;
use vmarea_process::plan::Prediction;

/// Nanoseconds to move one page out and back.
const PAGE_NS: u64 = 160;
/// Nanoseconds to copy one page out and back.
const COPIED_NS: u64 = 2_400;
/// Nanoseconds per mapping, for the mapping's share of the setup, swap and teardown of its run.
const MAPPING_NS: u64 = 10_000;
/// Nanoseconds between two pieces, for reading the mappings again: 1,000
/// pieces of a process with one thread took 7.5 s. Each run needs at least one piece.
const PIECE_NS: u64 = 7_000_000;
/// Nanoseconds for one change of a repair that moves no pages.
const CHANGE_NS: u64 = 20_000;
/// Nanoseconds to inject the agent and to remove it, without the stops.
const SESSION_NS: u64 = 20_000_000;
/// Stops in which the agent is injected and removed, and in which the cost of a stop is measured.
const SESSION_STOPS: u64 = 4;
/// Nanoseconds to stop and resume a process with one thread.
const STOP_NS: u64 = 200_000;
/// Nanoseconds to stop and resume each further thread: 3,000 threads took 50 to 100 ms.
const THREAD_NS: u64 = 25_000;
/// Longest pause that `vmarea merge` allows by default.
pub const DEFAULT_PAUSE: Duration = Duration::from_millis(5);

/// The work of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Upper bound on the number of bytes to move.
    pub bytes: u64,
    /// Number of shared pages to copy.
    pub copies: u64,
    /// Number of runs of neighbours that are merged.
    pub runs: u64,
    /// Number of mappings in these runs.
    pub members: u64,
    /// Number of places that are changed without moving pages.
    pub changed: u64,
}

impl Work {
    /// Returns the work of a predicted repair of a process with `anonymous` bytes of private
    /// memory, if that is known.
    pub fn of(prediction: &Prediction, anonymous: Option<u64>) -> Work {
        Work {
            bytes: prediction.bytes.min(anonymous.unwrap_or(u64::MAX)),
            copies: prediction.copies,
            runs: prediction.runs,
            members: prediction.members,
            changed: prediction.changed,
        }
    }
}

/// Estimated cost of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cost {
    /// Upper bound on the number of bytes to move.
    pub bytes_at_most: u64,
    /// Number of threads that each stop of the process stops.
    pub threads: u64,
    /// Estimated time of a stop without any work, in nanoseconds.
    pub stop_ns: u64,
    /// Estimated total time in nanoseconds.
    pub total_ns: u64,
    /// Estimated maximum time for which a thread of the process waits, in nanoseconds.
    pub pause_ns: u64,
}

impl Cost {
    /// Estimates the cost of a repair of a process with `threads` threads, which may be stopped for
    /// `max_pause` at once.
    pub fn of(work: &Work, threads: u64, max_pause: Duration) -> Cost {
        let stop = stop_ns(threads);
        let allowed = u64::try_from(max_pause.as_nanos()).unwrap_or(u64::MAX);
        // As in `vmarea_repair`: a piece is planned to take half of what the stop leaves.
        let at_once = match fits(threads, max_pause) {
            true => allowed.saturating_sub(stop) / 2,
            false => stop,
        };
        let moved =
            work.bytes / PAGE_SIZE * PAGE_NS + work.copies * COPIED_NS + work.members * MAPPING_NS;
        let changed = work.changed * CHANGE_NS;
        let pieces = work.runs.max(moved.div_ceil(at_once));
        // Between two stops the process runs for as long as it was stopped.
        let stopped = 2 * stop * (SESSION_STOPS + pieces + changed.div_ceil(at_once));
        Cost {
            bytes_at_most: work.bytes,
            threads,
            stop_ns: stop,
            total_ns: SESSION_NS + stopped + pieces * PIECE_NS + moved + 2 * changed,
            pause_ns: stop + moved.max(changed).min(at_once),
        }
    }
}

/// Returns the estimated time in nanoseconds to stop and resume a process with this many threads.
pub fn stop_ns(threads: u64) -> u64 {
    STOP_NS + threads.saturating_sub(1).saturating_mul(THREAD_NS)
}

/// True if stopping the process is expected to leave a part of the pause for the repair.
pub fn fits(threads: u64, max_pause: Duration) -> bool {
    u128::from(stop_ns(threads)) * 4 < max_pause.as_nanos() * 3
}

/// Returns the value of `--max-pause` that a repair of a process with this many threads needs, in
/// milliseconds; `None` if the default is enough. A busy machine may take longer than estimated.
pub fn pause_needed_ms(threads: u64) -> Option<u64> {
    let stop = stop_ns(threads);
    let is_enough = u128::from(2 * stop) <= DEFAULT_PAUSE.as_nanos();
    (!is_enough).then(|| round_up((4 * stop).div_ceil(1_000_000)))
}

/// Returns the lowest of the numbers 1, 2, 5, 10, 20, ... that is not less than `number`.
fn round_up(number: u64) -> u64 {
    let powers = std::iter::successors(Some(1u64), |power| power.checked_mul(10));
    let round = powers.flat_map(|power| [1, 2, 5].map(|digit| power.saturating_mul(digit)));
    round
        .into_iter()
        .find(|&round| round >= number)
        .unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_process::pages::UnknownPages;
    use vmarea_process::plan::predict;
    use vmarea_process::{Process, Remedy};

    #[test]
    fn the_private_memory_of_the_process_bounds_the_bytes() {
        let text = "1000-2000 rw-p 00000000 00:00 0\n2000-3000 rw-p 00000000 00:00 0\n";
        let process = Process::from_text("text".to_owned(), text.as_bytes()).unwrap();
        let remedies = [Remedy::Merge];
        let merged = predict(
            &process.policy,
            &process.mappings,
            &remedies,
            0,
            &UnknownPages,
        );
        assert_eq!(Work::of(&merged, None).bytes, 2 * PAGE_SIZE);
        let work = Work::of(&merged, Some(PAGE_SIZE));
        assert_eq!(work.bytes, PAGE_SIZE);
        let cost = Cost::of(&work, 1, DEFAULT_PAUSE);
        assert!(cost.pause_ns <= 5_000_000 && cost.total_ns > SESSION_NS);
    }

    #[test]
    fn every_thread_makes_a_stop_longer() {
        let work = Work {
            changed: 3_000,
            ..Work::default()
        };
        let few = Cost::of(&work, 1, DEFAULT_PAUSE);
        let many = Cost::of(&work, 3_000, DEFAULT_PAUSE);
        assert!(few.pause_ns < 5_000_000, "{few:?}");
        assert!(many.stop_ns > 50_000_000, "{many:?}");
        assert!(many.pause_ns > many.stop_ns, "{many:?}");
        // A repair with so many threads took 6.5 s where 38 ms were estimated.
        assert!(many.total_ns > 8 * many.stop_ns, "{many:?}");
        assert!(!fits(3_000, DEFAULT_PAUSE));
        assert_eq!((pause_needed_ms(1), pause_needed_ms(60)), (None, None));
        let needed = pause_needed_ms(3_000).unwrap();
        assert!(fits(3_000, Duration::from_millis(needed)));
        assert_eq!([1, 3, 10, 11, 301].map(round_up), [1, 5, 10, 20, 500]);
    }
}
