//! The results as a page: in every row, the paper's figures with ours below, and a drawing.

use maud::{Markup, html};
use vmarea_experiments::experiment::Document;
use vmarea_experiments::experiment::claim::{Claim, Decision};
use vmarea_experiments::experiment::figure::Figure;
use vmarea_experiments::experiment::report::{Report, Row, Table};
use vmarea_report::page::document;
use vmarea_report::page::parts::{Align, Cell, remarks, table};

/// Measures of a drawing, in the units of its view box.
const WIDTH: f64 = 800.0;
const LEFT: f64 = 300.0;
const LINE: f64 = 26.0;
/// Number of lines in a drawing.
const MOST_LINES: usize = 24;

/// Returns the whole page.
pub(super) fn page(results: &Document) -> String {
    let header = &results.header;
    let names: Vec<&str> = results.experiments.iter().map(|one| one.name).collect();
    let body = html! {
        header {
            p.kind { "vmarea: published figures next to ours" }
            h1 { (names.join(", ")) }
            p.note {
                (header.machine) "; " (header.kernel) "; load " (format!("{:.1}", header.load)) " before; "
                code { (header.command) }
            }
        }
        @if !header.optimised {
            (remarks("What is missing", &["The program was not optimised: its times mean nothing.".to_owned()]))
        }
        @for report in &results.experiments { (experiment(report)) }
    };
    document(
        &format!("vmarea-lab experiment: {}", names.join(", ")),
        &body,
        None,
    )
}

fn experiment(report: &Report) -> Markup {
    html! {
        section id=(report.name) {
            h2 { (report.name) }
            p { (report.paper) }
            @if !report.claims.is_empty() { (claims(&report.claims)) }
            @for table in &report.tables {
                h3 { (table.title) }
                p.note { (table.source) }
                @for paragraph in &table.about { p { (paragraph) } }
                (drawings(table))
                (figures(table))
            }
            (list("Left out", &report.missing))
            (list("Left out by --quick", &report.shortened))
            (list("Substituted", &report.substituted))
        }
    }
}

fn list(heading: &str, lines: &[String]) -> Markup {
    html! { @if !lines.is_empty() { h3 { (heading) } ul { @for line in lines { li { (line) } } } } }
}

fn claims(claims: &[Claim]) -> Markup {
    let headings =
        ["claim", "paper", "ours", "refuted by", "decision"].map(|heading| (heading, Align::Left));
    let row = |claim: &Claim| {
        let sign = match claim.decision {
            Decision::Holds => "✓",
            Decision::DoesNotHold => "✗",
            Decision::Undecided => "?",
            Decision::Withdrawn => "–",
        };
        vec![
            Cell::Text(claim.text.clone()),
            Cell::Text(claim.paper.clone()),
            Cell::Text(claim.ours.clone()),
            Cell::Text(claim.refuted_by.clone().unwrap_or_default()),
            Cell::Text(format!("{sign} {}", claim.decision.text())),
        ]
    };
    let rows: Vec<_> = claims.iter().map(row).collect();
    table("The paper's claims", &headings, &rows)
}

fn figures(of: &Table) -> Markup {
    let mut headings = vec![("row", Align::Left), ("source", Align::Left)];
    headings.extend(
        of.columns
            .iter()
            .map(|column| (column.as_str(), Align::Right)),
    );
    let rows: Vec<_> = of
        .rows
        .iter()
        .flat_map(|row| lines(row, of.with_means))
        .collect();
    table(&of.title, &headings, &rows)
}

/// Returns the lines of a row, the paper's first.
fn lines(row: &Row, with_means: bool) -> Vec<Vec<Cell>> {
    let line = |side: &str, who: &str, cells: Vec<Option<String>>| {
        let source = format!("{side} {who}").trim().to_owned();
        let first = [Cell::Text(row.label.clone()), Cell::Text(source)];
        let cells = cells
            .into_iter()
            .map(|cell| Cell::Figure(cell.unwrap_or_default()));
        first.into_iter().chain(cells).collect()
    };
    let paper = row.paper.iter().map(|one| {
        let cells = one
            .cells
            .iter()
            .map(|cell| cell.map(|cell| cell.to_string()));
        line("paper", &one.who, cells.collect())
    });
    let ours = row.ours.iter().map(|one| {
        let cells = one
            .cells
            .iter()
            .map(|cell| cell.as_ref().map(|cell| text(cell, with_means)));
        line("ours", &one.who, cells.collect())
    });
    paper.chain(ours).collect()
}

