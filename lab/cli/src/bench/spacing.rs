//! `vmarea-lab bench spacing`: tables 4.2 and 4.3 of Matěna's thesis, and the same for other mapping
//! sizes.

use super::{Document, interval_cells, without_kernel};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::Write;
use vmarea_experiments::spacing::{AnonVmas, Report, Row, Setup, SpacingError, run};
use vmarea_explain::text::count;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Result};
use vmarea_terminal::outputs::JsonArg;
use vmarea_terminal::table::ruled;

/// Close the gaps between mappings by moving the mappings together, and count the merges.
///
/// Runs the spacing speed test of Matěna's thesis "VMA merging in Linux" in vmarea's core under
/// `linux-5.18`, `thesis` and `vmarea`, and on the running kernel with real calls from a child
/// process. Only the moves are measured. The kernel's time includes a trap for each move and
/// vmarea's does not, so compare the policies with each other, and the kernel only with itself.
#[derive(Debug, Args)]
pub struct Spacing {
    /// Mappings to move together
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    mappings: u64,

    /// Whether the mappings share one anon_vma or have one each
    #[arg(long, value_name = "same|diff", default_value = "diff")]
    av: Av,

    /// Pages of each mapping
    #[arg(long, value_name = "N", default_value_t = 1)]
    pages: u64,

    /// Measure mappings of 1, 16, 512 and 4,096 pages, with fewer mappings at larger sizes
    #[arg(long, conflicts_with = "pages")]
    curve: bool,

    /// Number of rounds; each round measures everything once
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,

    #[command(flatten)]
    json: JsonArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Av {
    Same,
    Diff,
}

impl Spacing {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.json.open()?;
        let setup = Setup {
            mappings: self.mappings,
            pages: self.pages,
            anon_vmas: match self.av {
                Av::Same => AnonVmas::Same,
                Av::Diff => AnonVmas::Different,
            },
        };
        let setups = if self.curve {
            setup.curve()
        } else {
            vec![setup]
        };
        let tables: Vec<Report> = setups
            .iter()
            .map(|setup| run(setup, self.rounds as usize))
            .collect::<std::result::Result<_, SpacingError>>()?;
        let tables = Tables { tables };
        let document = Document::new(Some(self.rounds), &tables);
        outputs.write(console, &document, |out| tables.write(out))?;
        Ok(Exit::Ok)
    }
}

/// The results: one table for each mapping size.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tables {
    /// One table for each mapping size.
    tables: Vec<Report>,
}

impl Tables {
    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for report in &self.tables {
            write(out, report)?;
        }
        writeln!(
            out,
            "the time is that of the moves alone, the ratio is to linux-5.18 in the same round, with an \
             interval of at least 95 %; the kernel's time includes a trap for each move, vmarea's does not"
        )
    }
}

fn write(out: &mut dyn Write, report: &Report) -> std::io::Result<()> {
    let Setup {
        mappings,
        pages,
        anon_vmas,
    } = report.setup;
    let av = match anon_vmas {
        AnonVmas::Same => "the same anon_vma",
        AnonVmas::Different => "different anon_vmas",
    };
    writeln!(
        out,
        "{} mappings of {} page{}, {av}",
        count(mappings),
        count(pages),
        if pages == 1 { "" } else { "s" }
    )?;
    let mut table = ruled(
        [
            "",
            "time",
            "ratio",
            "interval",
            "merges of\ndifferent AVs",
            "page offset\nupdates",
            "failed\nmerges",
            "VMAs\nat the end",
        ],
        1,
    );
    for row in &report.rows {
        table.add_row(cells(row));
    }
    writeln!(out, "{table}")?;
    without_kernel(out, report.without_kernel.as_deref())?;
    writeln!(out)
}

fn cells(row: &Row) -> Vec<String> {
    let number = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), count);
    let [ratio, interval] = interval_cells(row.ratio);
    vec![
        row.who.clone(),
        format!("{:.2} ms", row.seconds * 1000.0),
        ratio,
        interval,
        number(row.different),
        number(row.page_offsets),
        number(row.failed),
        count(row.vmas),
    ]
}
