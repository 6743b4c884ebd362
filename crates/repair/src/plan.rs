//! Plans a repair: which neighbours could be one mapping, and in which pieces they are joined.
//!
//! [`vmarea_process::remedy`] decides which neighbours could be one mapping if their pages were
//! moved to a fresh mapping. Such neighbours form a run. A run is cut into pieces that can be moved
//! within the allowed pause. This module does not change a process, and does not check properties
//! that are visible only while the process is stopped (pinned and shared pages, registered rings).
//!
//! # Picture
//! ```text
//! run     |aaaa|bb|cccccccccccccccc|dd|e|     parts: the existing VMAs
//! pieces  |---------|=========|-----------|   cut between parts, or at a huge page within one
//! ```

use std::ops::Range;

use vmarea_merge::Refusal;
use vmarea_merge::policy::Policy;
use vmarea_merge::types::{VmFlags, VmRange};

use super::{Kept, KeptReason};
use vmarea_process::reason::Reason;
use vmarea_process::remedy::{self, Remedy, Unmovable};
use vmarea_process::{Boundary, Mapping};

/// Bytes in a huge page.
pub(super) const HUGE: u64 = vmarea_merge::types::PMD_SIZE;
/// Size of a page in bytes. Repairs run only on machines where Linux uses 4 KiB pages.
pub(super) const PAGE: u64 = vmarea_merge::types::PAGE_SIZE;

/// A mapping that is considered for joining.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    mapping: &'a Mapping,
    /// True if the repair itself uses the mapping.
    in_use: bool,
}

/// A run of neighbours that could be one mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Run {
    /// Address range of the whole run.
    pub(super) range: VmRange,
    /// The existing mappings of the run, without gaps.
    pub(super) parts: Vec<VmRange>,
    /// Flags of the fresh mapping.
    pub(super) flags: VmFlags,
    /// True if the first part stays in place and the following parts join it.
    pub(super) anchored: bool,
    /// True if the page offsets of all parts are known to follow from their addresses.
    pub(super) in_place: bool,
}

/// The part of a run that is joined in one step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// Address range that is replaced.
    pub(super) range: VmRange,
    /// The existing mappings of the piece.
    pub(super) parts: Vec<VmRange>,
    /// Flags of the fresh mapping.
    pub(super) flags: VmFlags,
    /// Number of bytes directly before the piece that will be in the same mapping after the join;
    /// at most one huge page is counted.
    pub(super) left: u64,
    /// True if the page offsets of all parts are known to follow from their addresses.
    pub(super) in_place: bool,
}

/// Limits on the size of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    pub(super) parts: usize,
    pub(super) bytes: u64,
    /// Fixed cost of each part, as the number of bytes that would cost as much.
    pub(super) part_bytes: u64,
}

/// Finds the runs among those `mappings` that overlap `within`. Mappings that contain an address of
/// `exclude` are left unchanged. Also returns the reasons why other neighbours cannot be joined.
pub(super) fn runs(
    policy: &Policy,
    mappings: &[Mapping],
    within: &Range<u64>,
    exclude: &[u64],
) -> (Vec<Run>, Kept) {
    let mut kept = Kept::default();
    let mut runs = Vec::new();
    let mut current: Vec<Part<'_>> = Vec::new();
    for mapping in mappings {
        let range = mapping.range();
        if range.end <= within.start || range.start >= within.end {
            continue;
        }
        kept.mappings += 1;
        let part = Part {
            mapping,
            in_use: exclude.iter().any(|&addr| range.contains(addr)),
        };
        if let Some(last) = current.last() {
            if last.mapping.range().end != range.start {
                finish(&mut current, within, &mut runs);
            } else if let Some(reason) = apart(policy, last, &part) {
                kept.add(reason);
                if reason == KeptReason::Special {
                    let both = last.mapping.flags() | mapping.flags();
                    kept.special_flags |= both - remedy::CAN_BE_GIVEN;
                }
                finish(&mut current, within, &mut runs);
            }
        }
        current.push(part);
    }
    finish(&mut current, within, &mut runs);
    (runs, kept)
}

/// Returns why two adjacent mappings cannot become one; `None` if they can.
fn apart(policy: &Policy, a: &Part<'_>, b: &Part<'_>) -> Option<KeptReason> {
    let boundary = Boundary::between(policy, a.mapping, b.mapping);
    match boundary.reason {
        Reason::Rule(Refusal::AnonVma | Refusal::PageOffset) | Reason::Nothing => {
            let takes_pages = boundary.remedy.is_some_and(Remedy::takes_pages);
            let unfit = a.unfit().or_else(|| b.unfit());
            unfit.or_else(|| (!takes_pages).then_some(KeptReason::Special))
        }
        Reason::Rule(refusal) => Some(KeptReason::Differ(refusal)),
        Reason::Guard | Reason::Gap | Reason::Cut => Some(KeptReason::Differ(Refusal::Protection)),
    }
}

