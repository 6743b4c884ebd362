//! `vmarea-lab bench layout`: size, holes and cache lines of a VMA, and its total memory cost.

use super::Document;
use clap::Args;
use comfy_table::Table;
use std::io::Write;
use vmarea_experiments::layout::{Report, Row, run};
use vmarea_explain::text::count;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Result};
use vmarea_terminal::outputs::JsonArg;
use vmarea_terminal::table::ruled;

/// Measure a VMA's size, holes and cache lines under each kind of lock, and its total memory cost.
///
/// Repeats the measurements in the patch series that moved the lock into the VMA (Baghdasaryan,
/// 2024). The series reports 192 bytes in three cache lines, and 48 pages for 1,000 VMAs. The total
/// cost includes the memory that a VMA needs outside its own structure.
#[derive(Debug, Args)]
pub struct Layout {
    /// Number of VMAs in the address spaces whose memory is counted
    #[arg(long, value_name = "N", default_value_t = 65_000)]
    vmas: u64,

    #[command(flatten)]
    json: JsonArg,
}

impl Layout {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.json.open()?;
        let report = run(self.vmas)?;
        let document = Document::new(None, &report);
        outputs.write(console, &document, |out| write(out, &report))?;
        Ok(Exit::Ok)
    }
}

fn write(out: &mut dyn Write, report: &Report) -> std::io::Result<()> {
    if let Some(last) = report.rows.last() {
        fields(out, last)?;
    }
    writeln!(out, "{}\n", sizes(&report.rows))?;
    writeln!(out, "bytes for each of {} VMAs", count(report.vmas))?;
    writeln!(out, "{}", bytes_of_a_vma(&report.rows))
}

/// Returns a table of the VMA's size, cache lines and pages under each kind of lock.
fn sizes(rows: &[Row]) -> Table {
    let head = [
        "",
        "bytes",
        "lines",
        "unused",
        "in a page",
        "pages for\n1,000",
    ];
    let mut table = ruled(head, 1);
    for row in rows {
        let unused: usize = row.holes.iter().map(|(_, len)| len).sum();
        table.add_row([
            row.who.to_owned(),
            row.size.to_string(),
            row.lines.to_string(),
            unused.to_string(),
            row.per_page.to_string(),
            row.pages_per_1000.to_string(),
        ]);
    }
    table
}

/// Returns a table of the bytes that one VMA costs, by data structure.
fn bytes_of_a_vma(rows: &[Row]) -> Table {
    let head = [
        "",
        "",
        "slot",
        "lock\noutside",
        "chain",
        "anon_vma",
        "interval\ntree",
        "index",
        "all",
    ];
    let mut table = ruled(head, 2);
    for row in rows {
        for each in &row.bytes {
            let parts = [
                each.slot,
                each.lock,
                each.chain,
                each.anon_vma,
                each.rmap,
                each.index,
                each.total,
            ];
            let names = [row.who.to_owned(), each.vma.to_owned()];
            let bytes = parts.map(|part| format!("{part:.1}"));
            table.add_row(names.into_iter().chain(bytes));
        }
    }
    table
}

/// Writes the fields of the VMA under one kind of lock, one field per line.
fn fields(out: &mut dyn Write, row: &Row) -> std::io::Result<()> {
    writeln!(out, "VMA with the lock \"{}\": {} bytes", row.who, row.size)?;
    let mut table = ruled(["field", "offset", "bytes", "cache line"], 1);
    for field in &row.fields {
        let (first, last) = field.lines;
        table.add_row([
            field.name.to_owned(),
            field.offset.to_string(),
            field.size.to_string(),
            if first == last {
                first.to_string()
            } else {
                format!("{first} to {last}")
            },
        ]);
    }
    writeln!(out, "{table}\n")
}