/// Formats the median with its interval, and the interval of the mean if it is wanted.
fn text(figure: &Figure, with_means: bool) -> String {
    let mut text = figure.unit.format(figure.median);
    if figure.runs.len() > 1 {
        let mean = figure
            .mean_text()
            .filter(|_| with_means)
            .map(|mean| format!("mean {mean}"));
        for more in [figure.interval_text(), mean].into_iter().flatten() {
            text = format!("{text}, {more}");
        }
    }
    text
}

/// A paper's figure and ours for the same thing.
struct Pair {
    row: String,
    paper: [f64; 2],
    ours: [f64; 2],
    shown: [String; 2],
}

/// Returns the figures of a column that both the paper and we have.
///
/// Figures of a very different size are left out: one of them would be a dot at zero.
fn pairs(of: &Table, column: usize) -> Vec<Pair> {
    let pair = |row: &Row| {
        let theirs = row.paper.first()?.cells.get(column)?.as_ref()?;
        let ours = row.ours.first()?.cells.get(column)?.as_ref()?;
        let ratio = ours.median / theirs.high;
        if theirs.unit != ours.unit || !(0.02..=50.0).contains(&ratio) {
            return None;
        }
        let ends = ours.ends();
        Some(Pair {
            row: row.label.clone(),
            paper: [theirs.low, theirs.high],
            ours: [ends.low, ends.high],
            shown: [theirs.to_string(), ours.unit.format(ours.median)],
        })
    };
    of.rows.iter().filter_map(pair).collect()
}

/// Draws the paper's figures above ours, one drawing with a scale from zero for each column.
fn drawings(of: &Table) -> Markup {
    html! {
        @for (number, column) in of.columns.iter().enumerate() {
            @let pairs = pairs(of, number);
            @if !pairs.is_empty() { (drawing(column, &pairs)) }
        }
    }
}

fn drawing(column: &str, pairs: &[Pair]) -> Markup {
    let shown = &pairs[..pairs.len().min(MOST_LINES)];
    let ends = shown
        .iter()
        .flat_map(|pair| [pair.paper, pair.ours])
        .flatten();
    let (low, high) = ends.fold((0.0f64, 0.0f64), |(low, high), end| {
        (low.min(end), high.max(end))
    });
    let height = LINE * shown.len() as f64 + 6.0;
    let x = |value: f64| {
        LEFT + (value - low) / (high - low).max(f64::MIN_POSITIVE) * (WIDTH - LEFT - 20.0)
    };
    let described = shown.iter().map(|pair| {
        format!(
            "{}: paper {}, ours {}",
            pair.row, pair.shown[0], pair.shown[1]
        )
    });
    let described: Vec<_> = described.collect();
    html! {
        figure {
            svg.dots viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(described.join("; ")) {
                line.axis x1=(x(0.0)) x2=(x(0.0)) y1="0" y2=(height) {}
                @for (i, pair) in shown.iter().enumerate() {
                    @let y = LINE * i as f64 + 14.0;
                    text x=(LEFT - 10.0) y=(y + 4.0) text-anchor="end" { (shortened(&pair.row)) }
                    (dot("A", x(pair.paper[0]), x(pair.paper[1]), y - 4.0))
                    (dot("B", x(pair.ours[0]), x(pair.ours[1]), y + 5.0))
                }
            }
            figcaption {
                b { (column) } ": " span.A { "paper (above)" } ", " span.B { "ours (below)" }
                ", with the interval where there is one; the line at the left is zero"
                @if pairs.len() > shown.len() { "; the first " (shown.len()) " of " (pairs.len()) }
            }
        }
    }
}

fn dot(class: &str, low: f64, high: f64, y: f64) -> Markup {
    html! {
        line.interval.(class) x1=(low) x2=(high) y1=(y) y2=(y) {}
        circle.(class) cx=((low + high) / 2.0) cy=(y) r="4" {}
    }
}

fn shortened(name: &str) -> String {
    const MOST: usize = 42;
    match name.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
