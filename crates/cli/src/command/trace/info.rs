//! `vmarea trace info`: the content of a trace.

use super::{failure, open};
use crate::failed_calls::{self, Collector};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use vmarea_explain::spaces::Spaces;
use vmarea_explain::text::{count, plural};
use vmarea_replay::FailedCalls;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Result};
use vmarea_terminal::outputs::JsonArg;
use vmarea_trace::date;
use vmarea_trace::event::{Event, Header};

/// Show what a trace contains and whether it is complete.
#[derive(Debug, Args)]
pub struct Info {
    /// The trace file
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    #[command(flatten)]
    json: JsonArg,
}

/// Counts of the events in a trace.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Version of this structure.
    schema: u32,
    /// Size of the trace in bytes.
    bytes: u64,
    /// Number of events.
    events: u64,
    /// Number of events by kind.
    kinds: BTreeMap<&'static str, u64>,
    /// Number of address spaces.
    address_spaces: u64,
    #[serde(skip)]
    spaces: Spaces,
    /// Number of samples that the recorder lost.
    lost: u64,
    /// Nanoseconds from the first event with a timestamp to the end of the trace.
    span_ns: u64,
    /// Wait status of the command, if the trace is complete.
    status: Option<i32>,
    /// Memory calls that failed, with the reason that a replay gives.
    failed_calls: Vec<FailedCalls>,
    /// The machine and the recording.
    header: Header,
}

impl Info {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.json.open()?;
        let bytes = self.trace.metadata().map_or(0, |data| data.len());
        let reader = open(&self.trace)?;
        let mut summary = Summary::new(bytes, reader.header().clone());
        let mut failed = Collector::new(reader.header());
        let mut span = None;
        let mut stopped = None;
        for event in reader {
            match event {
                Ok(event) => {
                    summary.add(&event, &mut span);
                    failed.event(&event);
                }
                Err(error) => stopped = Some(error),
            }
        }
        summary.failed_calls = failed.finish();
        outputs.write(console, &summary, |out| summary.write_text(console, out))?;
        match stopped {
            Some(error) => Err(failure(&self.trace, error)),
            None => Ok(Exit::Ok),
        }
    }
}

impl Summary {
    fn new(bytes: u64, header: Header) -> Self {
        Self {
            schema: 1,
            bytes,
            events: 0,
            kinds: BTreeMap::new(),
            address_spaces: 0,
            spaces: Spaces::default(),
            lost: 0,
            span_ns: 0,
            status: None,
            failed_calls: Vec::new(),
            header,
        }
    }

    fn add(&mut self, event: &Event, first: &mut Option<u64>) {
        let (kind, time) = describe(event);
        self.events += 1;
        self.spaces.follow(event);
        self.address_spaces = self.spaces.count();
        *self.kinds.entry(kind).or_default() += 1;
        if let Some(time) = time {
            let first = *first.get_or_insert(time);
            self.span_ns = self.span_ns.max(time.saturating_sub(first));
        }
        match event {
            Event::Lost { count, .. } => self.lost = self.lost.saturating_add(*count),
            Event::End { status, .. } => self.status = Some(*status),
            _ => {}
        }
    }

    fn write_text(&self, console: &Console, out: &mut dyn Write) -> std::io::Result<()> {
        let header = &self.header;
        writeln!(out, "command    {}", header.command.join(" "))?;
        writeln!(
            out,
            "kernel     {} {}, pages of {} bytes",
            header.kernel_release, header.machine, header.page_size
        )?;
        writeln!(out, "written by {}", header.writer)?;
        if let Some(time) = header.started_unix_ms {
            writeln!(out, "started    {}", date::utc(time))?;
        }
        writeln!(
            out,
            "faults     {:?}{}",
            header.faults,
            if header.kernel_view {
                ", with the kernel's own view"
            } else {
                ""
            }
        )?;
        let per_event = self.bytes as f64 / self.events.max(1) as f64;
        writeln!(
            out,
            "size       {}, {} events, {per_event:.2} bytes an event",
            console.size(self.bytes),
            count(self.events)
        )?;
        writeln!(
            out,
            "time       {:.3} s in {}",
            self.span_ns as f64 * 1e-9,
            plural(self.address_spaces, "address space")
        )?;
        for (kind, n) in &self.kinds {
            writeln!(out, "  {kind:<10} {:>12}", count(*n))?;
        }
        if self.lost > 0 {
            writeln!(out, "lost       {} samples", count(self.lost))?;
        }
        for (name, value) in &header.settings {
            writeln!(out, "  {name} = {value}")?;
        }
        failed_calls::write(out, &self.failed_calls)
    }
}

/// Returns the name of the event's kind, and its time if it has one.
fn describe(event: &Event) -> (&'static str, Option<u64>) {
    match event {
        Event::Inode(_) => ("inode", None),
        Event::MmStart(start) => ("mm start", Some(start.t)),
        Event::MmEnd { t, .. } => ("mm end", Some(*t)),
        Event::TaskStart { t, .. } => ("task start", Some(*t)),
        Event::TaskEnd { t, .. } => ("task end", Some(*t)),
        Event::Call(call) => ("call", Some(call.t)),
        Event::Fault(fault) => ("fault", Some(fault.t)),
        Event::Touch(touch) => ("touch", Some(touch.t)),
        Event::Snapshot(snapshot) => ("snapshot", Some(snapshot.t)),
        Event::Lost { t, .. } => ("lost", Some(*t)),
        Event::Note(_) => ("note", None),
        Event::End { t, .. } => ("end", Some(*t)),
    }
}
