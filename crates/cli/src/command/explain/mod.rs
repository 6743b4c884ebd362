//! `vmarea explain`: why the mappings of a process are not merged.

mod page;
mod recorded;
mod threshold;

pub(super) use recorded::of_recorded;

use super::recording::Method;
use crate::pid::pid;
use crate::sink::TRACE;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use threshold::Threshold;
use vmarea::types::VmRange;
use vmarea_explain::origins::Origin;
use vmarea_explain::rows::Table;
use vmarea_explain::since::{Moment, growth};
use vmarea_explain::stacks::Stacks;
use vmarea_explain::text::count;
use vmarea_explain::{List, Report, explain, unix_ms};
use vmarea_process::pasted::{is_elf, read_core};
use vmarea_process::{AskKernel, Process, ProcessError, Smaps};
use vmarea_terminal::console::Console;
use vmarea_terminal::duration::{OF_RECORDINGS, length};
use vmarea_terminal::exit::{Exit, Failure, Result, Status};
use vmarea_terminal::kind::Kind;
use vmarea_terminal::outputs::{JsonArg, Output, Outputs, PageArg, Target};
use vmarea_trace::inputs;

/// Maximum size of a file with a list of mappings; no process has a list this large.
const TEXT_BYTES: u64 = 1 << 30;

/// Explain every boundary between two mappings.
///
/// Compares the number of mappings with the limit, ranks the reasons why neighbours are not merged,
/// says how many could be merged and how, and advises what to do. Changes nothing in the process.
/// MERGEABLE counts the mappings that all repairs of `vmarea merge` together would save, including
/// those that are not safe; the first line, each reason and each function count the same mappings.
/// With CAP_BPF and CAP_PERFMON (as root) all reasons are certain; without them, reasons that
/// depend on data which /proc does not show are only likely. So are reasons that depend on a rule in
/// which versions of Linux differ, if it is neither verified for this kernel nor found out by a probe.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("process").required(true))]
pub struct Explain {
    /// The process
    #[arg(short, long, value_name = "PID", group = "process", value_parser = pid)]
    pid: Option<i32>,

    /// A copy of /proc/PID/maps or /proc/PID/smaps, also pasted among other text; the output of
    /// pmap, gdb (info proc mappings), vmmap of GEF or pwndbg, lldb (memory region --all) or jcmd
    /// System.map; an Android tombstone; a sanitizer's map; a JVM's hs_err_pidN.log; a minidump; an
    /// ELF core of any size; a trace of vmarea, whose mappings are explained at the moment when the
    /// program had the most. Else a file of at most 1 GiB, or `-` for standard input
    #[arg(long, value_name = "FILE|-", group = "process")]
    from: Option<PathBuf>,

    /// With --from: the limit (vm.max_map_count) that the process had; a list does not say it
    #[arg(long, value_name = "N", conflicts_with_all = ["pid", "command"], value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    /// List every mapping
    #[arg(long)]
    all: bool,

    /// Report only mappings that overlap this address range (hexadecimal)
    #[arg(long, value_name = "LOW,HIGH", conflicts_with = "command")]
    range: Option<Range>,

    /// Read smaps, which shows resident memory; takes seconds for a large process and slows it down
    #[arg(long, conflicts_with_all = ["from", "command"])]
    rss: bool,

    /// Do not read the kernel's own data with BPF
    #[arg(long)]
    no_bpf: bool,

    /// Exit with status 3 if the process has more mappings than this: a percentage of its limit
    /// (70%), or a number
    #[arg(long, value_name = "LIMIT")]
    fail_above: Option<Threshold>,

    /// With a command or --record: show which functions of the program made the mappings, with
    /// file and line, and how many of their mappings can be removed
    #[arg(long)]
    stacks: bool,

    /// With a command or --record: write the stacks of the calls that made the mappings, one per
    /// line with the number of mappings, from which flame graphs can be drawn; implies --stacks
    #[arg(long, value_name = "FILE|-")]
    folded: Option<Target>,

    /// With a command or --record: write these stacks as a compressed profile for pprof; implies
    /// --stacks
    #[arg(long, value_name = "FILE|-")]
    pprof: Option<Target>,

    /// With --pid: record the process for this time (500ms, 30s, 5m, 2h), and explain its mappings
    /// at the moment when it had the most
    #[arg(long, value_name = "TIME", value_parser = length(OF_RECORDINGS), requires = "pid",
          conflicts_with_all = ["range", "rss", "no_bpf", "from", "command"])]
    record: Option<Duration>,

    /// With a command or --record: method of recording
    #[arg(long, value_name = "METHOD", value_enum, default_value_t)]
    by: Method,

    /// Compare with an earlier moment: a file that `explain --json` wrote, or a copy of maps
    #[arg(long, value_name = "FILE")]
    since: Option<PathBuf>,

    #[command(flatten)]
    json: JsonArg,

    #[command(flatten)]
    page: PageArg,

    /// Write comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Write a table in Markdown
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    markdown: bool,

    /// Run and record a program, and explain its mappings at the moment when it had the most
    #[arg(last = true, value_name = "-- COMMAND", group = "process")]
    command: Vec<OsString>,
}

