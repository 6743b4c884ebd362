//! `vmarea show graph`: VMAs, anon_vmas and the chains between them.

use super::target::{Source, moment};
use crate::command::explain;
use crate::pid::pid;
use anyhow::anyhow;
use clap::{ArgGroup, Args};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use vmarea_process::view::{KernelView, ViewError};
use vmarea_process::{AskKernel, Mapping, Process, Smaps};
use vmarea_report::graph::recorded::{Moment, Recorded, Survey};
use vmarea_report::graph::{Extent, Graph as Shown, LeftOut, Unattached, kernel, svg};
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Failure, Result, Status};
use vmarea_terminal::kind::Kind;
use vmarea_terminal::outputs::{JsonArg, Output, Outputs, PageArg, Target};

/// Default number of processes (columns) and of VMAs (rows) in a drawing.
const DRAWN_PROCESSES: usize = 8;
const DRAWN_VMAS: usize = 12;

/// Draw the graph of VMAs, anon_vmas and chains for processes that are related by fork.
///
/// Shows the anon_vma of each VMA, the other anon_vmas that it is linked to, and each anon_vma's
/// parent, root and counters, in the style of Matěna's thesis "VMA merging in Linux" (figures 2.8
/// and 2.9). For running processes only a part of the graph can be read from the kernel (with
/// CAP_BPF and CAP_PERFMON, or as root); a recording is replayed through vmarea's core, which knows
/// the whole graph.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("target").required(true).args(["pids", "trace", "command"]))]
pub struct Graph {
    /// One or more running processes, ancestors first (parent, child, grandchild)
    #[arg(short, long = "pid", value_name = "PID", num_args = 1.., value_parser = pid)]
    pids: Vec<i32>,

    /// The processes in a trace file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Moment to show in a recording: `widest` (the last one with the largest number of address
    /// spaces forked from each other), `end` (before the last address space ends), or N (after
    /// event N)
    #[arg(long, value_name = "widest|end|N", default_value = "widest", value_parser = parse_moment, conflicts_with = "pids")]
    at: Moment,

    /// Show VMAs without an anon_vma as well
    #[arg(long)]
    all: bool,

    /// Show at most N VMAs per process [default: 12 in a drawing, all elsewhere]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: Option<u64>,

    /// Write Graphviz's DOT language to FILE, or with `-` to standard output
    #[arg(long, value_name = "FILE|-")]
    dot: Option<Target>,

    /// Write a drawing to FILE, or with `-` to standard output
    #[arg(long, value_name = "FILE|-")]
    svg: Option<Target>,

    #[command(flatten)]
    json: JsonArg,

    #[command(flatten)]
    page: PageArg,

    /// A command to run and record
    #[arg(last = true, value_name = "-- COMMAND")]
    command: Vec<OsString>,
}

fn parse_moment(text: &str) -> std::result::Result<Moment, String> {
    let words = [("widest", Moment::Widest), ("end", Moment::End)];
    moment(text, words, Moment::Event)
}

/// Graph of the VMAs and anon_vmas of some processes.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Version of this structure.
    schema: u32,
    /// The graph.
    graph: Shown,
}

impl Graph {
    /// True if the command draws a trace.
    pub(super) fn reads_a_file(&self) -> bool {
        self.trace.is_some()
    }

    pub(super) fn run(&self, console: &Console) -> Result {
        let dot = Output::open_if_given(self.dot.as_ref(), Kind::DOT)?;
        let svg = Output::open_if_given(self.svg.as_ref(), Kind::SVG)?;
        let html = self.page.html.as_ref();
        let others = [self.dot.as_ref(), self.svg.as_ref(), html];
        let outputs = Outputs::open_beside(self.json.json.as_ref(), &others)?;
        let html = Output::open_if_given(html, Kind::HTML)?;
        let report = self.report(console)?;
        if let Some(html) = html {
            html.write(console, report.graph.page().as_bytes())?;
        }
        if let Some(svg) = svg {
            svg.write(console, self.drawing(&report).as_bytes())?;
        }
        if let Some(dot) = dot {
            let mut text = Vec::new();
            let (graph, left_out) = self.part(&report, usize::MAX, usize::MAX);
            graph.write_dot(&mut text, &left_out)?;
            dot.write(console, &text)?;
        }
        outputs.write(console, &report, |out| {
            match self.svg.is_some() || self.dot.is_some() {
                // A drawing takes the place of the text.
                true => Ok(()),
                false => self.write_text(out, &report),
            }
        })?;
        Ok(Exit::Ok)
    }

