//! `vmarea-lab bench`: benchmarks, one file each.

mod brk;
pub(super) mod cache;
mod calls;
mod fault;
mod layout;
mod lookup;
pub(super) mod spacing;

use clap::Subcommand;
use serde::Serialize;
use std::io::{self, Write};
use vmarea_experiments::Ratio;
use vmarea_experiments::parallel::Ratios;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::Result;

/// Measure the core, and the running kernel for comparison
#[derive(Debug, Subcommand)]
pub enum Bench {
    Brk(brk::Brk),
    Fault(fault::Fault),
    Layout(layout::Layout),
    Cache(cache::Cache),
    Lookup(lookup::Lookup),
    Calls(calls::Calls),
    Spacing(spacing::Spacing),
}

impl Bench {
    pub(super) fn run(&self, console: &Console) -> Result {
        match self {
            Self::Brk(brk) => brk.run(console),
            Self::Fault(fault) => fault.run(console),
            Self::Layout(layout) => layout.run(console),
            Self::Cache(cache) => cache.run(console),
            Self::Lookup(lookup) => lookup.run(console),
            Self::Calls(calls) => calls.run(console),
            Self::Spacing(spacing) => spacing.run(console),
        }
    }
}

/// A result as JSON.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Document<T> {
    /// Version of this structure.
    schema: u32,
    /// Number of rounds; each round measures everything once.
    #[serde(skip_serializing_if = "Option::is_none")]
    rounds: Option<u64>,
    #[serde(flatten)]
    result: T,
}

impl<T> Document<T> {
    /// Adds the number of rounds to results that do not contain it.
    fn new(rounds: Option<u64>, result: T) -> Self {
        Self {
            schema: 1,
            rounds,
            result,
        }
    }
}

/// Formats wall-clock and processor ratios, each as a median above its interval.
fn ratio_cells(ratios: &Ratios) -> [String; 2] {
    [ratios.clock, ratios.processor].map(|ratio| interval_cells(ratio).join("\n").trim().to_owned())
}

/// Formats the median and the interval as separate cells.
fn interval_cells(ratio: Option<Ratio>) -> [String; 2] {
    ratio.map_or_else(Default::default, |r| {
        [
            format!("{:.2}", r.median),
            format!("{:.2} to {:.2}", r.low, r.high),
        ]
    })
}

/// Prints why the kernel's row is missing.
fn without_kernel(out: &mut dyn Write, why: Option<&str>) -> io::Result<()> {
    why.map_or(Ok(()), |why| {
        writeln!(out, "the kernel was not measured: {why}")
    })
}
