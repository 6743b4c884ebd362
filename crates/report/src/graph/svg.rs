//! The graph as a drawing, in the style of figures 2.8 and 2.9 of the thesis.
//!
//! # Picture
//! ```text
//!                        parent            child
//!   family of A1         ┌─────┐           ┌─────┐
//!                        │ VMA ├─┐         │ VMA ├─┐      red, down: the chain of a VMA
//!                        └─────┘ │         └─────┘ │
//!      ┌─▶ A1 ─────────────────── ■ ────────────── □      blue, across: the tree of an anon_vma
//!      └── A2 ─────────────────────────────────── ■       ■ own, □ an ancestor's: an anon_vma_chain
//! ```
//! A process is a column; a family of anon_vmas is a band. Within a band, VMAs with the same
//! address share a row. Wires leave a VMA on its right side and run down in lanes. The uppermost
//! VMA uses the outermost lane, so wires of one process never cross. Buses are drawn below all VMAs
//! of their band, so no line crosses a label.

use super::{AnonVma, Av, Graph, LeftOut, Links, Vma, pages};
use crate::svg::{Letters, Rect, Svg};
use std::collections::BTreeMap;

const MARGIN: f64 = 16.0;
/// Distance between two lanes.
const LANE: f64 = 12.0;
/// Width of an anon_vma box.
const AV_WIDTH: f64 = 226.0;
const AV_HEIGHT: f64 = 32.0;
const AV_STEP: f64 = 40.0;
/// Width of a VMA box.
const VMA_WIDTH: f64 = 228.0;
const VMA_HEIGHT: f64 = 34.0;
const VMA_STEP: f64 = 42.0;
/// Half the side length of an `anon_vma_chain` square.
const LINK: f64 = 4.0;
const TOP: f64 = 98.0;

const RED: &str = "#c0392b";
const BLUE: &str = "#2471a3";
const DARK: &str = "#444";
const DASHED: &str = r#"stroke-dasharray="4 3""#;

const TITLE: Letters = Letters::plain(15.0).bold();
const HEADING: Letters = Letters::plain(12.0).bold();
const BODY: Letters = Letters::plain(11.0);
const SMALL: Letters = Letters::plain(10.0).color("#555");

/// Draws a graph, with a count of its omitted elements.
pub fn sheet(graph: &Graph, left_out: &LeftOut) -> String {
    let mut drawing = Drawing::new(graph);
    drawing.heading(left_out);
    let mut y = TOP;
    for band in drawing.bands() {
        y = drawing.band(&band, y);
    }
    y = drawing.without(y);
    drawing.columns(y);
    drawing.footer(y);
    drawing.svg.finish(&graph.title)
}

/// A family of anon_vmas and the VMAs that are drawn with it.
struct Band<'g> {
    root: Av,
    /// The anon_vmas in order, root first.
    anon_vmas: Vec<&'g AnonVma>,
    /// VMAs per process.
    vmas: Vec<Vec<&'g Vma>>,
}

/// Horizontal position and width of a process.
struct Column {
    x: f64,
    width: f64,
}

struct Drawing<'g> {
    graph: &'g Graph,
    svg: Svg,
    /// Left edge of the anon_vma boxes.
    av_x: f64,
    columns: Vec<Column>,
}

impl<'g> Drawing<'g> {
    fn new(graph: &'g Graph) -> Self {
        let mut drawing = Drawing {
            graph,
            svg: Svg::default(),
            av_x: 0.0,
            columns: Vec::new(),
        };
        let bands = drawing.bands();
        let lanes = bands.iter().map(|band| band.parents().len()).max();
        // One more lane is needed for the arrows to the root.
        drawing.av_x = MARGIN + (lanes.unwrap_or(0) + 1) as f64 * LANE + 14.0;
        let mut x = drawing.av_x + AV_WIDTH + 28.0;
        for process in 0..graph.processes.len() {
            let lanes = bands.iter().map(|band| band.vmas[process].len()).max();
            let width = VMA_WIDTH + 22.0 + lanes.unwrap_or(0) as f64 * LANE;
            drawing.columns.push(Column { x, width });
            x += width + 20.0;
        }
        drawing
    }

