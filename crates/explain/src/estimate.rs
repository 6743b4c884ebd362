//! Estimated cost of a repair, computed from measured rates.
//!
//! The rates were measured on one machine (Linux 6.18, 2 cores): merging 20,000 mappings of one
//! page into 1 took 71 ms, and merging 8 GiB in 711 mappings took 268 ms. Each page is moved out
//! and back, and each of the two moves took 55 to 64 ns. Without `smaps` the number of resident
//! pages is unknown; its upper bound is then the size of the mappings, or the private memory of the
//! whole process if that is smaller.

use serde::Serialize;
use vmarea::types::PAGE_SIZE;
use vmarea_process::{Boundary, Process, Remedy};

/// Nanoseconds to move one page in one direction.
const PAGE_NS: u64 = 60;
/// Nanoseconds per mapping, for the mapping's share of the setup, swap and teardown of its run.
const MAPPING_NS: u64 = 3_400;
/// Nanoseconds per call that changes one mapping.
const CALL_NS: u64 = 6_000;
/// Longest pause, in nanoseconds, that `vmarea merge` allows by default.
const PIECE_NS: u64 = 5_000_000;

/// Mappings that one remedy would save, and the estimated cost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Saving {
    /// Name of the remedy.
    pub fix: &'static str,
    /// Number of boundaries that the remedy removes; each removal saves one mapping.
    pub mappings: u64,
    /// Number of runs of neighbouring mappings, each of which becomes one mapping.
    pub runs: u64,
    /// Upper bound on the number of bytes to move.
    pub bytes_at_most: u64,
    /// Estimated total time in nanoseconds.
    pub total_ns: u64,
    /// Estimated maximum time for which a thread of the process waits, in nanoseconds.
    pub pause_ns: u64,
}

/// Returns the savings of each remedy, largest first; remedies without savings are omitted.
pub fn savings(process: &Process, boundaries: &[Boundary]) -> Vec<Saving> {
    let all = Remedy::ALL
        .iter()
        .filter_map(|&remedy| saving(process, boundaries, remedy));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|saving| std::cmp::Reverse(saving.mappings));
    all
}

fn saving(process: &Process, boundaries: &[Boundary], remedy: Remedy) -> Option<Saving> {
    let mut saving = Saving {
        fix: remedy.name(),
        mappings: 0,
        runs: 0,
        bytes_at_most: 0,
        total_ns: 0,
        pause_ns: 0,
    };
    let mut members = 0;
    let mut within = false;
    for (n, boundary) in boundaries.iter().enumerate() {
        if boundary.remedy != Some(remedy) {
            within = false;
            continue;
        }
        saving.mappings += 1;
        if !within {
            saving.runs += 1;
            members += 1;
            saving.bytes_at_most += movable_bytes(process, n);
        }
        within = true;
        members += 1;
        saving.bytes_at_most += movable_bytes(process, n + 1);
    }
    if saving.mappings == 0 {
        return None;
    }
    match remedy {
        Remedy::Merge | Remedy::Copy => {
            if let Some(all) = process.anonymous_bytes {
                saving.bytes_at_most = saving.bytes_at_most.min(all);
            }
            let pages = saving.bytes_at_most / PAGE_SIZE;
            saving.total_ns = pages * 2 * PAGE_NS + members * MAPPING_NS;
            saving.pause_ns = saving.total_ns.min(PIECE_NS);
        }
        Remedy::Guards | Remedy::Flags | Remedy::Empties => {
            saving.bytes_at_most = 0;
            saving.total_ns = saving.mappings * CALL_NS;
            saving.pause_ns = CALL_NS;
        }
    }
    Some(saving)
}

/// Returns the resident private bytes in mapping `n`; the mapping's size if they are unknown.
fn movable_bytes(process: &Process, n: usize) -> u64 {
    let mapping = &process.mappings[n];
    let size = mapping.range().len_bytes();
    mapping
        .resident
        .map_or(size, |resident| resident.anonymous.min(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_process::boundaries;

    /// Creates `n` adjacent writable one-page mappings.
    fn process(n: u64) -> Process {
        let line = |k: u64| {
            let start = 0x1000_0000 + k * 0x1000;
            format!("{start:x}-{:x} rw-p 00000000 00:00 0\n", start + 0x1000)
        };
        let text: String = (0..n).map(line).collect();
        Process::from_text("text".to_owned(), text.as_bytes()).unwrap()
    }

    #[test]
    fn the_measured_case_is_met_within_a_tenth() {
        let process = process(20_000);
        let all = savings(&process, &boundaries(&process.policy, &process.mappings));
        assert_eq!(all.len(), 1);
        let merge = &all[0];
        assert_eq!(
            (merge.fix, merge.mappings, merge.runs),
            ("merge", 19_999, 1)
        );
        assert_eq!(merge.bytes_at_most, 20_000 * PAGE_SIZE);
        assert!(
            (64_000_000..78_000_000).contains(&merge.total_ns),
            "{merge:?}"
        );
        assert_eq!(merge.pause_ns, PIECE_NS);
    }

    #[test]
    fn the_private_memory_of_the_process_bounds_it() {
        let mut process = process(3);
        process.anonymous_bytes = Some(PAGE_SIZE);
        let all = savings(&process, &boundaries(&process.policy, &process.mappings));
        assert_eq!(all[0].bytes_at_most, PAGE_SIZE);
    }
}
