//! What a repair would cost: estimates from measured rates, and said to be estimates.
//!
//! Measured on one machine (Linux 6.18, 2 cores): 20,000 mappings of one page became 1 in 71 ms,
//! and 8 GiB in 711 mappings in 268 ms, at 55 to 64 ns a page and direction. How many pages are in
//! memory is not known without `smaps`; then the sizes, and the private memory of the whole
//! process, bound it from above.

use super::boundary::Boundary;
use super::fix::Fix;
use super::subject::Subject;
use serde::Serialize;
use vmarea::types::PAGE_SIZE;

/// Nanoseconds for a page and direction.
const PAGE_NS: u64 = 60;
/// Nanoseconds for a mapping of a run: its part in setting up, swapping and taking down.
const MAPPING_NS: u64 = 3_400;
/// Nanoseconds for a call that changes one mapping.
const CALL_NS: u64 = 6_000;
/// The longest piece that `merge` allows itself where nothing else is asked.
const PIECE_NS: u64 = 5_000_000;

/// What one means would take away, and its price.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Saving {
    /// The means.
    pub fix: &'static str,
    /// Boundaries that go, each of them a mapping less.
    pub mappings: u64,
    /// Runs of neighbours that would become one each.
    pub runs: u64,
    /// Bytes to move, at the most.
    pub bytes_at_most: u64,
    /// All of it, nanoseconds, estimated.
    pub total_ns: u64,
    /// The longest time that a thread of the process waits, nanoseconds, estimated.
    pub pause_ns: u64,
}

/// What each means would save, the most first; those that save nothing are left out.
pub fn savings(subject: &Subject, boundaries: &[Boundary]) -> Vec<Saving> {
    let all = Fix::ALL
        .iter()
        .filter_map(|&fix| saving(subject, boundaries, fix));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|saving| std::cmp::Reverse(saving.mappings));
    all
}

fn saving(subject: &Subject, boundaries: &[Boundary], fix: Fix) -> Option<Saving> {
    let mut saving = Saving {
        fix: fix.name(),
        mappings: 0,
        runs: 0,
        bytes_at_most: 0,
        total_ns: 0,
        pause_ns: 0,
    };
    let mut members = 0;
    let mut within = false;
    for (n, boundary) in boundaries.iter().enumerate() {
        if boundary.fix != Some(fix) {
            within = false;
            continue;
        }
        saving.mappings += 1;
        if !within {
            saving.runs += 1;
            members += 1;
            saving.bytes_at_most += movable_bytes(subject, n);
        }
        within = true;
        members += 1;
        saving.bytes_at_most += movable_bytes(subject, n + 1);
    }
    if saving.mappings == 0 {
        return None;
    }
    match fix {
        Fix::Merge | Fix::Copy => {
            if let Some(all) = subject.anonymous_bytes {
                saving.bytes_at_most = saving.bytes_at_most.min(all);
            }
            let pages = saving.bytes_at_most / PAGE_SIZE;
            saving.total_ns = pages * 2 * PAGE_NS + members * MAPPING_NS;
            saving.pause_ns = saving.total_ns.min(PIECE_NS);
        }
        Fix::Guards | Fix::Flags | Fix::Empties => {
            saving.bytes_at_most = 0;
            saving.total_ns = saving.mappings * CALL_NS;
            saving.pause_ns = CALL_NS;
        }
    }
    Some(saving)
}

/// Bytes of mapping `n` that belong to the process: what is in memory, or all where that is not
/// known.
fn movable_bytes(subject: &Subject, n: usize) -> u64 {
    let seen = &subject.seen[n];
    let size = seen.mapping.end - seen.mapping.start;
    seen.resident
        .map_or(size, |resident| resident.anonymous.min(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::boundaries;

    /// `n` writable mappings of one page side by side.
    fn subject(n: u64) -> Subject {
        let line = |k: u64| {
            let start = 0x1000_0000 + k * 0x1000;
            format!("{start:x}-{:x} rw-p 00000000 00:00 0\n", start + 0x1000)
        };
        let text: String = (0..n).map(line).collect();
        Subject::of_text("text".to_owned(), text.as_bytes()).unwrap()
    }

    #[test]
    fn the_measured_case_is_met_within_a_tenth() {
        let subject = subject(20_000);
        let all = savings(&subject, &boundaries(&subject.policy, &subject.seen));
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
        let mut subject = subject(3);
        subject.anonymous_bytes = Some(PAGE_SIZE);
        let all = savings(&subject, &boundaries(&subject.policy, &subject.seen));
        assert_eq!(all[0].bytes_at_most, PAGE_SIZE);
    }
}
