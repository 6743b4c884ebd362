//! `vmarea merge`: merges needlessly separate mappings of a running process.

mod said;

pub use said::Said;

use super::explain::Range;
use crate::console::{Console, count};
use crate::exit::{Exit, Failure, Result, Status};
use crate::outputs::JsonArg;
use crate::progress::Meter;
use anyhow::anyhow;
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vmarea_repair::{Fix, Fixed, Kept, Options, Progress, Remote, RepairError, Report, Way};

const WAYS: [(Way, &str); 2] = [(Way::Move, "move"), (Way::Copy, "copy")];

/// Merge needlessly separate mappings of a running process.
///
/// Without --apply, the command only reports what it would do. With --apply, it replaces each run
/// of adjacent anonymous mappings that have equal attributes with one mapping: it moves their pages
/// out, puts a fresh mapping in place, and moves the pages back (before Linux 6.8 it copies them).
/// The merge is done in steps, and each step stops the process for at most --max-pause. If this
/// command is killed during a step, the process stays stopped until --resume finishes the merge.
#[derive(Debug, Args)]
pub struct Merge {
    /// The process
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,

    /// Carry the merge out
    #[arg(long)]
    apply: bool,

    /// Finish an earlier merge that was interrupted
    #[arg(long, conflicts_with_all = ["apply", "range", "copy", "fix", "json"])]
    resume: bool,

    /// Merge only between these addresses (hexadecimal)
    #[arg(long, value_name = "LOW,HIGH")]
    range: Option<Range>,

    /// Longest time for which one step may stop the process: 5ms, 500us, 1s
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = time)]
    max_pause: Duration,

    /// Copy up to this many pages that are shared (after a fork, or by KSM) and so cannot be moved
    #[arg(long, value_name = "PAGES", default_value_t = 0)]
    copy: u64,

    /// How pages get into the fresh mapping (default: `move` since Linux 6.8, `copy` before).
    /// `copy` takes longer, splits huge pages, and refuses a process with memory that a device
    /// could write to (pinned memory, io_uring, GPUs)
    #[arg(long, value_name = "WAY", value_parser = way)]
    by: Option<Way>,

    /// Repairs to do before the merge: `guards` (turns guard pages made with mprotect into guard
    /// markers; needs Linux 6.13; not for a program that later makes guard pages writable), `flags`
    /// (clears MADV_DONTFORK and MADV_DONTDUMP where mappings with and without the flag alternate;
    /// a fork then copies that memory), `empties` (merges adjacent reserved ranges that have no
    /// pages), `priming` (touches and drops one page of each reservation, so that memory committed
    /// there later can merge)
    #[arg(long, value_name = "REPAIR", value_delimiter = ',', value_parser = fix)]
    fix: Vec<Fix>,

    /// Folder of the journal (default: /var/tmp/vmarea-UID)
    #[arg(long, value_name = "FOLDER")]
    journal: Option<PathBuf>,

    #[command(flatten)]
    json: JsonArg,
}

