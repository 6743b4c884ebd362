//! `vmarea-lab bench lookup`: the VMA index compared with its alternatives.

use super::{Document, interval_cells};
use clap::Args;
use std::io::Write;
use vmarea_experiments::lookup::{self, Gaps, Section};
use vmarea_explain::text::count;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Result};
use vmarea_terminal::outputs::JsonArg;
use vmarea_terminal::table::ruled;

/// Measure the VMA index against BTreeMap and two crates for range maps.
///
/// Measures lookups of random and of nearby addresses (with and without a per-thread cache), the
/// replacement of a range, and the search for a gap. Each operation runs on one thread, in rounds.
/// Ratios are relative to a BTreeMap under parking_lot's RwLock, the usual way to share a map
/// between threads.
#[derive(Debug, Args)]
pub struct Lookup {
    /// Number of VMAs; may be given several times
    #[arg(long = "vmas", value_name = "N", default_values_t = [10, 100, 1_000, 65_000, 1_000_000],
          value_parser = clap::value_parser!(u64).range(2..=lookup::MOST_VMAS))]
    sizes: Vec<u64>,

    /// Number of rounds; each round measures everything once
    #[arg(long, value_name = "N", default_value_t = 21, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,

    #[command(flatten)]
    json: JsonArg,
}

impl Lookup {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.json.open()?;
        let report = lookup::run(&self.sizes, self.rounds as usize);
        let document = Document::new(Some(self.rounds), &report);
        outputs.write(console, &document, |out| {
            for section in &report.sections {
                write_section(out, section)?;
            }
            write_gaps(out, &report.gaps)?;
            Ok(())
        })?;
        Ok(Exit::Ok)
    }
}

fn write_section(out: &mut dyn Write, section: &Section) -> std::io::Result<()> {
    writeln!(out, "{}, {} VMAs", section.what, count(section.vmas))?;
    let mut table = ruled(["", "each", "against\nRwLock", "interval"], 1);
    for row in &section.rows {
        let [ratio, interval] = interval_cells(row.ratio);
        let time = format!("{:.1} ns", row.nanoseconds);
        table.add_row([row.who.to_owned(), time, ratio, interval]);
    }
    writeln!(out, "{table}")?;
    if let Some(r) = section.cached {
        writeln!(
            out,
            "cached against uncached {:.2} ({:.2} to {:.2})",
            r.median, r.low, r.high
        )?;
    }
    writeln!(out)
}

fn write_gaps(out: &mut dyn Write, gaps: &Gaps) -> std::io::Result<()> {
    writeln!(
        out,
        "search for a gap: only one in the whole range of addresses is large enough"
    )?;
    let mut table = ruled(
        ["VMAs", "vmarea", "memory_set\n(walks)", "BTreeMap\n(walks)"],
        1,
    );
    for (vmas, times) in &gaps.sizes {
        let mut row = vec![count(*vmas)];
        row.extend(times.iter().map(|time| format!("{time:.1} ns")));
        table.add_row(row);
    }
    writeln!(out, "{table}")?;
    if let Some(r) = gaps.ratio {
        writeln!(
            out,
            "vmarea at 65,000 against vmarea at 100: {:.2} ({:.2} to {:.2})",
            r.median, r.low, r.high
        )?;
    }
    Ok(())
}