impl Part<'_> {
    /// Returns why the mapping's pages cannot be moved to a fresh mapping, regardless of its
    /// neighbours.
    fn unfit(&self) -> Option<KeptReason> {
        if self.in_use {
            return Some(KeptReason::InUse);
        }
        if self.mapping.flags.is_none() {
            return Some(KeptReason::Changed);
        }
        remedy::unmovable(self.mapping).map(|unmovable| match unmovable {
            Unmovable::NotAnonymous => KeptReason::NotAnonymous,
            Unmovable::Named => KeptReason::Differ(Refusal::Name),
            Unmovable::Userfaultfd => KeptReason::Userfaultfd,
            Unmovable::Locked => KeptReason::Locked,
            Unmovable::NotWritable => KeptReason::NotWritable,
            Unmovable::Policy => KeptReason::Differ(Refusal::Policy),
            Unmovable::Guard => KeptReason::Guard,
            Unmovable::Special => KeptReason::Special,
        })
    }
}

fn finish(current: &mut Vec<Part<'_>>, within: &Range<u64>, runs: &mut Vec<Run>) {
    let clip = VmRange::new(within.start & !(PAGE - 1), within.end & !(PAGE - 1));
    let parts: Vec<VmRange> = current
        .iter()
        .map(|part| part.mapping.range().clip(clip))
        .filter(|range| range.start < range.end)
        .collect();
    if let (Some(first), Some(last)) = (parts.first(), parts.last())
        && parts.len() > 1
    {
        let whole = current[0].mapping.range() == parts[0];
        runs.push(Run {
            range: VmRange::new(first.start, last.end),
            flags: current[0].mapping.flags(),
            anchored: current[0].mapping.is_anchor() && whole,
            in_place: current.iter().all(|part| part.mapping.offset_follows()),
            parts,
        });
    }
    current.clear();
}

impl Run {
    /// Returns the start of the first piece.
    pub(super) fn begin(&self) -> u64 {
        if self.anchored {
            self.parts[0].end
        } else {
            self.range.start
        }
    }

    /// Returns the start of the part that contains `addr`.
    pub(super) fn part_start(&self, addr: u64) -> u64 {
        let at = self.parts.partition_point(|part| part.end <= addr);
        self.parts.get(at).map_or(self.range.end, |part| part.start)
    }

    /// Returns the end of the part that contains `addr`.
    pub(super) fn part_end(&self, addr: u64) -> u64 {
        let at = self.parts.partition_point(|part| part.end <= addr);
        self.parts.get(at).map_or(self.range.end, |part| part.end)
    }

    /// Returns the piece that starts at `from`, within `limits`. `joined` is the start of the
    /// mapping that the piece will join.
    pub(super) fn piece(&self, from: u64, joined: u64, limits: Limits) -> Piece {
        let first = self.parts.partition_point(|part| part.end <= from);
        let mut parts = Vec::new();
        let mut end = from;
        for part in &self.parts[first..] {
            // The first part has no extra cost, so that the piece is never empty.
            let spent = end - from + parts.len() as u64 * limits.part_bytes;
            let room = limits.bytes.saturating_sub(spent) & !(PAGE - 1);
            if parts.len() >= limits.parts.max(1) || room == 0 {
                break;
            }
            let start = part.start.max(from);
            let cut = cut(start, part.end, room, end == from);
            if cut == start {
                break;
            }
            parts.push(VmRange::new(start, cut));
            end = cut;
            if cut < part.end {
                break;
            }
        }
        let before = from - joined;
        let left = if from.is_multiple_of(HUGE) && before >= HUGE {
            HUGE
        } else {
            before.min(PAGE)
        };
        Piece {
            range: VmRange::new(from, end),
            parts,
            flags: self.flags,
            left,
            in_place: self.in_place,
        }
    }
}

