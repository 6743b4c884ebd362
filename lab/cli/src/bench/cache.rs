//! `vmarea-lab bench cache`: lookup caches on recorded programs.

use super::super::recording;
use super::{Document, interval_cells};
use anyhow::{Context, anyhow};
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use vmarea_experiments::cache::{self, Text, Workloads};
use vmarea_explain::text::count;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Failure, Result, Status};
use vmarea_terminal::outputs::JsonArg;
use vmarea_terminal::table::ruled;
use vmarea_trace::Reader;

/// Measure the hit rates of lookup caches on recorded programs, and the cost of a lookup.
///
/// Records the kinds of program used in the published measurements of `vmacache` (many short
/// programs, a parallel build, an analytical query, threads that allocate and search), or reads
/// existing traces. Every cache gets the same lookups: one for each page fault, and those made by
/// calls that affect an address space. The kernel's other lookups are not recorded. `bound` is the
/// best possible hit rate of a per-thread cache: only a thread's first access to each VMA misses.
#[derive(Debug, Args)]
pub struct Cache {
    /// Traces to measure instead of recording programs
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Number of rounds; each round measures every cache once
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,

    #[command(flatten)]
    json: JsonArg,
}

/// The results: one table for each program.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tables {
    /// One table for each program.
    tables: Vec<cache::Table>,
    /// Names of the unavailable programs, with the reasons.
    missing: Vec<String>,
}

impl Cache {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.json.open()?;
        let (tables, missing) = if self.traces.is_empty() {
            self.programs(console)?
        } else {
            (self.given()?, Vec::new())
        };
        let tables = Tables { tables, missing };
        let document = Document::new(Some(self.rounds), &tables);
        outputs.write(console, &document, |out| tables.write(out))?;
        Ok(Exit::Ok)
    }

    fn given(&self) -> Result<Vec<cache::Table>> {
        let mut tables = Vec::new();
        for path in &self.traces {
            let shown = path.display().to_string();
            let reader = Reader::open(path).with_context(|| format!("cannot read {shown}"))?;
            let table = cache::measure(&shown, None, reader, self.rounds as usize);
            tables.push(table.with_context(|| shown)?);
        }
        Ok(tables)
    }

    fn programs(&self, console: &Console) -> Result<(Vec<cache::Table>, Vec<String>)> {
        let workloads = Workloads::prepare().context("cannot prepare the programs")?;
        if workloads.all.is_empty() {
            let why = anyhow!("{}", workloads.missing.join("; "));
            return Err(Failure::new(Status::NothingToDo, why));
        }
        let mut tables = Vec::new();
        for workload in &workloads.all {
            console.note(&format!("recording {}", workload.name));
            let trace = recording::to_file(console, &workload.command)?;
            let reader = Reader::new(trace)?;
            let rounds = self.rounds as usize;
            let table = cache::measure(&workload.name, workload.text, reader, rounds);
            tables.push(table.with_context(|| workload.name.clone())?);
        }
        Ok((tables, workloads.missing))
    }
}

impl Tables {
    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for report in &self.tables {
            writeln!(
                out,
                "{}: {} lookups by faults, {} by calls; {} threads, at most {} VMAs",
                report.name,
                count(report.by_faults),
                count(report.by_calls),
                count(report.threads),
                count(report.most_vmas),
            )?;
            let mut table = ruled(
                [
                    "cache",
                    "hits",
                    "of the\nbound",
                    "in turn\n(simulated)",
                    "a lookup",
                    "against\nnone",
                    "interval",
                    "published, on\nanother machine",
                ],
                1,
            );
            for row in &report.rows {
                table.add_row(cells(row, report.text));
            }
            table.add_row(vec![
                "optimum".to_owned(),
                format!("{:.2} %", report.optimum_rate),
                format!(
                    "{:.1} %",
                    100.0 * report.optimum as f64 / report.bound.max(1) as f64
                ),
            ]);
            table.add_row(vec![
                "bound".to_owned(),
                format!("{:.2} %", report.bound_rate),
                "100.0 %".to_owned(),
            ]);
            writeln!(out, "{table}\n")?;
        }
        writeln!(
            out,
            "one lookup for each page fault, and those of calls that change an address space; the bound is the \
         best rate\nof a per-thread cache, whose first lookup of each VMA is a miss, and the optimum that of \
         one with four\nentries; in turn: a simulated order, as if every thread had its own processor. Times \
         include misses, on\none thread"
        )?;
        for why in &self.missing {
            writeln!(out, "left out: {why}")?;
        }
        Ok(())
    }
}

fn cells(row: &cache::Row, text: Option<Text>) -> Vec<String> {
    let [ratio, interval] = interval_cells(row.ratio);
    let theirs = text.and_then(|text| match row.cache {
        "last used" => Some(format!("{} {:.2} %", text.program, text.last_used)),
        "vmacache" => Some(format!("{:.2} %", text.vmacache)),
        _ => None,
    });
    vec![
        row.cache.to_owned(),
        format!("{:.2} %", row.hit_rate),
        format!("{:.1} %", row.of_bound),
        format!("{:.2} %", row.hit_rate_in_turn),
        format!("{:.1} ns", row.nanoseconds),
        ratio,
        interval,
        theirs.unwrap_or_default(),
    ]
}
