//! Finds those obstacles to a repair of another process that are visible in advance.
//!
//! `/proc/PID/fdinfo` lists the buffers that are registered with an `io_uring`; such buffers are
//! pinned. The pagemap shows which pages are shared, but only at the moment of reading: a survey
//! counts these pages, and a merge checks each piece again. The kernel does not report other
//! obstacles, such as pages that are pinned for a device, or pages that were once shared with a
//! child that has ended.

use std::fs::{self, File};
use std::path::Path;

use vmarea_merge::types::VmRange;

use super::pages::{Filled, Pages, reads_as_zeros};
use crate::plan::{PAGE, Run};
use crate::{Kept, KeptReason};

/// Returns the memory that a process has registered with its `io_uring`s.
pub(super) fn registered(pid: i32) -> Vec<VmRange> {
    let files = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let mut ranges = Vec::new();
    for file in files.flatten() {
        let is_ring =
            fs::read_link(file.path()).is_ok_and(|link| link == Path::new("anon_inode:[io_uring]"));
        if is_ring {
            let info = format!("/proc/{pid}/fdinfo/{}", file.file_name().display());
            ranges.extend(buffers(&fs::read_to_string(info).unwrap_or_default()));
        }
    }
    ranges
}

/// Parses the list of registered buffers in the `fdinfo` file of an `io_uring`. The list consists
/// of the line `UserBufs: N` and a line `K: 0xADDRESS/BYTES` for each buffer.
fn buffers(info: &str) -> Vec<VmRange> {
    let lines = info
        .lines()
        .skip_while(|line| !line.starts_with("UserBufs:"));
    let buffer = |line: &str| {
        let (number, place) = line.trim().split_once(": 0x")?;
        number.parse::<u32>().ok()?;
        let (start, len) = place.split_once('/')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = start.checked_add(len.trim().parse().ok()?)?;
        Some(VmRange::new(
            start & !(PAGE - 1),
            end.checked_next_multiple_of(PAGE)?,
        ))
    };
    // Other lists follow the list of buffers.
    lines.skip(1).map_while(buffer).collect()
}

/// True if a part overlaps one of `ranges`.
pub(super) fn touches(part: VmRange, ranges: &[VmRange]) -> bool {
    ranges
        .iter()
        .any(|range| range.start < part.end && part.start < range.end)
}

/// Counts the shared pages of a part, up to `most`. If the pagemap cannot be read, the result is 0.
pub(super) fn shared(pages: &Pages, memory: &File, part: VmRange, most: u64) -> u64 {
    let mut count = 0;
    let read = pages.each(part, |page, filled| {
        // The zero page is shared by all processes, and can nevertheless be moved.
        count += u64::from(filled == Filled::Shared && !reads_as_zeros(memory, page));
        count < most
    });
    read.map_or(0, |()| count)
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
                parts,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_merge::types::VmFlags;

    #[test]
    fn registered_buffers_are_found_and_other_lists_are_not() {
        let info = "SqThread:\t-1\nUserFiles:\t1\n    0: x\nUserBufs:\t2\n    0: 0x7f0000001010/16\n    \
                    1: 0x7f0000004000/8192\nPollList:\n  op=6, task_works=0\n    9: 0x1000/4096\n";
        let page =
            |start: u64, end: u64| VmRange::new(0x7f00_0000_0000 + start, 0x7f00_0000_0000 + end);
        assert_eq!(buffers(info), [page(0x1000, 0x2000), page(0x4000, 0x6000)]);
        assert_eq!(
            buffers("UserBufs:\t1\n    0: 0xffffffffffffffff/4096\n"),
            []
        );
        assert_eq!(buffers(""), []);
    }

    #[test]
    fn what_stays_apart_cuts_a_run_and_is_counted() {
        let part = |n: u64| VmRange::new(n * PAGE, (n + 1) * PAGE);
        let run = |anchored| Run {
            range: VmRange::new(0, 7 * PAGE),
            parts: (0..7).map(part).collect(),
            flags: VmFlags::READ,
            anchored,
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
