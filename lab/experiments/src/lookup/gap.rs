//! Search of an address window for the only gap that is large enough.

use super::fill::{Fill, PAGE, area};
use super::{batch, fastest};
use crate::Ratio;
use crate::ratio::median;
use serde::Serialize;
use std::hint::black_box;
use vmarea::types::VmRange;

/// Number of different positions of the gap.
pub(super) const HOLES: usize = 21;
/// Number of VMAs in the small address space of the gap search.
const FEW: u64 = 100;
/// Number of VMAs in the large address space of the gap search.
const MANY: u64 = 65_000;

/// Results of the top-down gap search in an address window with only one sufficient gap.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gaps {
    /// VMA count, and search times in the range tree, `memory_set` and a `BTreeMap`, in
    /// nanoseconds.
    pub sizes: Vec<(u64, [f64; 3])>,
    /// Search time in the range tree with 65,000 VMAs, relative to the search time with 100 VMAs.
    pub ratio: Option<Ratio>,
}

/// Returns the time of a search for the only sufficient gap in each structure, in nanoseconds.
pub(super) fn gap(fill: &Fill, hole: usize) -> Option<[f64; 3]> {
    let ranges = &fill.ranges;
    let middle = ranges[(hole * 7919 + 5) % ranges.len()];
    let below = fill.tree.prev(middle.start)?;
    let above = fill.tree.find(middle.end)?;
    let len = above.end - below.start;
    let high = ranges.iter().map(|range| range.end).max()?;
    let gone = [below, fill.tree.find(middle.start)?, above];
    for entry in gone {
        fill.tree.write().remove(entry.start);
        let size = (entry.end - entry.start) as usize;
        let start = entry.start as usize;
        black_box(fill.set.borrow_mut().unmap(start, size, &mut ()).is_ok());
        fill.map.borrow_mut().remove(&entry.start);
    }
    let time = |search: &mut dyn FnMut()| {
        let mut many = |times: usize| (0..times).for_each(|_| search());
        let times = batch(&mut many);
        fastest(&mut many, times) * 1e9 / times as f64
    };
    let set = fill.set.borrow();
    let map = fill.map.borrow();
    let limit = (1 << 20..high as usize).try_into().ok()?;
    let times = [
        time(&mut || {
            black_box(fill.tree.gap_highest(1 << 20, high, black_box(len)));
        }),
        time(&mut || {
            black_box(set.find_free_area(1 << 20, black_box(len as usize), limit, PAGE as usize));
        }),
        time(&mut || {
            let mut top = high;
            let free = map.iter().rev().find(|(start, (end, _))| {
                let room = top.saturating_sub(*end) >= black_box(len);
                top = **start;
                room
            });
            black_box(free);
        }),
    ];
    drop((set, map));
    for entry in gone {
        fill.tree.write().insert(entry);
        let range = VmRange::new(entry.start, entry.end);
        black_box(
            fill.set
                .borrow_mut()
                .map(area(range), &mut (), false)
                .is_ok(),
        );
        let value = (entry.end, entry.value);
        fill.map.borrow_mut().insert(entry.start, value);
    }
    Some(times)
}

/// Measures the gap search in both address spaces, with each position of the gap.
pub(super) fn gaps() -> Gaps {
    let fills = [FEW, MANY].map(Fill::new);
    let mut times: [Vec<[f64; 3]>; 2] = [Vec::new(), Vec::new()];
    for hole in 0..HOLES {
        // A position whose range has no neighbour on one side in one of the two address spaces is
        // omitted for both.
        if let [Some(few), Some(many)] = [gap(&fills[0], hole), gap(&fills[1], hole)] {
            times[0].push(few);
            times[1].push(many);
        }
    }
    let column =
        |times: &[[f64; 3]], who: usize| -> Vec<f64> { times.iter().map(|all| all[who]).collect() };
    let middle = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        median(&times)
    };
    let ratio = Ratio::of_pairs(&column(&times[1], 0), &column(&times[0], 0));
    let size = |(vmas, times): (u64, &Vec<[f64; 3]>)| {
        (vmas, [0, 1, 2].map(|who| middle(column(times, who))))
    };
    Gaps {
        sizes: [FEW, MANY].into_iter().zip(&times).map(size).collect(),
        ratio,
    }
}
