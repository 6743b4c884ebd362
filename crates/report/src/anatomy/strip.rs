//! A strip that shows, in the order of addresses, why neighbours are apart.
//!
//! Each boundary between two mappings takes the same width, whatever the sizes of the mappings: the
//! strip is about the number of mappings, not about memory. If there are more boundaries than fit, a
//! column stands for several of them and is divided in proportion to their reasons.
//!
//! # Picture
//! ```text
//! ▌▌▌▌▌████▌▌▌▌    a column is divided by reason, the first reason of the legend at the bottom
//! ▁▁▁▁▁            a line below: a repair can remove at least one of these boundaries
//! ```

use crate::apart::{Apart, REMOVABLE, color};
use crate::svg::{Rect, Svg};
use vmarea_process::Boundary;

/// Width of a column that stands for several boundaries.
const COLUMN: f64 = 2.0;
/// Maximum width of a boundary.
const WIDEST: f64 = 24.0;
/// Height of the line below the places that can be merged.
const LINE: f64 = 3.0;

/// Draws `boundaries` in `at`; reasons are stacked in the order of `legend`.
pub(super) fn draw(svg: &mut Svg, at: Rect, boundaries: &[Boundary], legend: &[Apart]) {
    let columns = boundaries.len().min((at.width / COLUMN) as usize);
    if columns == 0 {
        return;
    }
    let width = (at.width / columns as f64).min(WIDEST);
    let mut runs: Vec<Run> = Vec::new();
    for column in 0..columns {
        let edge = |n: usize| n * boundaries.len() / columns;
        let run = Run::of(&boundaries[edge(column)..edge(column + 1)], legend);
        match runs.last_mut() {
            Some(last) if last.looks_like(&run) => last.columns += 1,
            _ => runs.push(run),
        }
    }
    let mut x = at.x;
    for run in runs {
        let wide = width * run.columns as f64;
        run.draw(
            svg,
            Rect {
                x,
                width: wide,
                ..at
            },
        );
        x += wide;
    }
}

/// Adjacent columns that look the same.
struct Run {
    columns: usize,
    /// Share of each reason in the order of the legend, with its colour.
    shares: Vec<(&'static str, f64)>,
    is_removable: bool,
}

impl Run {
    fn of(boundaries: &[Boundary], legend: &[Apart]) -> Run {
        let all = boundaries.len().max(1) as f64;
        let share = |of: &Apart| {
            let same = boundaries.iter().filter(|b| color(b.reason) == of.color);
            (of.color, same.count() as f64 / all)
        };
        Run {
            columns: 1,
            shares: legend
                .iter()
                .map(share)
                .filter(|(_, share)| *share > 0.0)
                .collect(),
            is_removable: boundaries.iter().any(|b| b.remedy.is_some()),
        }
    }

    fn looks_like(&self, other: &Run) -> bool {
        self.is_removable == other.is_removable && self.shares == other.shares
    }

    fn draw(&self, svg: &mut Svg, at: Rect) {
        let height = at.height - LINE - 1.0;
        let mut bottom = at.y + height;
        for (color, share) in &self.shares {
            let tall = height * share;
            bottom -= tall;
            let part = Rect {
                y: bottom,
                height: tall,
                ..at
            };
            svg.rect(part, color, "none", "");
        }
        if self.is_removable {
            let line = Rect {
                y: at.y + height + 1.0,
                height: LINE,
                ..at
            };
            svg.rect(line, REMOVABLE, "none", "");
        }
    }
}
