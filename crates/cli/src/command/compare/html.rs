//! The comparison as a page: one file that needs no network.
//!
//! Each trace has a section with the same facts as the text, and a drawing of the numbers of VMAs
//! over time. Browsers choose the light or the dark colours. `maud` escapes names, so markup in the
//! path of a trace is shown.

use super::{Document, OfTrace};
use maud::{Markup, html};
use vmarea_explain::text::count;
use vmarea_replay::compare::{Group, OverTime, Parting};
use vmarea_report::page;

/// Width and height of a drawing, in the units of its view box.
const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 160.0;

/// Returns the whole page; of each trace, at most `most` kinds of differences.
pub(super) fn page(document: &Document, most: usize) -> String {
    let names = document.policies.join(" and ");
    let body = html! {
        header {
            p.kind { "vmarea: two policies compared" }
            h1 { (names) }
        }
        section #summary {
            (summary(document))
            (left_out(document))
        }
        @for (number, trace) in document.traces.iter().enumerate() {
            (of_trace(trace, number, most))
        }
        p.note { "A VMA takes " (document.vma_bytes) " bytes (" code { "vm_area_struct" } " of Linux 6.18)." }
    };
    page::document(&format!("vmarea compare: {names}"), &body, None)
}

fn summary(document: &Document) -> Markup {
    let columns = [
        "calls",
        "calls that differ",
        "peak A",
        "peak B",
        "exit A",
        "exit B",
    ];
    html! {
        @for (letter, name) in ["A", "B"].into_iter().zip(&document.policies) {
            p class=(letter) { b { (letter) } " is " code { (name) } }
        }
        div.scroll tabindex="0" role="region" aria-label="All traces" {
            table.sortable {
                caption { "VMAs of all live address spaces at the peak, and when they ended" }
                thead { tr { th scope="col" { "trace" } @for name in columns { th scope="col" { (name) } } } }
                tbody {
                    @for (number, trace) in document.traces.iter().enumerate() {
                        @let [a, b] = &trace.compared.policies;
                        tr {
                            th scope="row" { a href={ "#trace-" (number) } { (trace.trace) } }
                            @for n in [trace.compared.calls, trace.compared.differing_calls,
                                       a.vmas_peak, b.vmas_peak, a.vmas_exit, b.vmas_exit] {
                                td { (count(n)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn left_out(document: &Document) -> Markup {
    html! {
        @if !document.failed.is_empty() || !document.skipped.is_empty() {
            h2 { "Left out" }
            ul {
                @for failed in &document.failed { li { (failed.trace) ": " (failed.why) } }
                @for name in &document.skipped { li { (name) ": not a trace" } }
            }
        }
    }
}

fn of_trace(trace: &OfTrace, number: usize, most: usize) -> Markup {
    let compared = &trace.compared;
    let names = [0, 1].map(|side: usize| compared.policies[side].name.as_str());
    let only = compared
        .policies
        .iter()
        .filter(|side| !side.only_merges.is_empty());
    html! {
        section id={ "trace-" (number) } {
            h2 { (trace.trace) }
            @if !trace.complete { p { "Not complete: the trace was read only up to some event." } }
            (over_time(&compared.over_time, names))
            @for side in only {
                p { "Only " code { (side.name) } " makes: "
                    @for (i, (kind, n)) in side.only_merges.iter().enumerate() {
                        @if i > 0 { ", " } (count(*n)) " " (kind)
                    }
                }
            }
            @match &compared.first {
                None => p { "The policies never part." },
                Some(first) => {
                    (parting(first, names))
                    (differences(&compared.differences, names, most))
                }
            }
            @for note in &compared.notes { p.note { (note) } }
        }
    }
}

fn parting(first: &Parting, names: [&str; 2]) -> Markup {
    html! {
        h3 { "First difference: call " (count(first.number)) }
        p { code { (first.call) } }
        p { "In address space " (first.mm) ", " (first.place) " at " code { (format!("{:x}", first.address)) } ":" }
        (did(&first.did, names))
    }
}

fn did(did: &[String; 2], names: [&str; 2]) -> Markup {
    html! {
        dl {
            @for ((letter, name), did) in ["A", "B"].into_iter().zip(names).zip(did) {
                dt class=(letter) { (name) }
                dd { (did) }
            }
        }
    }
}

fn differences(all: &[Group], names: [&str; 2], most: usize) -> Markup {
    html! {
        h3 { "Kinds of difference" }
        div.scroll tabindex="0" role="region" aria-label="Kinds of difference" {
            table.sortable {
                thead {
                    tr {
                        th scope="col" { "calls" } th scope="col" { "call" } th scope="col" { "place" }
                        @for name in names { th.text scope="col" { (name) } }
                        th scope="col" { "first call" }
                    }
                }
                tbody {
                    @for group in all.iter().take(most) {
                        tr {
                            td { (count(group.count)) }
                            td.text { (group.call) }
                            td.text { (group.place) }
                            @for did in &group.did { td.text { (did) } }
                            td { (count(group.first_call)) }
                        }
                    }
                }
            }
        }
        @if all.len() > most { p.note { (all.len() - most) " more: --differences " (all.len()) } }
    }
}

/// Draws the numbers of VMAs of both policies, with a description for those who do not see it.
fn over_time(over_time: &OverTime, names: [&str; 2]) -> Markup {
    let [a, b] = &over_time.vmas;
    let highest = a.iter().chain(b).copied().max().unwrap_or(0);
    let peaks = [a, b].map(|points| points.iter().copied().max().unwrap_or(0));
    let [of_a, of_b] = peaks.map(count);
    let described = format!("{} rises to {of_a} VMAs, {} to {of_b}", names[0], names[1]);
    html! {
        figure {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(described) {
                line.axis x1="0" x2=(WIDTH) y1=(HEIGHT) y2=(HEIGHT) {}
                @for (letter, points) in [("A", a), ("B", b)] {
                    polyline class=(letter) points=(polyline(points, highest)) {}
                }
            }
            figcaption {
                "VMAs over time, " (count(over_time.calls_per_point)) " calls at a point; full height "
                (count(highest)) ": "
                span.A { (names[0]) } " (solid), " span.B { (names[1]) } " (dashed)"
            }
        }
    }
}

/// Returns the corners of a line through the points, from the left edge to the right one.
fn polyline(points: &[u64], highest: u64) -> String {
    let step = WIDTH / (points.len().max(2) - 1) as f64;
    let corner = |(i, &vmas): (usize, &u64)| {
        let y = HEIGHT - 0.95 * HEIGHT * vmas as f64 / highest.max(1) as f64;
        format!("{:.1},{y:.1}", i as f64 * step)
    };
    let corners: Vec<_> = points.iter().enumerate().map(corner).collect();
    corners.join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_ends_at_the_right_edge_and_stays_below_the_top() {
        assert_eq!(
            super::polyline(&[0, 5, 10], 10),
            "0.0,160.0 400.0,84.0 800.0,8.0"
        );
        assert_eq!(super::polyline(&[], 0), "");
    }
}