    fn report(&self, console: &Console) -> Result<Report> {
        let graph = if self.pids.is_empty() {
            self.recorded(console)?
        } else {
            live(&self.pids)?
        };
        Ok(Report { schema: 2, graph })
    }

    fn recorded(&self, console: &Console) -> Result<Shown> {
        let source = Source::open(console, self.trace.as_deref(), &self.command)?;
        let mut survey = Survey::default();
        source.events(console, |event| {
            survey.event(event);
            Ok(true)
        })?;
        let mut left = survey.events_until(self.at);
        let mut recorded = Recorded::new(&source.header()?)?;
        source.events(console, |event| {
            if left > 0 {
                left -= 1;
                recorded.event(event)?;
            }
            Ok(left > 0)
        })?;
        let graph = recorded.graph();
        if graph.processes.is_empty() {
            let what = anyhow!("there is no address space in the recording at this moment");
            return Err(Failure::new(Status::NothingToDo, what));
        }
        Ok(graph)
    }

    /// Returns the shown part of the graph, with counts of what is left out.
    fn part(&self, report: &Report, processes: usize, vmas: usize) -> (Shown, LeftOut) {
        let extent = Extent {
            processes,
            vmas: self.limit.map_or(vmas, |limit| limit as usize),
            unattached: if self.all {
                Unattached::Show
            } else {
                Unattached::Hide
            },
        };
        report.graph.select(extent)
    }

    fn drawing(&self, report: &Report) -> String {
        let (part, left_out) = self.part(report, DRAWN_PROCESSES, DRAWN_VMAS);
        svg::sheet(&part, &left_out)
    }

    fn write_text(&self, mut out: &mut dyn Write, report: &Report) -> io::Result<()> {
        let (graph, left_out) = self.part(report, usize::MAX, usize::MAX);
        graph.write_text(&mut out, &left_out)?;
        writeln!(out)
    }
}

/// Returns the graph of running processes.
fn live(pids: &[i32]) -> Result<Shown> {
    // Without the kernel's view there is nothing to draw, and only this call reports the reason.
    drop(KernelView::open().map_err(of_view)?);
    let mut processes: Vec<(String, Option<usize>, Vec<kernel::NamedVma>)> = Vec::new();
    let mut names = Vec::new();
    let mut changed = 0;
    for (at, &pid) in pids.iter().enumerate() {
        if pids[..at].contains(&pid) {
            continue;
        }
        let process = Process::live(pid, AskKernel::Try, Smaps::Never);
        let process = process.map_err(explain::failure)?;
        if let Some(why) = process.without_view {
            return Err(anyhow!(why).into());
        }
        changed += process.changed;
        let name = format!("process {pid} ({})", process.name);
        let vmas = process.mappings.iter().filter_map(named).collect();
        names.push(name.clone());
        processes.push((name, None, vmas));
    }
    let mut graph = kernel::graph(&names.join(", "), processes);
    if changed > 0 {
        graph.notes.push(format!(
            "{changed} mappings changed while they were read, and are left out"
        ));
    }
    Ok(graph)
}

/// Returns a mapping's VMA with its name; `None` if the mapping changed while it was being read.
fn named(mapping: &Mapping) -> Option<kernel::NamedVma> {
    let vma = mapping.kernel?;
    let name = mapping.entry.name.text();
    Some(kernel::NamedVma {
        name: name.rsplit('/').next().unwrap_or_default().to_owned(),
        vma,
    })
}

fn of_view(error: ViewError) -> Failure {
    let status = match &error {
        ViewError::Permission | ViewError::NoBtf(_) | ViewError::TooOld(_) => Status::Permission,
        _ => Status::Error,
    };
    Failure::new(status, error)
}