    fn bands(&self) -> Vec<Band<'g>> {
        let graph = self.graph;
        let reached = graph.reached();
        let of = |root: Av| -> Vec<Vec<&'g Vma>> {
            let processes = graph.processes.iter();
            let mine = |vma: &&Vma| graph.family(vma) == Some(root);
            processes
                .map(|process| process.vmas.iter().filter(mine).collect())
                .collect()
        };
        let mut bands = Vec::new();
        for (root, mut anon_vmas) in graph.families() {
            anon_vmas.retain(|a| reached.contains(&a.id));
            if !anon_vmas.is_empty() {
                bands.push(Band {
                    root,
                    anon_vmas,
                    vmas: of(root),
                });
            }
        }
        bands
    }

    fn heading(&mut self, left_out: &LeftOut) {
        self.svg.text(MARGIN, 28.0, &self.graph.title, TITLE);
        if let Some(text) = left_out.text() {
            self.svg.text(MARGIN, 46.0, &text, SMALL);
        }
        let processes = self.graph.processes.iter().zip(&self.columns);
        for (at, (process, column)) in processes.enumerate() {
            let name = HEADING.clip(&process.name, column.width);
            self.svg.text(column.x, TOP - 26.0, &name, HEADING);
            let vmas = left_out.vmas_of(at, process.vmas.len());
            let from = process.parent.map_or(String::new(), |parent| {
                format!(", forked from {}", self.graph.processes[parent].name)
            });
            let line = SMALL.clip(&format!("{vmas}{from}"), column.width);
            self.svg.text(column.x, TOP - 12.0, &line, SMALL);
        }
    }

    /// Draws a family at `y`; returns the position at which the next family can begin.
    fn band(&mut self, band: &Band<'g>, y: f64) -> f64 {
        let rows = band.rows();
        let first_av = y + rows.len() as f64 * VMA_STEP + 12.0;
        let title = format!("family of {}", band.root);
        self.svg.text(self.av_x, y + 16.0, &title, HEADING);
        let wires = self.wires(band, y, &rows);
        let end = |wire: &Wire<'_>| band.place(&wire.vma.chain);
        for (at, anon_vma) in band.anon_vmas.iter().enumerate() {
            let mid = first_av + at as f64 * AV_STEP + AV_HEIGHT / 2.0;
            let linked = wires.iter().filter(|w| w.vma.chain.contains(&anon_vma.id));
            if let Some(x) = linked.map(|wire| wire.x).reduce(f64::max) {
                let bus = [(self.av_x + AV_WIDTH, mid), (x, mid)];
                self.svg.line(&bus, BLUE, r#"stroke-width="1.4""#);
            }
            self.anon_vma(anon_vma, first_av + at as f64 * AV_STEP);
        }
        for wire in &wires {
            let Some(last) = end(wire) else { continue };
            let bottom = first_av + last as f64 * AV_STEP + AV_HEIGHT / 2.0;
            let path = [(wire.from, wire.y), (wire.x, wire.y), (wire.x, bottom)];
            self.svg.line(&path, RED, r#"stroke-width="1.4""#);
        }
        for wire in &wires {
            self.links(band, wire, first_av);
        }
        self.arrows(band, first_av);
        let end = first_av + band.anon_vmas.len() as f64 * AV_STEP + 6.0;
        self.separator(end);
        end + 10.0
    }

    /// Draws the VMAs of a family and returns their wires.
    fn wires(&mut self, band: &Band<'g>, y: f64, rows: &BTreeMap<u64, usize>) -> Vec<Wire<'g>> {
        let mut wires = Vec::new();
        for (process, vmas) in band.vmas.iter().enumerate() {
            for (at, vma) in vmas.iter().enumerate() {
                let top = y + rows[&vma.start] as f64 * VMA_STEP;
                let x = self.columns[process].x;
                self.vma(vma, x, top);
                let lane = (vmas.len() - 1 - at) as f64;
                wires.push(Wire {
                    vma,
                    from: x + VMA_WIDTH,
                    x: x + VMA_WIDTH + 12.0 + lane * LANE,
                    y: top + VMA_HEIGHT / 2.0,
                });
            }
        }
        wires
    }

    fn vma(&mut self, vma: &Vma, x: f64, y: f64) {
        let (fill, stroke) = match vma.own {
            Some(_) => ("#fdf3e7", "#b9770e"),
            None => ("#f4f4f4", "#999"),
        };
        let at = Rect {
            x,
            y,
            width: VMA_WIDTH,
            height: VMA_HEIGHT,
        };
        self.svg.rect(at, fill, stroke, r#"rx="3""#);
        let room = VMA_WIDTH - 12.0;
        let range = format!("{} {}", vma.range(), vma.letters());
        self.svg
            .text(x + 6.0, y + 14.0, &BODY.clip(&range, room), BODY);
        let size = pages(vma.pages());
        let what = format!("{size}, pgoff {:#x} {}", vma.pgoff, vma.name);
        let what = SMALL.clip(what.trim_end(), room - 12.0);
        self.svg.text(x + 6.0, y + 28.0, &what, SMALL);
        if vma.links == Links::Some {
            let mark = BODY.bold().color(RED).at_end();
            self.svg.text(x + VMA_WIDTH - 5.0, y + 28.0, "?", mark);
        }
    }

    fn anon_vma(&mut self, anon_vma: &AnonVma, y: f64) {
        let at = Rect {
            x: self.av_x,
            y,
            width: AV_WIDTH,
            height: AV_HEIGHT,
        };
        let (x, right) = (self.av_x + 8.0, self.av_x + AV_WIDTH - 8.0);
        self.svg.rect(at, "#e4eff9", BLUE, r#"rx="12""#);
        self.svg
            .text(x, y + 14.0, &anon_vma.id.to_string(), HEADING);
        let above = anon_vma.ancestry();
        self.svg.text(right, y + 14.0, &above, SMALL.at_end());
        let number = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
        let numbers = format!(
            "num_children {}  num_active_vmas {}",
            number(anon_vma.num_children),
            number(anon_vma.num_active_vmas)
        );
        let numbers = SMALL.clip(&numbers, AV_WIDTH - 14.0);
        self.svg.text(x, y + 27.0, &numbers, SMALL);
    }

    /// Draws the chain of one VMA: a square at each crossing with the bus of a linked anon_vma.
    fn links(&mut self, band: &Band<'g>, wire: &Wire<'g>, first_av: f64) {
        for (at, anon_vma) in band.anon_vmas.iter().enumerate() {
            if !wire.vma.chain.contains(&anon_vma.id) {
                continue;
            }
            let y = first_av + at as f64 * AV_STEP + AV_HEIGHT / 2.0;
            let own = wire.vma.own == Some(anon_vma.id);
            self.link(wire.x, y, own);
        }
    }

    fn link(&mut self, x: f64, y: f64, own: bool) {
        let at = Rect {
            x: x - LINK,
            y: y - LINK,
            width: 2.0 * LINK,
            height: 2.0 * LINK,
        };
        let fill = if own { DARK } else { "#fff" };
        self.svg.rect(at, fill, DARK, r#"stroke-width="1.4""#);
    }

    /// Draws arrows from anon_vmas to parents (one lane per parent) and roots (outermost lane).
    fn arrows(&mut self, band: &Band<'g>, first_av: f64) {
        let parents = band.parents();
        let mid = |at: usize| first_av + at as f64 * AV_STEP + AV_HEIGHT / 2.0;
        let place = |id: Av| band.anon_vmas.iter().position(|a| a.id == id);
        let lane = |n: usize| self.av_x - 12.0 - n as f64 * LANE;
        let (x, outermost) = (self.av_x, lane(parents.len()));
        let mut trunks: BTreeMap<(Av, bool), Trunk> = BTreeMap::new();
        let mut stub = |to: Av, is_root: bool, from: f64| {
            let Some(at) = place(to) else { return };
            let nth = parents.iter().position(|&p| p == to).unwrap_or(0);
            let trunk = trunks.entry((to, is_root)).or_insert(Trunk {
                x: if is_root { outermost } else { lane(nth) },
                to: mid(at) + if is_root { -7.0 } else { 7.0 },
                from: Vec::new(),
            });
            trunk.from.push(from);
        };
        for (at, anon_vma) in band.anon_vmas.iter().enumerate() {
            if let Some(parent) = anon_vma.parent.filter(|&parent| parent != anon_vma.id) {
                stub(parent, false, mid(at) - 6.0);
            }
            if anon_vma.has_root_arrow() {
                stub(anon_vma.root, true, mid(at) + 6.0);
            }
        }
        for ((_, is_root), trunk) in trunks {
            let more = if is_root { DASHED } else { "" };
            let (to, lane) = (trunk.to, trunk.x);
            let lowest = trunk.from.iter().copied().fold(to, f64::max);
            let path = [(x, lowest), (lane, lowest), (lane, to), (x - 6.0, to)];
            self.svg.line(&path, DARK, more);
            for &from in trunk.from.iter().filter(|from| **from != lowest) {
                self.svg.line(&[(x, from), (lane, from)], DARK, more);
            }
            self.svg.head(x, to, DARK);
        }
    }

    /// Draws the VMAs without an anon_vma.
    fn without(&mut self, y: f64) -> f64 {
        let graph = self.graph;
        let without = |process: &'g super::Process| -> Vec<&'g Vma> {
            process.vmas.iter().filter(|v| v.own.is_none()).collect()
        };
        let vmas: Vec<_> = graph.processes.iter().map(without).collect();
        if vmas.iter().all(Vec::is_empty) {
            return y;
        }
        let band = Band {
            root: Av(0),
            anon_vmas: Vec::new(),
            vmas,
        };
        let rows = band.rows();
        self.svg
            .text(self.av_x, y + 16.0, "without an anon_vma", HEADING);
        self.wires(&band, y, &rows);
        let end = y + rows.len() as f64 * VMA_STEP + 4.0;
        self.separator(end);
        end + 10.0
    }

    fn separator(&mut self, y: f64) {
        let right = self
            .columns
            .last()
            .map_or(self.av_x + AV_WIDTH, |c| c.x + c.width);
        self.svg.line(&[(MARGIN, y), (right, y)], "#ddd", "");
    }

    /// Draws the background of each process.
    fn columns(&mut self, bottom: f64) {
        let mut back = Svg::default();
        for column in &self.columns {
            let at = Rect {
                x: column.x - 8.0,
                y: TOP - 42.0,
                width: column.width + 8.0,
                height: bottom - TOP + 38.0,
            };
            back.rect(at, "#f8f9fb", "#e3e6ea", r#"rx="6""#);
        }
        self.svg.prepend(back);
    }

    /// Draws the legend of the signs that appear, and the notes.
    fn footer(&mut self, y: f64) {
        let has = self.graph.signs();
        let mut y = y + 14.0;
        let (mut x, base) = (MARGIN, y);
        let links = [
            (has.own, true, "its own anon_vma"),
            (has.links, false, "another in its chain"),
        ];
        for (_, own, what) in links.iter().filter(|(has, ..)| *has) {
            self.link(x + 5.0, base - 4.0, *own);
            self.svg.text(x + 16.0, base, what, SMALL);
            x += 30.0 + SMALL.width(what);
        }
        let lines = [
            (has.own, RED, "", "chain of a VMA"),
            (has.own, BLUE, "", "tree of an anon_vma"),
            (has.parents, DARK, "", "to its parent"),
            (has.roots, DARK, DASHED, "to its root"),
        ];
        for (_, color, more, what) in lines.iter().filter(|(has, ..)| *has) {
            let line = [(x, base - 4.0), (x + 22.0, base - 4.0)];
            self.svg.line(&line, color, more);
            self.svg.text(x + 28.0, base, what, SMALL);
            x += 42.0 + SMALL.width(what);
        }
        if has.hidden {
            self.svg.text(x, base, "?", BODY.bold().color(RED));
            self.svg
                .text(x + 12.0, base, "more links, not visible", SMALL);
        }
        for note in &self.graph.notes {
            y += 16.0;
            self.svg.text(MARGIN, y, note, SMALL);
        }
    }
}

/// The arrows that point to one anon_vma.
struct Trunk {
    x: f64,
    to: f64,
    from: Vec<f64>,
}

/// Wire that connects a VMA to its anon_vmas.
struct Wire<'g> {
    vma: &'g Vma,
    /// Horizontal position at which the wire leaves the VMA's box.
    from: f64,
    y: f64,
    /// Horizontal position of the wire's lane.
    x: f64,
}

impl Band<'_> {
    /// Returns the row number of each start address.
    fn rows(&self) -> BTreeMap<u64, usize> {
        let mut rows: BTreeMap<u64, usize> = self
            .vmas
            .iter()
            .flatten()
            .map(|vma| (vma.start, 0))
            .collect();
        rows.values_mut().enumerate().for_each(|(n, row)| *row = n);
        rows
    }

    /// Returns the anon_vmas that are the parent of another anon_vma.
    fn parents(&self) -> Vec<Av> {
        let mut parents: Vec<Av> = Vec::new();
        for anon_vma in &self.anon_vmas {
            let parent = anon_vma.parent.filter(|&parent| parent != anon_vma.id);
            parents.extend(parent.filter(|parent| !parents.contains(parent)));
        }
        parents
    }

    /// Returns the index in the band of the last anon_vma that `chain` contains.
    fn place(&self, chain: &[Av]) -> Option<usize> {
        self.anon_vmas.iter().rposition(|a| chain.contains(&a.id))
    }
}
