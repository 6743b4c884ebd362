//! `vmarea compare`: two policies on one or more traces.

mod html;
mod text;

use crate::sink::TRACE;
use anyhow::{Context, anyhow};
use clap::Args;
use serde::Serialize;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use vmarea_explain::text::count;
use vmarea_replay::PolicyName;
use vmarea_replay::compare::{Compared, Comparison, VMA_BYTES};
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Failure, Result, Status};
use vmarea_terminal::kind::Kind;
use vmarea_terminal::outputs::{JsonArg, Output, Outputs, PageArg};
use vmarea_terminal::progress::Meter;
use vmarea_trace::{Error as TraceError, Reader};

/// Compare two policies on recorded traces: where they first part, and what each of them merges.
///
/// Each trace is replayed under both policies. The result shows the first call that differs, with
/// what each policy decided and why, then all differences by call and place, the number of mappings
/// over time, and the merges that only one policy makes. The rules of two kernels are compared in
/// the same way: `--policy linux-6.12 --policy linux`.
///
/// A trace that cannot be read is reported in one line, and the others are compared; the exit
/// status is then 6.
#[derive(Debug, Args)]
pub struct Compare {
    /// Trace files, or folders of trace files
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,

    /// A policy, given twice: a name with switches and rules, or a file, as for `replay`. `linux`
    /// stands for the rules of the recorded kernel
    #[arg(long = "policy", value_name = "POLICY", required = true)]
    policies: Vec<PolicyName>,

    /// Show N differences of each trace, the most frequent first
    #[arg(long, value_name = "N", default_value_t = 10)]
    differences: usize,

    #[command(flatten)]
    json: JsonArg,

    #[command(flatten)]
    page: PageArg,
}

/// The result, as `--json` writes it.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Document {
    /// Version of the JSON schema.
    schema: u32,
    /// Names of the policies.
    policies: Vec<String>,
    /// Memory in bytes that one VMA takes.
    vma_bytes: u64,
    /// Results of the traces that could be read.
    traces: Vec<OfTrace>,
    /// Traces that could not be read, or only in part.
    failed: Vec<Failed>,
    /// Files in folders that are not traces.
    skipped: Vec<String>,
}

/// Result of one trace.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct OfTrace {
    /// Path of the trace.
    trace: String,
    /// False if the trace could only be read up to some event.
    complete: bool,
    #[serde(flatten)]
    compared: Compared,
}

/// A trace that could not be read, or only in part.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Failed {
    /// Path of the trace.
    trace: String,
    /// The reason.
    why: String,
}

impl Compare {
    pub(super) fn run(&self, console: &Console) -> Result {
        let [a, b] = &self.policies[..] else {
            return Err(usage("two policies are compared: give --policy twice"));
        };
        if a.policy().name == b.policy().name {
            return Err(usage(
                "both policies have the same name: give two different ones",
            ));
        }
        let html = self.page.html.as_ref();
        let outputs = Outputs::open_beside(self.json.json.as_ref(), &[html])?;
        let html = Output::open_if_given(html, Kind::HTML)?;
        let mut document = Document {
            schema: 1,
            policies: vec![a.to_string(), b.to_string()],
            vma_bytes: VMA_BYTES,
            ..Document::default()
        };
        self.compare(console, [a, b], &mut document);
        let line = |failed: &Failed| format!("{}: {}", failed.trace, failed.why);
        let (last, others) = match document.failed.split_last() {
            // If nothing was compared, the command fails with the last reason.
            Some((last, others)) if document.traces.is_empty() => (Some(line(last)), others),
            _ => (None, &document.failed[..]),
        };
        for failed in others {
            console.complain(&line(failed));
        }
        if document.traces.is_empty() && document.failed.is_empty() {
            let folders: Vec<_> = self
                .traces
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            let what = anyhow!("there are no traces in {}", in_short(&folders));
            return Err(Failure::new(Status::NothingToDo, what));
        }
        let most = self.differences;
        outputs.write(console, &document, |out| text::write(out, &document, most))?;
        if let Some(html) = html {
            html.write(console, html::page(&document, most).as_bytes())?;
        }
        match (last, document.failed.is_empty()) {
            (Some(why), _) => Err(anyhow!(why).into()),
            (None, true) => Ok(Exit::Ok),
            (None, false) => Ok(Exit::Incomplete),
        }
    }

    /// Compares the policies on all traces.
    fn compare(&self, console: &Console, policies: [&PolicyName; 2], document: &mut Document) {
        let traces = self.files(document);
        if !document.skipped.is_empty() {
            console.note(&format!("not traces: {}", in_short(&document.skipped)));
        }
        for path in &traces {
            let mut why = None;
            match compared(console, path, policies, &mut why) {
                Ok(compared) => document.traces.push(OfTrace {
                    trace: path.display().to_string(),
                    complete: why.is_none(),
                    compared,
                }),
                Err(failure) => why = Some(failure.to_string()),
            }
            document.failed.extend(why.map(|why| Failed {
                trace: path.display().to_string(),
                why,
            }));
        }
    }

    /// Returns the traces, those of folders in the order of their names.
    fn files(&self, document: &mut Document) -> Vec<PathBuf> {
        let mut traces = Vec::new();
        for path in &self.traces {
            if !path.is_dir() {
                traces.push(path.clone());
                continue;
            }
            let entries = match fs::read_dir(path) {
                Ok(entries) => entries,
                Err(error) => {
                    document.failed.push(Failed {
                        trace: path.display().to_string(),
                        why: format!("cannot read the folder: {error}"),
                    });
                    continue;
                }
            };
            let mut entries: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            entries.sort_unstable();
            for entry in entries {
                match may_be_trace(&entry) {
                    true => traces.push(entry),
                    false => {
                        let name = entry.file_name().unwrap_or_default();
                        document.skipped.push(name.to_string_lossy().into_owned());
                    }
                }
            }
        }
        traces
    }
}

/// Returns the first names, and how many others there are.
fn in_short(names: &[String]) -> String {
    const NAMED: usize = 8;
    let named = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {} more", count(more as u64)),
    }
}

fn usage(what: &'static str) -> Failure {
    Failure::new(Status::Usage, anyhow!(what))
}

/// True if a file in a folder begins like a trace, or has the name of one.
fn may_be_trace(path: &Path) -> bool {
    let is_named_so = || path.extension().is_some_and(|end| end == "vmtrace");
    TRACE.is_of(path) || path.is_file() && is_named_so()
}

/// Compares the policies on one trace. `why` gets the reason if only a part could be read.
fn compared(
    console: &Console,
    path: &Path,
    policies: [&PolicyName; 2],
    why: &mut Option<String>,
) -> Result<Compared> {
    let file = File::open(path).context("cannot open the trace")?;
    let mut reader = Reader::new(file)?;
    let mut comparison = Comparison::new(reader.header(), policies)?;
    let mut meter = Meter::of_bytes(console, "comparing", 0);
    let mut events = 0u64;
    for event in &mut reader {
        let event = match event {
            Ok(event) => event,
            Err(end @ (TraceError::CutOff { .. } | TraceError::Damaged { .. })) if events > 0 => {
                *why = Some(format!("{end}; compared up to there"));
                break;
            }
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = comparison.event(&event) {
            *why = Some(error.to_string());
            break;
        }
        events += 1;
        if events.is_multiple_of(4096) {
            meter.at(events, || format!("{events} events"));
        }
    }
    if events == 0 {
        return Err(anyhow!("the trace has no events").into());
    }
    Ok(comparison.finish())
}