/// A process with its explanation.
struct Explained {
    report: Report,
    process: Process,
    /// Calls that made the mappings, if the process was recorded.
    origins: Vec<Option<Origin>>,
    stacks: Stacks,
}

/// A range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range(pub(super) VmRange);

impl FromStr for Range {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (low, high) = text
            .split_once([',', '-'])
            .ok_or_else(|| anyhow!("two addresses are needed: LOW,HIGH"))?;
        let address = |text: &str| {
            let digits = text.trim().trim_start_matches("0x");
            u64::from_str_radix(digits, 16)
                .map_err(|_| anyhow!("`{text}` is not a hexadecimal address"))
        };
        let (low, high) = (address(low)?, address(high)?);
        if low >= high {
            bail!("the first address must be the lower one");
        }
        Ok(Self(VmRange::new(low, high)))
    }
}

impl Explain {
    /// True if the command explains a list of mappings from a file.
    pub(super) fn reads_a_file(&self) -> bool {
        self.from.is_some()
    }

    pub(super) fn run(&self, console: &Console) -> Result {
        let records = self.record.is_some() || !self.command.is_empty();
        let what = match (self.needs_stacks(), self.by) {
            _ if records => None,
            (true, _) => Some("stacks need"),
            (false, Method::Auto) => None,
            (false, _) => Some("--by needs"),
        };
        if let Some(what) = what {
            let missing =
                anyhow!("{what} a recording: add --record 30s, or give a command after --");
            return Err(Failure::new(Status::Usage, missing));
        }
        let html = self.page.html.as_ref();
        let others = [self.folded.as_ref(), self.pprof.as_ref(), html];
        let outputs = Outputs::open_beside(self.json.json.as_ref(), &others)?;
        let html = Output::open_if_given(html, Kind::HTML)?;
        let earlier = self.since.as_deref().map(|path| moment(console, path));
        let earlier = earlier.transpose()?;
        let mut explained = match &self.from {
            _ if records => self.of_recording(console)?,
            Some(path) if path.as_os_str() != "-" && TRACE.is_of(path) => {
                self.of_trace(console, path)?
            }
            _ => self.of_list(console)?,
        };
        let report = &mut explained.report;
        if let Some(earlier) = earlier {
            let mut now = Moment::from(&*report);
            if let (None, Some(path)) = (now.taken_unix_ms, &self.from) {
                now.taken_unix_ms = time_of(path);
            }
            report.since = Some(growth(&earlier, &now));
        }
        let report = &explained.report;
        let is_above = self.fail_above.map(|most| is_above(most, report));
        let is_above = is_above.transpose()?.unwrap_or(false);
        outputs.write(console, report, |out| self.write_text(console, out, report))?;
        if let Some(html) = html {
            html.write(console, page::page(console, &explained)?.as_bytes())?;
        }
        if !is_above {
            return Ok(Exit::Ok);
        }
        let part = report.percent_of_limit();
        let part = part.map_or_else(String::new, |part| format!(" are {part:.1} % of the limit"));
        console.note(&format!(
            "{} mappings{part}: more than --fail-above allows",
            count(report.mappings)
        ));
        Ok(Exit::Differs)
    }

    fn list(&self) -> List {
        if self.all { List::All } else { List::Summary }
    }

    /// Explains the mappings of a running process or of a file.
    fn of_list(&self, console: &Console) -> Result<Explained> {
        let mut process = self.process()?;
        for note in &process.notes {
            console.note(note);
        }
        if let Some(Range(range)) = self.range {
            process.narrow(range);
            if process.mappings.is_empty() {
                let nothing = anyhow!(
                    "there is no mapping between {:x} and {:x}",
                    range.start,
                    range.end
                );
                return Err(Failure::new(Status::NothingToDo, nothing));
            }
        }
        Ok(Explained {
            report: explain(&process, self.list()),
            process,
            origins: Vec::new(),
            stacks: Stacks::default(),
        })
    }

    fn process(&self) -> Result<Process> {
        let kernel = if self.no_bpf {
            AskKernel::Never
        } else {
            AskKernel::Try
        };
        let smaps = if self.rss {
            Smaps::Always
        } else {
            Smaps::Never
        };
        match (self.pid, &self.from) {
            (Some(pid), _) => Process::live(pid, kernel, smaps).map_err(failure),
            (None, Some(path)) => {
                let mut process = of_file(path)?;
                if let Some(limit) = self.limit {
                    if process.total > limit {
                        process.notes.push(format!(
                            "the list has more mappings than --limit {limit} allows"
                        ));
                    }
                    process.limit = Some(limit);
                }
                Ok(process)
            }
            (None, None) => unreachable!("the group is required"),
        }
    }

