//! `vmarea-lab bench brk`: the cost of moving the break, with and without the reverse map's lock.

use super::{Document, ratio_cells, without_kernel};
use clap::Args;
use std::io::Write;
use vmarea_experiments::brk::{Report, Setup, run};
use vmarea_explain::text::count;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Result};
use vmarea_terminal::outputs::JsonArg;
use vmarea_terminal::table::ruled;

/// Measure related processes that raise their break: one alone, and two at once.
///
/// Measures vmarea's core with each kind of VMA lock, both with the reverse map's lock taken in
/// every call (as Linux does now) and with that lock taken only when needed. For comparison,
/// measures the running kernel with real calls from unrelated child processes. The kernel's time
/// includes a trap for each call; vmarea's does not.
#[derive(Debug, Args)]
pub struct Brk {
    /// How often each process raises its break in a round
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    calls: u64,

    /// Number of rounds; each round measures everything once
    #[arg(long, value_name = "N", default_value_t = 21, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,

    #[command(flatten)]
    json: JsonArg,
}

impl Brk {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.json.open()?;
        let report = run(&Setup {
            calls: self.calls,
            rounds: self.rounds as usize,
        })?;
        let document = Document::new(None, &report);
        outputs.write(console, &document, |out| write(out, &report))?;
        Ok(Exit::Ok)
    }
}

fn write(out: &mut dyn Write, report: &Report) -> std::io::Result<()> {
    let calls = count(report.setup.calls);
    writeln!(
        out,
        "{calls} calls per process, each raises the break by a page"
    )?;
    let mut table = ruled(
        [
            "",
            "lock of the\nreverse map",
            "taken, of\n1,000 calls",
            "one\nprocess",
            "two\nprocesses",
            "by the\nprocessor",
            "one beside\nwalks",
            "by the\nprocessor",
            "when needed\nto always",
            "by the\nprocessor",
        ],
        2,
    );
    for row in &report.rows {
        let lock = match row.always {
            Some(true) => "always",
            Some(false) => "when needed",
            None => "",
        };
        let taken = row.locked_per_mille;
        let mut cells = vec![
            row.who.clone(),
            lock.to_owned(),
            taken.map_or_else(String::new, |n| format!("{n:.2}")),
            format!("{:.0} ns", row.nanoseconds),
        ];
        cells.extend(ratio_cells(&row.two));
        for ratios in [&row.walked, &row.shortcut] {
            cells.extend(ratios.as_ref().map_or_else(Default::default, ratio_cells));
        }
        table.add_row(cells);
    }
    writeln!(out, "{table}")?;
    without_kernel(out, report.without_kernel.as_deref())?;
    writeln!(
        out,
        "ratios are of speeds in the same round, with an interval of at least 95 %; the kernel's time includes \
         a trap for each call, and its two processes are not of one family"
    )
}
