//! `vmarea-lab graph`: the graph of anon_vmas in the core, compared with that of the running kernel.
//!
//! A parent, a child and a grandchild take the same steps in the core and as real processes.

mod in_kernel;
mod isomorphism;
#[cfg(test)]
mod tests;

use clap::Args;
use in_kernel::GraphError;
use isomorphism::{Verdict, compare};
use serde::Serialize;
use std::io::{self, Write};
use vmarea::policy::Policy;
use vmarea_process::view::{KernelView, ViewError};
use vmarea_report::graph::{Graph as Shown, LeftOut, family};
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Failure, Result, Status};
use vmarea_terminal::outputs::JsonArg;

/// Compare the core's graph of VMAs, anon_vmas and chains with the running kernel's
///
/// A parent, a child and a grandchild make the same calls in the core and as real processes. The
/// two graphs must be equal up to the names of the anon_vmas. The kernel's is read with CAP_BPF and
/// CAP_PERFMON, or as root; without them, only the core's is shown.
#[derive(Debug, Args)]
pub struct Graph {
    #[command(flatten)]
    json: JsonArg,
}

/// The graph of a family of processes in the core, and the running kernel's.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Version of this structure.
    schema: u32,
    /// The core's graph.
    core: Shown,
    /// The running kernel's graph.
    kernel: Option<Shown>,
    /// Result of comparing the core's graph with the kernel's.
    verdict: Option<Verdict>,
    /// Reason why the kernel's graph is missing.
    without_kernel: Option<String>,
}

impl Graph {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.json.open()?;
        let report = Report::make()?;
        outputs.write(console, &report, |out| report.write_text(out))?;
        Ok(match &report.verdict {
            Some(verdict) if !verdict.isomorphic => Exit::Differs,
            _ => Exit::Ok,
        })
    }
}

impl Report {
    /// Builds both graphs; omits the kernel's if the kernel's data cannot be read.
    fn make() -> Result<Report> {
        let core = family::in_core(Policy::LINUX)?;
        let (kernel, without_kernel) = match KernelView::open() {
            Ok(eye) => (Some(in_kernel::in_kernel(&eye).map_err(failure)?), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Ok(Report {
            schema: 1,
            verdict: kernel.as_ref().map(|kernel| compare(&core, kernel)),
            core,
            kernel,
            without_kernel,
        })
    }

    fn write_text(&self, mut out: &mut dyn Write) -> io::Result<()> {
        for graph in std::iter::once(&self.core).chain(&self.kernel) {
            graph.write_text(&mut out, &LeftOut::default())?;
            writeln!(out)?;
        }
        if let Some(why) = &self.without_kernel {
            writeln!(out, "without the running kernel's graph: {why}")?;
        }
        match &self.verdict {
            Some(verdict) => writeln!(out, "{}", verdict.text()),
            None => Ok(()),
        }
    }
}

fn failure(error: GraphError) -> Failure {
    let status = match &error {
        GraphError::View(ViewError::Permission) => Status::Permission,
        _ => Status::Error,
    };
    Failure::new(status, error)
}
