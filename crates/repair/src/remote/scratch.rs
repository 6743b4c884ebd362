//! The scratch area: the memory that a repair has in the process from the first stop to the last.
//!
//! It holds the agent, a place for each parked thread, and the table that the agent executes. It is
//! the only memory that a repair maps. The ranges of a piece (temporary, fresh, ready) use free
//! addresses above it, and only while all threads are stopped.
//!
//! # Picture
//! ```text
//! | agent (one page) | places for parked threads | table |  … free …  | temporary | fresh | ready |
//!   read, execute                                  read, write          apart, and each aligned in
//!                                                                       huge pages like the piece
//! ```

use vmarea_linux_sys::agent::{self, STUB_BYTES};
use vmarea_merge::types::VmRange;
use vmarea_process::maps::{MapsEntry, Query};

use crate::plan::{HUGE, PAGE};

/// Size of the table, in bytes. A piece has at most [`MOST_PARTS`] parts and [`MOST_EXTENTS`]
/// extents.
const TABLE_BYTES: u64 = 1 << 20;
/// Maximum number of parts of a piece.
pub(super) const MOST_PARTS: usize = 1_000;
/// Maximum number of extents of a piece.
pub(super) const MOST_EXTENTS: usize = 16 << 10;
/// Distance of the scratch area from the free addresses that pieces use.
const APART: u64 = 64 << 20;
/// Size of the largest piece, in bytes.
pub(super) const MOST_BYTES: u64 = 256 << 20;
/// Lowest address that is considered free.
const LOWEST: u64 = 1 << 20;
/// End of the addresses that a program without special requests uses.
const HIGHEST: u64 = 1 << 47;

/// Where the scratch area is, and which addresses pieces may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scratch {
    /// The agent and the places for parked threads.
    pub(super) code: VmRange,
    /// The table of the agent.
    pub(super) table: VmRange,
    /// Addresses for the ranges of a piece.
    pub(super) free: VmRange,
}

impl Scratch {
    /// Chooses addresses for a process with these mappings and about this number of threads. They
    /// lie in the middle of the largest gap, far from where the kernel would place a mapping. `None`
    /// if no gap is large enough.
    pub(super) fn choose(mappings: &[MapsEntry], threads: usize) -> Option<Scratch> {
        let places = (2 * threads + 64) as u64 * STUB_BYTES;
        let code = PAGE + places.next_multiple_of(PAGE);
        let gap = largest_gap(mappings);
        let least = code + TABLE_BYTES + APART + 12 * HUGE;
        if gap.len_bytes() < 2 * least {
            return None;
        }
        let start = (gap.start + gap.len_bytes() / 2) & !(HUGE - 1);
        let table = start + code;
        let scratch = Scratch {
            code: VmRange::new(start, table),
            table: VmRange::new(table, table + TABLE_BYTES),
            free: VmRange::new(start, start),
        };
        Some(scratch.with_free(gap))
    }

    /// Uses the upper part of a gap for pieces.
    fn with_free(mut self, gap: VmRange) -> Scratch {
        let above = if gap.contains(self.table.end) {
            self.table.end
        } else {
            gap.start
        };
        let start = (above + APART).next_multiple_of(HUGE).min(gap.end);
        let end = gap.end.saturating_sub(APART).max(start);
        self.free = VmRange::new(start, end.min(start + 3 * (MOST_BYTES + 2 * HUGE)));
        self
    }

    /// Chooses other free addresses, because the program has mapped something there.
    pub(super) fn choose_free(&mut self, mappings: &[MapsEntry]) {
        *self = self.with_free(largest_gap(mappings));
    }

    /// True if nothing is mapped at the addresses for pieces.
    pub(super) fn is_free(&self, query: Option<&mut Query>, mappings: &[MapsEntry]) -> bool {
        let next = match query {
            Some(query) => query.covering_or_next(self.free.start).ok().flatten(),
            None => mappings.iter().find(|m| m.end > self.free.start).cloned(),
        };
        next.is_none_or(|mapping| mapping.start >= self.free.end)
    }

