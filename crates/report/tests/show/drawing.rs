//! Drawings must be readable: no label overlaps another or extends beyond the page.

use crate::graph::family;
use vmarea_process::{AskKernel, Smaps};
use vmarea_report::anatomy::{Anatomy, Fold, Symbols};
use vmarea_report::graph::{Extent, Graph, LeftOut, Unattached, Vma, svg};
use vmarea_report::shown::Shown;

/// Width of a letter relative to the font size, as the drawings assume.
const LETTER: f64 = 0.602;

#[derive(Debug)]
struct Label {
    text: String,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Label {
    fn touches(&self, other: &Label) -> bool {
        let apart = self.right <= other.left
            || other.right <= self.left
            || self.bottom <= other.top
            || other.bottom <= self.top;
        !apart
    }
}

fn attribute<'t>(element: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = element.split_once(&format!("{name}=\""))?;
    rest.split('"').next()
}

fn number(element: &str, name: &str) -> f64 {
    let text = attribute(element, name).unwrap_or_else(|| panic!("no {name} in {element}"));
    text.parse().unwrap()
}

/// Returns the labels of a drawing, with each group moved down as its `translate` specifies.
fn labels(drawing: &str) -> Vec<Label> {
    let mut down = 0.0;
    let mut labels = Vec::new();
    for line in drawing.lines() {
        if let Some((_, rest)) = line.split_once("translate(0 ") {
            down = rest.split(')').next().unwrap().parse().unwrap();
        } else if line == "</g>" {
            down = 0.0;
        } else if line.starts_with("<text") {
            let (element, rest) = line.split_once('>').unwrap();
            let text = rest.trim_end_matches("</text>");
            let plain = ["&lt;", "&gt;", "&quot;", "&amp;"];
            let plain = plain.iter().fold(text.to_owned(), |t, e| t.replace(e, "x"));
            let size = number(element, "font-size");
            let (x, y) = (number(element, " x"), number(element, " y") + down);
            let width = plain.chars().count() as f64 * size * LETTER;
            let left = match attribute(element, "text-anchor") {
                Some("end") => x - width,
                _ => x,
            };
            labels.push(Label {
                text: plain,
                left,
                right: left + width,
                // A letter extends up from its baseline, and a little below it.
                top: y - 0.75 * size,
                bottom: y + 0.2 * size,
            });
        }
    }
    labels
}

pub fn assert_readable(drawing: &str) {
    let labels = labels(drawing);
    assert!(labels.len() > 10);
    let page = drawing.lines().next().unwrap();
    let (width, height) = (number(page, " width"), number(page, " height"));
    for (n, label) in labels.iter().enumerate() {
        let inside = label.left >= 0.0 && label.right <= width && label.bottom <= height;
        assert!(
            inside,
            "{} at {label:?} leaves the page of {width} by {height}",
            label.text
        );
        for other in &labels[n + 1..] {
            assert!(
                !label.touches(other),
                "{} at {label:?} and {} at {other:?}",
                label.text,
                other.text
            );
        }
    }
}

/// Gives every process `vmas` VMAs; those of the first process have the longest addresses.
fn widened(graph: &Graph, vmas: usize) -> Graph {
    let mut wide = graph.clone();
    for process in &mut wide.processes {
        let first = process.vmas[0].clone();
        process.vmas = (0..vmas as u64)
            .map(|n| Vma {
                start: 0x7fff_0000_0000 + (n << 24),
                end: 0x7fff_0080_0000 + (n << 24),
                pgoff: 0xf_7fff_0000_0000,
                name: "a-file-with-a-rather-long-name.so.6".to_owned(),
                ..first.clone()
            })
            .collect();
    }
    wide
}

#[test]
fn the_graph_of_the_family_can_be_read() {
    let graph = family();
    let sheet = svg::sheet(&graph, &LeftOut::default());
    assert_readable(&sheet);
    for anon_vma in &graph.anon_vmas {
        assert!(sheet.contains(&format!(">{}<", anon_vma.id)));
    }
}

#[test]
fn three_processes_of_ten_vmas_can_be_read() {
    let graph = widened(&family(), 10);
    assert_readable(&svg::sheet(&graph, &LeftOut::default()));
}

#[test]
fn of_more_than_can_be_read_the_drawing_says_so() {
    let extent = Extent {
        processes: 2,
        vmas: 12,
        unattached: Unattached::Hide,
    };
    let (part, left_out) = widened(&family(), 500).select(extent);
    let text = left_out.text();
    let sheet = svg::sheet(&part, &left_out);
    assert_readable(&sheet);
    let said = "left out: 1 process, 976 VMAs with an anon_vma";
    assert!(sheet.contains(said), "{text:?}");
    assert!(sheet.contains("12 of 500 VMAs"));
}

#[test]
fn the_anatomy_of_this_process_can_be_read() {
    let pid = std::process::id() as i32;
    let shown = Shown::live(pid, AskKernel::Never, Smaps::Never).unwrap();
    let anatomy = Anatomy::new(&shown, Fold::Small, Symbols::Read);
    assert_readable(&anatomy.svg(&|bytes| format!("{bytes} bytes")));
}
