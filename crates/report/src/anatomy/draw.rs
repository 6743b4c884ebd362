//! The address space as a drawing: a stack of boxes, high addresses at the top.
//!
//! The height of a box grows with the logarithm of its size, so that one drawing can show a
//! one-page part beside a one-terabyte part. Each box is tall enough for the labels of the known
//! addresses in it.

use super::{Anatomy, Kind, Part};
use crate::svg::{Letters, Rect, Svg};
use vmarea_explain::rows::printable;

const LEFT: f64 = 140.0;
const WIDTH: f64 = 640.0;
const TOP: f64 = 56.0;
const GAP: f64 = 26.0;
const LINE: f64 = 14.0;
const TITLE: Letters = Letters::plain(15.0).bold();
const HEADING: Letters = Letters::plain(12.0).bold();
const SMALL: Letters = Letters::plain(10.0).color("#555");

impl Anatomy {
    /// Returns the drawing; `size` formats a number of bytes.
    pub fn svg(&self, size: &dyn Fn(u64) -> String) -> String {
        let mut svg = Svg::default();
        svg.text(16.0, 28.0, &printable(&self.title), TITLE);
        let mut y = TOP;
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
                y = solid(&mut svg, part, y, size);
                label(&mut svg, part.start, y);
            }
        }
        for note in &self.notes {
            y += 18.0;
            svg.text(16.0, y + 8.0, &printable(note), SMALL);
        }
        svg.finish(&self.title)
    }
}

fn solid(svg: &mut Svg, part: &Part, y: f64, size: &dyn Fn(u64) -> String) -> f64 {
    let pages = (part.size >> 12).max(1) as f64;
    let marks = part.marks.len() as f64 * LINE;
    let height = (24.0 + 2.0 * pages.log2()).min(64.0).max(26.0 + marks);
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
    let perms: Vec<_> = part.perms.iter().map(String::as_str).collect();
    let mappings = match part.mappings {
        0 => String::new(),
        1 => perms.join(" "),
        n => format!("{n} mappings: {}", perms.join(" ")),
    };
    let x = LEFT + 24.0 + HEADING.width(&label);
    let mappings = SMALL.clip(&mappings, right - SMALL.width(&extent) - 12.0 - x);
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
    y + height
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