    /// Returns the whole range that is mapped.
    pub(super) fn range(&self) -> VmRange {
        VmRange::new(self.code.start, self.table.end)
    }

    /// Returns the number of threads for which there are places.
    pub(super) fn places(&self) -> usize {
        ((self.code.len_bytes() - PAGE) / STUB_BYTES) as usize
    }

    /// Returns the address of the place for the thread with this index.
    pub(super) fn place(&self, thread: usize) -> u64 {
        self.code.start + PAGE + thread as u64 * STUB_BYTES
    }

    /// Returns the size of the largest piece.
    pub(super) fn piece_bytes(&self) -> u64 {
        (self.free.len_bytes() / 3).saturating_sub(2 * HUGE) & !(HUGE - 1)
    }

    /// Returns the range that holds the pages of `piece` while they are out.
    pub(super) fn temporary(&self, piece: VmRange) -> VmRange {
        let start = self.free.start + piece.start % HUGE;
        VmRange::new(start, start + piece.len_bytes())
    }

    /// Returns the range in which the mapping that replaces `piece` is made.
    pub(super) fn fresh(&self, piece: VmRange) -> VmRange {
        apart(self.temporary(piece), piece)
    }

    /// Returns the range to which that mapping is moved before it is moved over `piece`.
    pub(super) fn ready(&self, piece: VmRange) -> VmRange {
        apart(self.fresh(piece), piece)
    }

    /// True if `mappings` contain the code of a repair at `range`, as recorded in a mark.
    pub(super) fn is_mapped(range: VmRange, mappings: &[MapsEntry]) -> bool {
        let at = mappings.partition_point(|m| m.end <= range.start);
        let is_plain = |m: &MapsEntry| m.ino == 0 && !m.perms.shared && m.end <= range.end;
        mappings.get(at).is_some_and(|m| {
            is_plain(m) && m.start == range.start && m.perms.exec && !m.perms.write
        })
    }
}

const _: () = assert!(
    256 * 128
        + MOST_PARTS as u64 * agent::EXTENT_BYTES
        + MOST_EXTENTS as u64 * agent::EXTENT_BYTES
        + 1_000 * 128
        < TABLE_BYTES
);

/// Returns the next range for `piece` above `below`. At least a page separates the two; otherwise their
/// mappings could merge.
fn apart(below: VmRange, piece: VmRange) -> VmRange {
    let start = (below.end + PAGE).next_multiple_of(HUGE) + piece.start % HUGE;
    VmRange::new(start, start + piece.len_bytes())
}

fn largest_gap(mappings: &[MapsEntry]) -> VmRange {
    let mut best = VmRange::new(LOWEST, LOWEST);
    let mut at = LOWEST;
    let ends = mappings.iter().map(|m| (m.start, m.end));
    for (start, end) in ends.chain([(HIGHEST, HIGHEST)]) {
        let start = start.min(HIGHEST);
        if start > at && start - at > best.len_bytes() {
            best = VmRange::new(at, start);
        }
        at = at.max(end);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_process::maps;

    #[test]
    fn ranges_of_a_piece_lie_in_a_gap_and_apart() {
        let mappings = maps::read(std::process::id().cast_signed()).expect("mappings");
        let scratch = Scratch::choose(&mappings, 100).expect("room");
        assert!(scratch.is_free(None, &mappings));
        assert!(scratch.places() >= 200);
        let overlaps = |range: VmRange| {
            let touches = |m: &MapsEntry| m.start < range.end && range.start < m.end;
            mappings.iter().any(touches)
        };
        assert!(!overlaps(scratch.range()));
        let piece = VmRange::new(7 * PAGE, 7 * PAGE + scratch.piece_bytes());
        let (temporary, fresh) = (scratch.temporary(piece), scratch.fresh(piece));
        let ready = scratch.ready(piece);
        for range in [temporary, fresh, ready] {
            assert!(range.start >= scratch.free.start && range.end <= scratch.free.end);
            assert_eq!(range.start % HUGE, piece.start % HUGE);
            assert!(!overlaps(range));
        }
        assert!(temporary.end < fresh.start && fresh.end < ready.start);
    }
}