impl Merge {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.json.open()?;
        let options = Options {
            max_pause: Some(self.max_pause),
            copy_pages: self.copy,
            way: self.by,
            ..Options::default()
        };
        let remote = Remote::new(self.pid, options, self.journal.clone());
        let remote = remote.map_err(failure)?;
        if self.resume {
            return self.finish(console, &remote);
        }
        let range = self
            .range
            .map_or(0..u64::MAX, |Range(range)| range.start..range.end);
        // A forecast of the same plan that `explain` prints; the result is compared with it.
        let survey = remote.survey(&range, &self.fix).map_err(failure)?;
        let begun = Instant::now();
        let fixes = self.fix(console, &remote, &range)?;
        let fixed: u64 = fixes.iter().map(|fixed| fixed.places).sum();
        let (said, left_apart) = if self.apply {
            let report = merge(console, &remote, &range)?;
            let said = Said::of_report(self.pid, remote.way(), &report, &survey);
            (said, report.kept)
        } else {
            if survey.may_be_pinned && remote.way() == Way::Move && survey.runs > 0 {
                console.note(
                    "the process uses io_uring or has pinned memory: mappings with pinned pages will not be merged",
                );
            }
            let said = Said::of_survey(self.pid, remote.way(), &survey);
            (said, survey.kept)
        };
        let mut said = said.with(&fixes);
        said.applied |= self.apply && fixed > 0;
        if said.applied {
            said.total_us = begun.elapsed().as_micros() as u64;
        }
        outputs.write(console, &said, |out| {
            self.write_text(console, out, &said, &fixes)
        })?;
        self.explain_kept(console, &left_apart);
        if said.runs == 0 && fixed == 0 {
            let nothing = anyhow!(
                "nothing to merge in process {} ({} mappings); vmarea explain -p {} says why",
                self.pid,
                count(said.before),
                self.pid
            );
            return Err(Failure::new(Status::NothingToDo, nothing));
        }
        if !self.apply {
            console.note("nothing was changed; add --apply to merge");
        }
        Ok(Exit::Ok)
    }

    /// Reports what the repairs of `--fix` change, or would change in a dry run.
    fn fix(
        &self,
        console: &Console,
        remote: &Remote,
        range: &std::ops::Range<u64>,
    ) -> Result<Vec<Fixed>> {
        if self.fix.is_empty() {
            return Ok(Vec::new());
        }
        let fixes = if self.apply {
            make_fixes(console, remote, range, &self.fix)
        } else {
            remote.survey_fixes(range, &self.fix)
        };
        let fixes = fixes.map_err(failure)?;
        for fixed in &fixes {
            let (name, places) = (fixed.fix.name(), count(fixed.places));
            if !self.apply {
                console.note(&format!("{name}: would change {places} places"));
            }
            if fixed.apart > 0 {
                let apart = count(fixed.apart);
                console.note(&format!(
                    "{name}: {apart} not merged: they were used as memory once (another anon_vma)"
                ));
            }
        }
        Ok(fixes)
    }

    fn finish(&self, console: &Console, remote: &Remote) -> Result {
        if remote.resume().map_err(failure)? {
            console.note(&format!(
                "the merge is finished, and process {} runs again",
                self.pid
            ));
            return Ok(Exit::Ok);
        }
        let nothing = anyhow!("no merge of process {} was interrupted", self.pid);
        Err(Failure::new(Status::NothingToDo, nothing))
    }

    fn write_text(
        &self,
        console: &Console,
        out: &mut dyn Write,
        said: &Said,
        fixes: &[Fixed],
    ) -> io::Result<()> {
        let (before, after) = (count(said.before), count(said.after));
        if said.applied {
            writeln!(out, "{before} mappings became {after}")?;
            if said.after > said.promised {
                let more = count(said.after - said.promised);
                writeln!(out, "{more} more than the dry run promises")?;
            }
            for fixed in fixes {
                write_fixed(out, fixed)?;
            }
            if said.pieces > 0 {
                let did = if said.by == "move" { "moved" } else { "merged" };
                let (size, steps) = (console.size(said.bytes), count(said.pieces));
                writeln!(out, "{did} {size} in {steps} steps")?;
            }
            writeln!(
                out,
                "longest pause {:.1} ms, {:.0} ms in all",
                said.longest_pause_us as f64 / 1e3,
                said.total_us as f64 / 1e3
            )?;
            if said.long_pauses > 0 {
                writeln!(
                    out,
                    "{} pauses were longer than --max-pause ({:.1} ms)",
                    count(said.long_pauses),
                    self.max_pause.as_secs_f64() * 1e3
                )?;
            }
            if said.copied_pages > 0 {
                let which = if said.by == "move" {
                    "shared pages"
                } else {
                    "pages"
                };
                writeln!(out, "copied {} {which}", count(said.copied_pages))?;
            }
        } else if said.after < said.before {
            self.write_forecast(console, out, said)?;
        }
        Ok(())
    }

    fn write_forecast(
        &self,
        console: &Console,
        out: &mut dyn Write,
        said: &Said,
    ) -> io::Result<()> {
        let (before, after) = (count(said.before), count(said.after));
        writeln!(out, "{before} mappings would become {after}")?;
        if said.may_remain > 0 {
            writeln!(out, "of these, {} may remain", count(said.may_remain))?;
        }
        writeln!(
            out,
            "{} runs of neighbours, {} of address space, in steps of at most {:.1} ms",
            count(said.runs),
            console.size(said.bytes),
            self.max_pause.as_secs_f64() * 1e3
        )?;
        if said.by == "copy" {
            writeln!(out, "the pages would be copied, not moved (see --by)")?;
        }
        Ok(())
    }

    /// Reports merges that were tried or requested but not done.
    fn explain_kept(&self, console: &Console, kept: &Kept) {
        for (reason, n) in &kept.by_reason {
            if reason.is_obstacle() {
                console.note(&format!("{} not merged: {reason}", count(*n)));
            }
        }
    }
}

