//! Takes those mappings out of the runs of a plan that have obstacles to a repair.
//!
//! [`vmarea_process::pages`] shows the obstacles that are visible in advance, but only at the moment
//! of reading: a survey counts them, and a merge checks each piece again. The kernel does not report
//! other obstacles, such as pages that are pinned for a device, or pages that were once shared with
//! a child that has ended.

use vmarea_merge::types::VmRange;

use crate::plan::Run;
use crate::{Kept, KeptReason};

/// True if a part overlaps one of `ranges`.
pub(super) fn touches(part: VmRange, ranges: &[VmRange]) -> bool {
    ranges
        .iter()
        .any(|range| range.start < part.end && part.start < range.end)
}

/// Removes the parts for which `obstacle` returns a reason, and splits the runs there. Counts in
/// `kept` each boundary that cannot be joined.
pub(super) fn without(
    runs: Vec<Run>,
    kept: &mut Kept,
    mut obstacle: impl FnMut(VmRange) -> Option<KeptReason>,
) -> Vec<Run> {
    let mut left = Vec::new();
    for run in runs {
        let mut parts: Vec<VmRange> = Vec::new();
        let mut last = None;
        for (n, &part) in run.parts.iter().enumerate() {
            // The first part of an anchored run is not moved; the following parts join it.
            let stays = run.anchored && n == 0;
            let reason = if stays { None } else { obstacle(part) };
            if let (Some(reason), true) = (reason.or(last), n > 0) {
                kept.add(reason);
            }
            if reason.or(last).is_some() {
                finish(&run, &mut parts, &mut left);
            }
            if reason.is_none() {
                parts.push(part);
            }
            last = reason;
        }
        finish(&run, &mut parts, &mut left);
    }
    left
}

/// Adds the collected parts as a run. A single part is a run as well, because its replacement may
/// merge with a neighbour that is not replaced.
fn finish(run: &Run, parts: &mut Vec<VmRange>, left: &mut Vec<Run>) {
    let parts = std::mem::take(parts);
    if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
        let anchored = run.anchored && first.start == run.range.start;
        if !(anchored && parts.len() == 1) {
            left.push(Run {
                range: VmRange::new(first.start, last.end),
                flags: run.flags,
                anchored,
                in_place: run.in_place,
                parts,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PAGE;
    use vmarea_merge::types::VmFlags;

    #[test]
    fn what_stays_apart_cuts_a_run_and_is_counted() {
        let part = |n: u64| VmRange::new(n * PAGE, (n + 1) * PAGE);
        let run = |anchored| Run {
            range: VmRange::new(0, 7 * PAGE),
            parts: (0..7).map(part).collect(),
            flags: VmFlags::READ,
            anchored,
            in_place: false,
        };
        let mut kept = Kept::default();
        let stays = |of: VmRange| {
            [0, 3]
                .contains(&(of.start / PAGE))
                .then_some(KeptReason::Pinned)
        };
        let left = without(vec![run(false)], &mut kept, stays);
        let parts: Vec<_> = left.iter().map(|run| run.parts.len()).collect();
        assert_eq!(
            (parts, kept.by_reason[&KeptReason::Pinned]),
            (vec![2, 3], 3)
        );
        let all_but = |of: VmRange| (of.start / PAGE != 5).then_some(KeptReason::Shared);
        let left = without(vec![run(true)], &mut kept, all_but);
        let ranges: Vec<_> = left.iter().map(|run| run.range).collect();
        assert_eq!(
            (ranges, kept.by_reason[&KeptReason::Shared]),
            (vec![part(5)], 6)
        );
        // The anchor is not moved, so an obstacle in it has no effect.
        let left = without(vec![run(true)], &mut kept, stays);
        let parts: Vec<_> = left
            .iter()
            .map(|run| (run.parts.len(), run.anchored))
            .collect();
        assert_eq!(parts, [(3, true), (3, false)]);
        assert_eq!(kept.by_reason[&KeptReason::Pinned], 5);
    }
}