    fn write_text(
        &self,
        console: &Console,
        mut out: &mut dyn Write,
        report: &Report,
    ) -> io::Result<()> {
        let size = |bytes| console.size(bytes).to_string();
        let in_bytes = |bytes: u64| bytes.to_string();
        match (&report.rows, self.csv, self.markdown) {
            (Some(rows), true, _) => Table::of_rows(rows, &in_bytes).write_csv(&mut out)?,
            (None, true, _) => report.reasons_table().write_csv(&mut out)?,
            (Some(rows), _, true) => Table::of_rows(rows, &size).write_markdown(&mut out)?,
            (None, _, true) => report.reasons_table().write_markdown(&mut out)?,
            (Some(rows), _, _) => Table::of_rows(rows, &size).write_text(&mut out)?,
            (None, _, _) => report.write_text(&mut out, &size)?,
        }
        Ok(())
    }
}

/// Reads the list of mappings in a file. Of a core, which can be larger than memory, only the list is
/// read.
fn of_file(path: &Path) -> Result<Process> {
    let name = path.display().to_string();
    let cannot = || format!("cannot read {name}");
    let process = match core(path).with_context(cannot)? {
        Some(core) => read_core(core)
            .map_err(ProcessError::Known)
            .and_then(|list| Process::from_pasted(name.clone(), list)),
        None => {
            let text = read(path).with_context(cannot)?;
            Process::from_text(name.clone(), &text)
        }
    };
    process.map_err(|error| failure(error).context(name))
}

/// Opens a regular file if it is an ELF file.
fn core(path: &Path) -> io::Result<Option<File>> {
    if path.as_os_str() == "-" || !path.is_file() {
        return Ok(None);
    }
    let mut file = File::open(path)?;
    let mut start = Vec::new();
    (&mut file).take(4).read_to_end(&mut start)?;
    Ok(is_elf(&start).then_some(file))
}

/// Compares the number of mappings with the threshold.
///
/// # Errors
/// Fails if the list does not say whether there are more.
fn is_above(threshold: Threshold, report: &Report) -> Result<bool> {
    threshold.is_exceeded(report).ok_or_else(|| {
        let why = match report.incomplete {
            true => "mappings may be missing from the list",
            false => "the limit is not in the list; --limit N states it",
        };
        Failure::new(Status::Usage, anyhow!("--fail-above: {why}"))
    })
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    inputs::open(path, TEXT_BYTES)?.read_to_end(&mut text)?;
    Ok(text)
}

/// Returns the failure, with its exit status, for a process that cannot be read.
pub(super) fn failure(error: ProcessError) -> Failure {
    let status = match &error {
        ProcessError::Forbidden(_) => Status::Permission,
        ProcessError::KernelThread(_) | ProcessError::Empty => Status::NothingToDo,
        _ => Status::Error,
    };
    Failure::new(status, error)
}

/// Reads a moment from a file.
///
/// # Errors
/// Fails if the file is neither JSON of `explain` nor a list of mappings.
pub(super) fn moment(console: &Console, path: &Path) -> Result<Moment> {
    let name = path.display().to_string();
    let is_core = core(path).is_ok_and(|core| core.is_some());
    let text = match is_core {
        true => Vec::new(),
        false => read(path).with_context(|| format!("cannot read {name}"))?,
    };
    if text.trim_ascii_start().starts_with(b"{") {
        let moment: serde_json::Result<Moment> = serde_json::from_slice(&text);
        let what = |error| anyhow!("{name} is not JSON of `vmarea explain`: {error}");
        return Ok(moment.map_err(what)?);
    }
    let process = match is_core {
        true => of_file(path)?,
        false => Process::from_text(name.clone(), &text)
            .map_err(|error| failure(error).context(name.clone()))?,
    };
    for note in &process.notes {
        console.note(&format!("{name}: {note}"));
    }
    let mut moment = Moment::from(&explain(&process, List::Summary));
    moment.taken_unix_ms = time_of(path);
    if moment.taken_unix_ms.is_some() {
        console.note(&format!(
            "{name}: its time of last change is taken as that of the list"
        ));
    }
    Ok(moment)
}

/// Returns the time at which a file was last changed, in milliseconds since 1970.
fn time_of(path: &Path) -> Option<u64> {
    let facts = std::fs::metadata(path).ok()?;
    unix_ms(facts.modified().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_people_write_them() {
        let range: Range = "0x1000,7f00".parse().unwrap();
        assert_eq!(range.0, VmRange::new(0x1000, 0x7f00));
        assert!("2000,1000".parse::<Range>().is_err());
        assert!("1000".parse::<Range>().is_err());
    }
}