/// Makes the repairs that move no pages, and shows the progress.
fn make_fixes(
    console: &Console,
    remote: &Remote,
    range: &std::ops::Range<u64>,
    fixes: &[Fix],
) -> std::result::Result<Vec<Fixed>, RepairError> {
    let mut meter: Option<(Fix, Meter<'_>)> = None;
    remote.fix_with(range, fixes, &mut |fix, progress| {
        if meter.as_ref().is_none_or(|(of, _)| *of != fix) {
            meter = Some((fix, Meter::of_items(console, fix.name(), progress.of)));
        }
        let Some((_, meter)) = &mut meter else { return };
        show(meter, progress, "places");
    })
}

/// Shows the progress of a repair in `items`.
fn show(meter: &mut Meter<'_>, progress: Progress, items: &str) {
    meter.at(progress.mappings, || {
        format!(
            "{} of {} {items}; {} pauses over --max-pause",
            count(progress.mappings),
            count(progress.of),
            count(progress.long_pauses)
        )
    });
}

/// Writes what a repair that moves no pages has changed.
fn write_fixed(out: &mut dyn Write, fixed: &Fixed) -> io::Result<()> {
    let fewer = fixed.fewer.unwrap_or(0);
    let (number, which) = match fewer {
        ..0 => (count(fewer.unsigned_abs()), "more"),
        _ => (count(fewer.unsigned_abs()), "fewer"),
    };
    let (name, places, stops) = (fixed.fix.name(), count(fixed.places), count(fixed.stops));
    writeln!(
        out,
        "{name}: changed {places} places in {stops} steps, {number} mappings {which}"
    )
}

/// Merges, and shows the progress.
fn merge(console: &Console, remote: &Remote, range: &std::ops::Range<u64>) -> Result<Report> {
    let mut meter = None;
    let report = remote.merge_with(range, &mut |progress| {
        let meter = meter.get_or_insert_with(|| Meter::of_items(console, "merging", progress.of));
        show(meter, progress, "mappings");
    });
    drop(meter);
    report.map_err(failure)
}

/// Parses a duration: a number followed by `us`, `ms` or `s`.
pub(super) fn time(text: &str) -> anyhow::Result<Duration> {
    let wrong = || anyhow!("a time like 5ms, 500us or 1s is needed");
    let at = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        _ => return Err(wrong()),
    };
    if !(1e-6..=3600.0).contains(&seconds) {
        return Err(anyhow!("a time between 1us and 3600s is needed"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn way(text: &str) -> anyhow::Result<Way> {
    let found = WAYS.iter().find(|(_, name)| *name == text);
    found
        .map(|&(way, _)| way)
        .ok_or_else(|| anyhow!("move or copy is needed"))
}

fn name(way: Way) -> &'static str {
    let found = WAYS.iter().find(|(of, _)| *of == way);
    found.map_or("", |&(_, name)| name)
}

fn fix(text: &str) -> anyhow::Result<Fix> {
    let found = Fix::ALL.into_iter().find(|fix| fix.name() == text);
    found.ok_or_else(|| anyhow!("one of guards, flags, empties, priming is needed"))
}

fn failure(error: RepairError) -> Failure {
    let status = match &error {
        error if error.is_permission() => Status::Permission,
        RepairError::NoMemory(_) => Status::NothingToDo,
        _ => Status::Error,
    };
    Failure::new(status, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_a_bound() {
        assert_eq!(time("5ms").unwrap(), Duration::from_millis(5));
        assert_eq!(time("500us").unwrap(), Duration::from_micros(500));
        assert_eq!(time("1.5s").unwrap(), Duration::from_millis(1500));
        for wrong in [
            "", "5", "ms", "5 ms", "-1ms", "5m", "0ms", "1e9s", "9999s", "NaNs", "1..5s",
        ] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
