//! The part of a collected timeline that a page can show.

use super::{Band, Mark, Step, Timeline, thin};
use std::cmp::Reverse;

/// Number of address spaces whose mappings are drawn.
const MOST_SPACES: usize = 40;

/// Keeps what a page can show: the mappings of the largest address spaces, and what refers to
/// them.
pub fn drawn(mut timeline: Timeline) -> Timeline {
    choose_spaces(&mut timeline);
    let Timeline {
        spaces,
        bands,
        marks,
        steps,
        left_out,
        ..
    } = &mut timeline;
    bands.retain(|band| spaces[band.space as usize].drawn);
    let (gone, longest) = thin::bands(bands, thin::MOST_BANDS);
    left_out.bands += gone;
    left_out.steps = left_out.steps.max(longest);
    bands.sort_unstable_by_key(|band| (band.space, band.start, band.from));
    marks.retain(|mark| spaces[mark.space as usize].drawn);
    left_out.marks += thin::marks(marks, thin::MOST_MARKS);
    marks.sort_by_key(|mark| mark.step);
    let peaks = spaces.iter().filter(|space| space.drawn);
    let peaks: Vec<u32> = peaks.map(|space| space.peak_step).collect();
    used_steps(steps, bands, marks, peaks.into_iter());
    timeline
}

/// Chooses the address spaces with the most mappings, as long as their bands fit.
fn choose_spaces(timeline: &mut Timeline) {
    let mut bands = vec![0usize; timeline.spaces.len()];
    for band in &timeline.bands {
        bands[band.space as usize] += 1;
    }
    let mut order: Vec<usize> = (0..timeline.spaces.len()).collect();
    order.sort_by_key(|n| (Reverse(timeline.spaces[*n].peak), *n));
    let mut room = thin::MOST_BANDS;
    for (place, n) in order.into_iter().enumerate() {
        let fits = place == 0 || (place < MOST_SPACES && bands[n] <= room);
        let space = &mut timeline.spaces[n];
        if fits && bands[n] > 0 {
            room = room.saturating_sub(bands[n]);
            space.drawn = true;
        } else {
            space.counts = Vec::new();
            timeline.left_out.spaces += u64::from(bands[n] > 0);
        }
    }
}

/// Keeps the steps at which a band begins or ends, a mark stands, or that are in `others`.
pub fn used_steps(
    steps: &mut Vec<Step>,
    bands: &[Band],
    marks: &[Mark],
    others: impl Iterator<Item = u32>,
) {
    let of_bands = bands.iter().flat_map(|band| [band.from, band.to]);
    let of_marks = marks.iter().map(|mark| mark.step);
    let mut used: Vec<u32> = of_bands.chain(of_marks).chain(others).collect();
    used.sort_unstable();
    used.dedup();
    let (first, last) = (steps.first().copied(), steps.last().copied());
    let end = |step: &Step| Some(step.step) == first.map(|s| s.step) || Some(*step) == last;
    steps.retain(|step| end(step) || used.binary_search(&step.step).is_ok());
}