/// Returns the address at which to cut a part. This is the end of the part if the part fits into
/// `room`, otherwise the last huge-page boundary that fits. A part smaller than a huge page is cut
/// at a page boundary. If nothing fits, the result is `start`; but if `must` is set, the result is
/// the first huge-page boundary after `start`, or `end` if that is lower.
fn cut(start: u64, end: u64, room: u64, must: bool) -> u64 {
    if end - start <= room {
        return end;
    }
    let huge = (start + room) & !(HUGE - 1);
    let whole = end - start >= HUGE;
    if huge > start {
        huge
    } else if !whole {
        start + (room & !(PAGE - 1))
    } else if must {
        // A huge page may cross the limit: include all of it.
        ((start + HUGE) & !(HUGE - 1)).min(end)
    } else {
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_process::Process;

    fn run(parts: &[(u64, u64)]) -> Run {
        let parts: Vec<_> = parts.iter().map(|&(s, e)| VmRange::new(s, e)).collect();
        Run {
            range: VmRange::new(parts[0].start, parts.last().unwrap().end),
            parts,
            flags: VmFlags::READ | VmFlags::WRITE,
            anchored: false,
            in_place: false,
        }
    }

    /// Plans runs for neighbours with various flags, which are given in `smaps` format.
    #[test]
    fn a_run_has_the_boundaries_that_pages_in_one_mapping_take_away() {
        const FLAGS: [&str; 8] = ["dc", "dd", "hg", "lo", "zz", "mg", "um", "sl"];
        let mut state = 1u64;
        let mut below = |most: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % most
        };
        let mut text = String::new();
        let mut at = 0x1000_0000;
        for _ in 0..5_000 {
            at += if below(20) == 0 { PAGE } else { 0 };
            let end = at + PAGE * (1 + below(3));
            let perms = ["rw-p", "rw-p", "rw-p", "r--p", "---p", "rw-s"][below(6) as usize];
            let name = ["", "", "", "[anon:a]", "[heap]"][below(5) as usize];
            let flag = FLAGS.get(below(40) as usize).unwrap_or(&"ac");
            let letters = match perms {
                "r--p" => "rd mr mw me",
                "---p" => "mr mw me",
                "rw-s" => "rd wr sh mr mw me ms",
                _ => "rd wr mr mw me",
            };
            text += &format!(
                "{at:x}-{end:x} {perms} 00000000 00:00 0 {name}\nProtectionKey: {}\n\
                 VmFlags: {letters} {flag}\n",
                below(30) / 29
            );
            at = end;
        }
        let process = Process::from_text("text".to_owned(), text.as_bytes()).unwrap();
        let all = 0..u64::MAX;
        let (runs, kept) = runs(&process.policy, &process.mappings, &all, &[]);
        let planned: usize = runs.iter().map(|run| run.parts.len() - 1).sum();
        let takes_pages = |b: &Boundary| b.remedy.is_some_and(Remedy::takes_pages);
        let boundaries = process.boundaries();
        let counted = boundaries.iter().filter(|b| takes_pages(b)).count();
        assert_eq!(planned, counted);
        assert!(planned > 300, "{planned}");
        let apart: u64 = kept.by_reason.values().sum();
        let gaps = boundaries
            .iter()
            .filter(|b| b.reason == Reason::Gap)
            .count();
        assert_eq!(apart as usize + gaps + planned, boundaries.len());
    }

    #[test]
    fn pieces_cover_a_run_without_gaps() {
        let run = run(&[
            (PAGE, 2 * PAGE),
            (2 * PAGE, 3 * HUGE + PAGE),
            (3 * HUGE + PAGE, 3 * HUGE + 5 * PAGE),
        ]);
        for limits in [
            Limits {
                parts: 1,
                bytes: PAGE,
                part_bytes: 0,
            },
            Limits {
                parts: 2,
                bytes: HUGE,
                part_bytes: HUGE,
            },
            Limits {
                parts: 100,
                bytes: 64 * HUGE,
                part_bytes: 25 * PAGE + 7,
            },
        ] {
            let mut at = run.begin();
            while at < run.range.end {
                let piece = run.piece(at, run.range.start, limits);
                assert_eq!(piece.range.start, at);
                assert!(piece.range.end > at, "{limits:?}");
                assert_eq!(piece.parts[0].start, at);
                assert_eq!(piece.parts.last().unwrap().end, piece.range.end);
                assert!(piece.parts.len() <= limits.parts);
                at = piece.range.end;
            }
            assert_eq!(at, run.range.end);
        }
    }

    #[test]
    fn a_huge_page_is_never_cut() {
        let run = run(&[(0, 8 * HUGE), (8 * HUGE, 9 * HUGE)]);
        let limits = Limits {
            parts: 10,
            bytes: HUGE + 7 * PAGE,
            part_bytes: 3 * PAGE,
        };
        let mut at = 0;
        while at < run.range.end {
            let piece = run.piece(at, 0, limits);
            assert!(piece.range.end.is_multiple_of(HUGE), "{piece:?}");
            assert!(piece.left == 0 || piece.left == HUGE);
            at = piece.range.end;
        }
    }
}
