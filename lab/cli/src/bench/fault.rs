//! `vmarea-lab bench fault`: the page-fault test under each kind of VMA lock.

use super::{Document, ratio_cells};
use clap::Args;
use std::io::Write;
use vmarea_experiments::fault::{Report, Setup, run};
use vmarea_explain::text::count;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Result};
use vmarea_terminal::outputs::JsonArg;
use vmarea_terminal::table::ruled;

/// Measure page faults of threads in separate VMAs, in one VMA, and while another thread maps.
///
/// Measures vmarea's core with each kind of VMA lock, and the running kernel with threads of this
/// process. The kernel's faults include a trap and real memory; vmarea's include neither. So
/// compare the kinds of lock with each other, and their ratios with the kernel's ratios.
#[derive(Debug, Args)]
pub struct Fault {
    /// Pages that each thread touches in a round (a sixteenth as many while another thread maps)
    #[arg(long, value_name = "N", default_value_t = 131_072)]
    pages: u64,

    /// Number of rounds; each round measures everything once
    #[arg(long, value_name = "N", default_value_t = 21, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,

    #[command(flatten)]
    json: JsonArg,
}

impl Fault {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.json.open()?;
        let report = run(&Setup {
            pages: self.pages,
            rounds: self.rounds as usize,
        })?;
        let document = Document::new(None, &report);
        outputs.write(console, &document, |out| write(out, &report))?;
        Ok(Exit::Ok)
    }
}

fn write(out: &mut dyn Write, report: &Report) -> std::io::Result<()> {
    for part in &report.tables {
        let pages = count(part.pages);
        writeln!(out, "{pages} pages per thread; {}", part.page)?;
        let mut table = ruled(
            [
                "",
                "one\nthread",
                "two threads,\na VMA each",
                "by the\nprocessor",
                "two threads,\none VMA",
                "by the\nprocessor",
                "one, another\nmaps",
                "by the\nprocessor",
                "took mmap_lock,\nof 1,000",
            ],
            1,
        );
        for row in &part.rows {
            let mut cells = vec![row.who.clone(), format!("{:.0} ns", row.nanoseconds)];
            for ratios in [&row.own, &row.shared, &row.disturbed] {
                cells.extend(ratio_cells(ratios));
            }
            let fell_back = row.fell_back_per_mille;
            cells.push(fell_back.map_or_else(|| "not counted".to_owned(), |n| format!("{n:.2}")));
            table.add_row(cells);
        }
        writeln!(out, "{table}\n")?;
    }
    writeln!(
        out,
        "ratios are of the speed to that of one thread alone in the same round, with an interval of at \
         least 95 %; the kernel's faults include a trap and real memory, vmarea's include neither"
    )?;
    match &report.kernel_uncounted {
        None => writeln!(
            out,
            "the kernel's uses of mmap_lock are those of the tracepoint mmap_lock_released in the \
             thread that touches pages"
        ),
        Some(why) => writeln!(out, "the kernel's uses of mmap_lock are not counted: {why}"),
    }
}
