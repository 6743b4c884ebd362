//! `vmarea export`: a trace in the formats of other programs, one file here for each format.
//!
//! Each format is an option that names its output; several may be given, and each reads the trace
//! by itself.

mod folded;
mod parquet;
mod perfetto;

use anyhow::anyhow;
use clap::Args;
use std::path::PathBuf;
use vmarea_replay::PolicyName;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Failure, Result, Status};
use vmarea_terminal::outputs::{Target, only_one_on_stdout};

/// Write a trace in a format that other programs read.
#[derive(Debug, Args)]
pub struct Export {
    /// The trace file
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Write the calls, merges, splits and numbers of mappings over time in the Chrome trace
    /// format, which Perfetto (ui.perfetto.dev), chrome://tracing and speedscope show
    #[arg(long, value_name = "FILE|-")]
    perfetto: Option<Target>,

    /// Write the calls that made the mappings of the moment with the most, one line each with the
    /// number of mappings, from which flame graphs can be drawn
    #[arg(long, value_name = "FILE|-")]
    folded: Option<Target>,

    /// Write tables of the events, the numbers of VMAs over time, the merge attempts with the
    /// verdict of each policy, and the differences from the kernel, as Parquet files in a folder
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,

    /// With --parquet: replay also under this policy; may be given several times, as for `replay`
    #[arg(long = "policy", value_name = "POLICY", requires = "parquet",
          default_values = ["linux", "linux-5.10", "thesis", "vmarea"])]
    policies: Vec<PolicyName>,
}

impl Export {
    pub(super) fn run(&self, console: &Console) -> Result {
        if self.perfetto.is_none() && self.folded.is_none() && self.parquet.is_none() {
            let missing = anyhow!("name a format: --perfetto FILE, --folded FILE or --parquet DIR");
            return Err(Failure::new(Status::Usage, missing));
        }
        if self.perfetto == Some(Target::Stdout) && self.folded == Some(Target::Stdout) {
            return Err(only_one_on_stdout());
        }
        if let Some(target) = &self.perfetto {
            perfetto::write(console, &self.trace, target)?;
        }
        if let Some(target) = &self.folded {
            folded::write(console, &self.trace, target)?;
        }
        if let Some(folder) = &self.parquet {
            parquet::write(console, &self.trace, folder, &self.policies)?;
        }
        Ok(Exit::Ok)
    }
}
