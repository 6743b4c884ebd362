//! Estimated cost of a repair, computed from measured rates.
//!
//! The rates were measured on one machine (Linux 6.18, 2 cores). A merge of another process stops
//! it for each piece; between the stops it also reads the mappings again. `vmarea merge --apply`
//! replaces the estimate by the speed of its first pieces. Without `smaps` the number of resident
//! pages is unknown; its upper bound is then the size of the mappings, or the private memory of the
//! whole process if that is smaller.

use serde::Serialize;
use vmarea::types::PAGE_SIZE;
use vmarea_process::plan::Prediction;

/// Nanoseconds to move one page out and back.
const PAGE_NS: u64 = 160;
/// Nanoseconds to copy one page out and back.
const COPIED_NS: u64 = 2_400;
/// Nanoseconds per mapping, for the mapping's share of the setup, swap and teardown of its run.
const MAPPING_NS: u64 = 10_000;
/// Nanoseconds per stop of the process, including the rest that it is given afterwards: 1,000 stops
/// took 7.5 s. Each run needs at least one stop.
const STOP_NS: u64 = 7_500_000;
/// Nanoseconds per call that changes one mapping.
const CALL_NS: u64 = 6_000;
/// Nanoseconds to inject the agent and to remove it.
const SESSION_NS: u64 = 20_000_000;
/// Longest pause, in nanoseconds, that `vmarea merge` allows by default.
const PIECE_NS: u64 = 5_000_000;

/// Estimated cost of a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cost {
    /// Upper bound on the number of bytes to move.
    pub bytes_at_most: u64,
    /// Estimated total time in nanoseconds.
    pub total_ns: u64,
    /// Estimated maximum time for which a thread of the process waits, in nanoseconds.
    pub pause_ns: u64,
}

impl Cost {
    /// Estimates the cost of a predicted repair of a process with `anonymous` bytes of private
    /// memory, if that is known.
    pub fn of(prediction: &Prediction, anonymous: Option<u64>) -> Cost {
        let bytes_at_most = prediction.bytes.min(anonymous.unwrap_or(u64::MAX));
        let moved_ns = bytes_at_most / PAGE_SIZE * PAGE_NS
            + prediction.copies * COPIED_NS
            + prediction.members * MAPPING_NS;
        // A piece is planned to take half of the allowed pause.
        let stops = prediction.runs.max(moved_ns / (PIECE_NS / 2));
        // The repairs that move no pages are each made during one stop.
        let changed_ns = prediction.changed * CALL_NS;
        Cost {
            bytes_at_most,
            total_ns: SESSION_NS + moved_ns + stops * STOP_NS + changed_ns,
            pause_ns: moved_ns.min(PIECE_NS).max(changed_ns),
        }
    }
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
        assert_eq!(Cost::of(&merged, None).bytes_at_most, 2 * PAGE_SIZE);
        let cost = Cost::of(&merged, Some(PAGE_SIZE));
        assert_eq!(cost.bytes_at_most, PAGE_SIZE);
        assert!(cost.pause_ns <= PIECE_NS && cost.total_ns > SESSION_NS);
    }
}
