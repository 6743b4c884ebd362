//! The address space as a drawing: a stack of boxes, high addresses at the top.
//!
//! The height of a box grows with the logarithm of its size, so that one drawing can show a
//! one-page part beside a one-terabyte part. Each box is tall enough for the labels of the known
//! addresses in it. A box for many mappings has a strip that shows why they are apart.

use super::text::{FEW, why};
use super::{Anatomy, Kind, Part, strip};
use crate::svg::{Letters, Rect, Svg};
use vmarea_explain::rows::printable;

const LEFT: f64 = 140.0;
const WIDTH: f64 = 640.0;
const TOP: f64 = 56.0;
const GAP: f64 = 26.0;
const LINE: f64 = 14.0;
/// Height of the strip of a part, with the text above it.
const STRIP: f64 = 36.0;
const TITLE: Letters = Letters::plain(15.0).bold();
const HEADING: Letters = Letters::plain(12.0).bold();
const SMALL: Letters = Letters::plain(10.0).color("#555");

impl Anatomy {
    /// Returns the drawing; `size` formats a number of bytes.
    pub fn svg(&self, size: &dyn Fn(u64) -> String) -> String {
        let mut svg = Svg::default();
        svg.text(16.0, 28.0, &printable(&self.title), TITLE);
        let mut y = self.draw_summary(&mut svg, TOP, size);
        // Two adjacent boxes share one label at their border.
        let mut labelled = None;
        let mut label = |svg: &mut Svg, address: u64, y: f64| {
            if labelled.replace(address) != Some(address) {
                svg.text(LEFT - 8.0, y + 4.0, &format!("{address:x}"), SMALL.at_end());
            }
        };
        for part in &self.parts {
            if part.kind == Kind::Gap {
                y = gap(&mut svg, part, y, size);
            } else {
                label(&mut svg, part.end, y);
                y = self.solid(&mut svg, part, y, size);
                label(&mut svg, part.start, y);
            }
        }
        for note in &self.notes {
            y += 18.0;
            svg.text(16.0, y + 8.0, &printable(note), SMALL);
        }
        svg.finish(&self.title)
    }

    fn solid(&self, svg: &mut Svg, part: &Part, y: f64, size: &dyn Fn(u64) -> String) -> f64 {
        let pages = (part.size >> 12).max(1) as f64;
        let marks = part.marks.len() as f64 * LINE;
        let why_apart = if part.mappings > FEW { STRIP } else { 0.0 };
        let height = (24.0 + 2.0 * pages.log2())
            .min(64.0)
            .max(26.0 + marks + why_apart);
        let at = Rect {
            x: LEFT,
            y,
            width: WIDTH,
            height,
        };
        let (fill, stroke) = colors(part.kind);
        svg.rect(at, fill, stroke, "");
        let extent = match part.kind {
            Kind::KernelSpace => String::new(),
            _ => size(part.size),
        };
        let right = LEFT + WIDTH - 10.0;
        let room = WIDTH - 30.0 - SMALL.width(&extent);
        let label = match part.kind {
            Kind::File => HEADING.clip_front(&part.label(), room * 0.6),
            _ => HEADING.clip(&part.label(), room * 0.6),
        };
        svg.text(LEFT + 10.0, y + 17.0, &label, HEADING);
        let x = LEFT + 24.0 + HEADING.width(&label);
        let mappings = SMALL.clip(&part.contents(), right - SMALL.width(&extent) - 12.0 - x);
        svg.text(x, y + 17.0, &mappings, SMALL);
        svg.text(right, y + 17.0, &extent, SMALL.at_end());
        for (n, mark) in part.marks.iter().enumerate() {
            let text = format!(
                "{:x} {}: {}",
                mark.address,
                printable(&mark.name),
                mark.what
            );
            let text = SMALL.clip(&text, WIDTH - 40.0);
            svg.text(LEFT + 22.0, y + 32.0 + n as f64 * LINE, &text, SMALL);
        }
        if part.mappings > FEW {
            let base = y + height - STRIP;
            let text = format!("apart: {}", why(&part.apart));
            svg.text(
                LEFT + 10.0,
                base + 8.0,
                &SMALL.clip(&text, WIDTH - 20.0),
                SMALL,
            );
            let strip = Rect {
                x: LEFT + 10.0,
                y: base + 13.0,
                width: WIDTH - 20.0,
                height: 16.0,
            };
            strip::draw(svg, strip, part.within(&self.boundaries), &self.apart);
        }
        y + height
    }
}

fn gap(svg: &mut Svg, part: &Part, y: f64, size: &dyn Fn(u64) -> String) -> f64 {
    for x in [LEFT, LEFT + WIDTH] {
        svg.line(&[(x, y), (x, y + GAP)], "#aaa", r#"stroke-dasharray="2 4""#);
    }
    let text = format!("{} unmapped", size(part.size));
    svg.text(LEFT + 22.0, y + GAP / 2.0 + 4.0, &text, SMALL);
    y + GAP
}

fn colors(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::KernelSpace => ("#e8e8e8", "#888"),
        Kind::Vdso => ("#ececf6", "#7d7dad"),
        Kind::Stack => ("#fbe5e1", "#c0392b"),
        Kind::File => ("#e4eff9", "#2471a3"),
        Kind::Anonymous => ("#fdf3e7", "#b9770e"),
        Kind::Shared => ("#e6f5f3", "#148f77"),
        Kind::Folded => ("#f7f7f7", "#999"),
        Kind::Heap => ("#fdf0c8", "#b7950b"),
        Kind::Uninitialised => ("#f3e8f7", "#884ea0"),
        Kind::Initialised => ("#ead7f2", "#76448a"),
        Kind::Constants => ("#e3f4e4", "#1e8449"),
        Kind::Code => ("#cdebd0", "#196f3d"),
        Kind::Gap => ("none", "none"),
    }
}
