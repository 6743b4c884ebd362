//! The part of a collected timeline that a page can show.

use super::tables::{Anon, Interner, Tables};
use super::{Band, Mark, NONE, Space, Step, Timeline, thin};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

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
    let (gone, longest) = thin::bands(bands, thin::MOST_BANDS, |band| at_peak(spaces, band));
    left_out.bands += gone;
    left_out.steps = left_out.steps.max(longest);
    bands.sort_unstable_by_key(|band| (band.space, band.start, band.from));
    marks.retain(|mark| spaces[mark.space as usize].drawn);
    left_out.marks += thin::marks(marks, thin::MOST_MARKS);
    marks.sort_by_key(|mark| mark.step);
    let peaks = spaces.iter().filter(|space| space.drawn);
    let peaks: Vec<u32> = peaks.map(|space| space.peak_step).collect();
    used_steps(steps, bands, marks, peaks.into_iter());
    used_anons(&mut timeline);
    timeline
}

/// True if a band exists when its address space has the most mappings.
fn at_peak(spaces: &[Space], band: &Band) -> bool {
    let peak = spaces[band.space as usize].peak_step;
    (band.from..band.to).contains(&peak)
}

/// Keeps the anon_vmas and chains to which bands refer, with their ancestors, in the same order.
fn used_anons(timeline: &mut Timeline) {
    let Timeline { bands, tables, .. } = timeline;
    let Tables { anons, chains, .. } = tables;
    let mut used: BTreeSet<u32> = bands.iter().map(|band| band.anon).collect();
    let links = bands.iter().filter_map(|band| chains.get(band.chain));
    used.extend(links.flatten());
    used.remove(&NONE);
    for mut anon in used.clone() {
        // The ancestors; a root is its own parent.
        used.insert(anons[anon as usize].root);
        while used.insert(anons[anon as usize].parent) {
            anon = anons[anon as usize].parent;
        }
    }
    let numbers: HashMap<u32, u32> = used.iter().copied().zip(0..).collect();
    let new = |anon: u32| numbers.get(&anon).copied().unwrap_or(NONE);
    *anons = used
        .iter()
        .map(|old| anons[*old as usize])
        .map(|anon| Anon {
            parent: new(anon.parent),
            root: new(anon.root),
        })
        .collect();
    let mut kept: Interner<Vec<u32>> = Interner::default();
    for band in bands {
        band.chain = chains.get(band.chain).map_or(NONE, |links| {
            kept.number(links.iter().map(|link| new(*link)).collect())
        });
        band.anon = new(band.anon);
    }
    *chains = kept;
}

/// Chooses the address spaces with the most mappings, as long as their bands fit.
fn choose_spaces(timeline: &mut Timeline) {
    let mut bands = vec![0usize; timeline.spaces.len()];
    for band in &timeline.bands {
        bands[band.space as usize] += 1;
    }
    let mut order: Vec<usize> = (0..timeline.spaces.len()).collect();
    order.sort_unstable_by_key(|n| (Reverse(timeline.spaces[*n].peak), *n));
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
