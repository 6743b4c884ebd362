//! The summary above the drawing of an address space: reasons and sizes of all its mappings.
//!
//! # Picture
//! ```text
//! why N neighbours are apart
//! ▌▌▌▌▌████▌▌▌▌▌▌▌▌▌▌▌▌▌▌▌▌▌▌▌▌▌▌▌▌▌       the strip
//! ■ 6,666  first written separately        size      mappings
//! ■    78  different permissions           4 KiB     ▇▇▇▇▇▇▇ 6,000
//! ```

use super::{Anatomy, strip};
use crate::apart::{Apart, REMOVABLE};
use crate::svg::{Letters, Rect, Svg};
use std::io::{self, Write};
use vmarea_explain::text::count;

const LEFT: f64 = 16.0;
/// Width of the whole summary.
const WIDTH: f64 = 764.0;
const LINE: f64 = 16.0;
/// Right end of the legend.
const LEGEND: f64 = 490.0;
/// Left edge of the bars.
const BARS: f64 = 580.0;
/// Width of the longest bar.
const LONGEST: f64 = 130.0;
const HEADING: Letters = Letters::plain(12.0).bold();
const SMALL: Letters = Letters::plain(10.0).color("#555");
/// Length of the longest bar in text.
const LONGEST_TEXT: u64 = 40;

impl Anatomy {
    /// Draws the summary at `y`; returns the position below it.
    pub(super) fn draw_summary(&self, svg: &mut Svg, y: f64, size: &dyn Fn(u64) -> String) -> f64 {
        if self.apart.is_empty() {
            return y;
        }
        let heading = format!("{}, the lowest addresses at the left", self.why_apart());
        svg.text(LEFT, y, &heading, HEADING);
        let at = Rect {
            x: LEFT,
            y: y + 8.0,
            width: WIDTH,
            height: 30.0,
        };
        strip::draw(svg, at, &self.boundaries, &self.apart);
        let y = y + 60.0;
        let below = self.legend(svg, y).max(self.draw_sizes(svg, y, size));
        below + 12.0
    }

    fn why_apart(&self) -> String {
        match self.boundaries.len() {
            1 => "why two neighbours are apart".to_owned(),
            n => format!("why {} pairs of neighbours are apart", count(n as u64)),
        }
    }

    fn legend(&self, svg: &mut Svg, y: f64) -> f64 {
        let mut y = y;
        let mut row = |color: &str, number: u64, words: &str| {
            let square = Rect {
                x: LEFT,
                y: y - 9.0,
                width: 10.0,
                height: 10.0,
            };
            svg.rect(square, color, "none", "");
            let right = LEFT + 80.0;
            svg.text(right, y, &count(number), HEADING.at_end());
            let words = SMALL.clip(words, LEGEND - right - 12.0);
            svg.text(right + 12.0, y, &words, SMALL);
            y += LINE;
        };
        for apart in &self.apart {
            row(apart.color, apart.boundaries, &apart.label());
        }
        let removable = self.removable();
        if removable > 0 {
            row(
                REMOVABLE,
                removable,
                "of them a repair can remove (line below)",
            );
        }
        y
    }

    fn draw_sizes(&self, svg: &mut Svg, y: f64, size: &dyn Fn(u64) -> String) -> f64 {
        svg.text(BARS - 8.0, y, "size up to", SMALL.at_end());
        svg.text(BARS, y, "mappings", SMALL);
        let most = self.sizes.iter().map(|class| class.mappings).max();
        let mut y = y + LINE;
        for class in &self.sizes {
            svg.text(BARS - 8.0, y, &size(class.up_to), SMALL.at_end());
            let share = class.mappings as f64 / most.unwrap_or(1).max(1) as f64;
            let bar = Rect {
                x: BARS,
                y: y - 9.0,
                width: (LONGEST * share).max(if class.mappings > 0 { 1.0 } else { 0.0 }),
                height: 10.0,
            };
            svg.rect(bar, "#7f8c8d", "none", "");
            let x = BARS + bar.width + 6.0;
            svg.text(x, y, &count(class.mappings), SMALL);
            y += LINE;
        }
        y
    }

    fn removable(&self) -> u64 {
        self.apart.iter().map(|apart| apart.removable).sum()
    }

    /// Writes the summary as text.
    pub(super) fn write_summary(
        &self,
        out: &mut dyn Write,
        size: &dyn Fn(u64) -> String,
    ) -> io::Result<()> {
        if self.apart.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n{}", self.why_apart())?;
        for apart in &self.apart {
            writeln!(out, "{:>9}  {}", count(apart.boundaries), apart.label())?;
        }
        if self.removable() > 0 {
            writeln!(
                out,
                "{:>9}  of them a repair can remove",
                count(self.removable())
            )?;
        }
        writeln!(out, "\nmappings by size")?;
        let most = self
            .sizes
            .iter()
            .map(|class| class.mappings)
            .max()
            .unwrap_or(1);
        for class in &self.sizes {
            let bar = (class.mappings * LONGEST_TEXT).div_ceil(most.max(1)) as usize;
            let line = format!(
                "{:>9}  up to {:>11}  {}",
                count(class.mappings),
                size(class.up_to),
                "▇".repeat(bar)
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl Apart {
    /// Formats the meaning of the reason, and how often it is only likely.
    fn label(&self) -> String {
        let likely = self.boundaries - self.certain;
        match likely {
            0 => self.words.to_owned(),
            likely if likely == self.boundaries => format!("{} (likely)", self.words),
            likely => format!("{} ({} only likely)", self.words, count(likely)),
        }
    }
}
