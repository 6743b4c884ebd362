//! `vmarea-lab bench calls`: calls that affect an address space, in the core and in the kernel.

use super::{Document, interval_cells, without_kernel};
use clap::Args;
use std::io::Write;
use vmarea_experiments::calls::{self, Report, Row};
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Result};
use vmarea_terminal::outputs::JsonArg;
use vmarea_terminal::table::ruled;

/// Measure mmap, munmap, mprotect, mremap and fork, in the core and in the running kernel.
///
/// The core and the kernel execute the same series of calls on VMAs without pages, and also fork
/// VMAs with one page each. The kernel's figures include a trap for each call and a hardware page
/// table; vmarea's include neither. The kernel's fork is timed until the child responds. So the
/// figures show the cost of the work, not which code is faster.
#[derive(Debug, Args)]
pub struct Calls {
    /// Number of rounds; each round measures everything once
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,

    #[command(flatten)]
    json: JsonArg,
}

impl Calls {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.json.open()?;
        let report = calls::run(self.rounds as usize)?;
        let document = Document::new(Some(self.rounds), &report);
        outputs.write(console, &document, |out| write(out, &report))?;
        Ok(Exit::Ok)
    }
}

fn write(out: &mut dyn Write, report: &Report) -> std::io::Result<()> {
    let mut table = ruled(
        [
            "",
            "core",
            "kernel\n(with traps)",
            "core against\nkernel",
            "interval",
        ],
        1,
    );
    for row in &report.rows {
        table.add_row(cells(row));
    }
    writeln!(out, "{table}")?;
    without_kernel(out, report.without_kernel.as_deref())?;
    writeln!(
        out,
        "the kernel's figures include a trap for each call and a hardware page table, vmarea's include \
         neither;\na fork of the kernel is measured until the child responds"
    )
}

fn time(ns: f64) -> String {
    if ns < 100_000.0 {
        format!("{ns:.0} ns")
    } else {
        format!("{:.2} ms", ns / 1e6)
    }
}

fn cells(row: &Row) -> Vec<String> {
    let [ratio, interval] = interval_cells(row.ratio);
    vec![
        row.what.clone(),
        time(row.core_ns),
        row.kernel_ns.map_or_else(|| "?".to_owned(), time),
        ratio,
        interval,
    ]
}
