//! The results as text: in every row, the paper's figures with ours below.

use comfy_table::Table as Ruled;
use std::io::{self, Write};
use vmarea_experiments::experiment::Document;
use vmarea_experiments::experiment::figure::Figure;
use vmarea_experiments::experiment::report::{Report, Row, Table};
use vmarea_terminal::table::ruled_columns;

/// Width of the text in columns, that of a usual terminal.
const WIDTH: usize = 80;

/// Writes the whole document.
pub(super) fn write(out: &mut dyn Write, document: &Document) -> io::Result<()> {
    let header = &document.header;
    writeln!(out, "machine  {}", header.machine)?;
    writeln!(out, "kernel   {}", header.kernel)?;
    writeln!(out, "load     {:.1} before the experiment", header.load)?;
    writeln!(out, "command  {}", header.command)?;
    if !header.optimised {
        writeln!(out, "build    not optimised: times mean nothing")?;
    }
    for report in &document.experiments {
        writeln!(out)?;
        experiment(out, report)?;
    }
    Ok(())
}

fn experiment(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    writeln!(out, "== {}, {:.0} s", report.name, report.seconds)?;
    wrapped(out, "", report.paper)?;
    for table in &report.tables {
        writeln!(out)?;
        wrapped(out, "", &format!("{} ({})", table.title, table.source))?;
        for paragraph in &table.about {
            wrapped(out, "  ", paragraph)?;
        }
        writeln!(out, "{}", ruled_table(table))?;
    }
    for (title, lines) in [
        ("substituted:", &report.substituted),
        ("left out by --quick:", &report.shortened),
        ("left out:", &report.missing),
    ] {
        if !lines.is_empty() {
            writeln!(out, "\n{title}")?;
        }
        for line in lines {
            wrapped(out, "- ", line)?;
        }
    }
    if !report.claims.is_empty() {
        writeln!(out, "\nclaims:")?;
    }
    for claim in &report.claims {
        wrapped(
            out,
            "- ",
            &format!("{}: {}", claim.decision.text(), claim.text),
        )?;
        wrapped(out, "    paper: ", &claim.paper)?;
        wrapped(out, "    ours:  ", &claim.ours)?;
        if let Some(refuted_by) = &claim.refuted_by {
            wrapped(out, "    refuted by: ", refuted_by)?;
        }
    }
    Ok(())
}

fn ruled_table(table: &Table) -> Ruled {
    let labelled = table.rows.iter().any(|row| !row.label.is_empty());
    let mut headings = vec![String::new(); 1 + usize::from(labelled)];
    let numbers = headings.len();
    headings.extend(table.columns.iter().cloned());
    let mut ruled = ruled_columns(&headings, numbers);
    for row in &table.rows {
        let mut cells = joined(&lines(row, table.with_means));
        if labelled {
            cells.insert(0, row.label.clone());
        }
        ruled.add_row(cells);
    }
    ruled
}

/// Returns the lines of a row, first the paper's, then ours; the first cell names the source.
fn lines(row: &Row, with_means: bool) -> Vec<Vec<String>> {
    let named = |side: &str, who: &str| format!("{side} {who}").trim().to_owned();
    let paper = row.paper.iter().map(|line| {
        let cells = line.cells.iter();
        let text = cells.map(|cell| cell.map_or_else(String::new, |cell| cell.to_string()));
        let first = [named("paper", &line.who)];
        first.into_iter().chain(text).collect()
    });
    let ours = row.ours.iter().map(|line| {
        let cells = line.cells.iter();
        let text = cells.map(|cell| {
            cell.as_ref()
                .map_or_else(String::new, |f| figure(f, with_means))
        });
        let first = [named("ours", &line.who)];
        first.into_iter().chain(text).collect()
    });
    paper.chain(ours).collect()
}

/// Joins the lines of a row into one cell per column, so that no horizontal rule separates them.
fn joined(lines: &[Vec<String>]) -> Vec<String> {
    let columns = lines.first().map_or(0, Vec::len);
    let mut cells = vec![Vec::new(); columns];
    for line in lines {
        let height = line.iter().map(|cell| cell.lines().count()).max();
        for (cell, text) in cells.iter_mut().zip(line) {
            let rows = text.lines().chain(std::iter::repeat(""));
            cell.extend(rows.take(height.unwrap_or(1)));
        }
    }
    cells.iter().map(|rows| rows.join("\n")).collect()
}

/// Formats the median, its interval, and the interval of the mean, one per line.
fn figure(figure: &Figure, with_means: bool) -> String {
    let mut text = figure.unit.format(figure.median);
    if figure.runs.len() < 2 {
        return text;
    }
    let mean = figure.mean_text().filter(|_| with_means);
    let mean = mean.map(|mean| format!("mean {mean}"));
    for line in [figure.interval_text(), mean].into_iter().flatten() {
        text += &format!("\n{line}");
    }
    text
}

/// Writes `mark` and the text, wrapped at [`WIDTH`] columns and aligned after the mark.
fn wrapped(out: &mut dyn Write, mark: &str, text: &str) -> io::Result<()> {
    let mut line = mark.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let width = line.chars().count() + 1 + word.chars().count();
        if !is_empty && width > WIDTH {
            writeln!(out, "{line}")?;
            line = " ".repeat(mark.len());
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    writeln!(out, "{line}")
}
