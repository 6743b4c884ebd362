//! `vmarea merge`: merges needlessly separate mappings of a running process.

mod choices;
mod said;
mod text;

pub use said::Said;

use super::explain::Range;
use crate::interrupt::Interrupt;
use crate::pid::pid;
use anyhow::anyhow;
use choices::{By, First};
use clap::Args;
use clap::builder::{EnumValueParser, TypedValueParser};
use std::time::{Duration, Instant};
use vmarea_explain::detail::fresh_mapping_lacks;
use vmarea_explain::estimate::{Cost, Work, fits, pause_needed_ms};
use vmarea_explain::text::count;
use vmarea_process::kernel;
use vmarea_repair::{
    Fix, Fixed, Kept, KeptReason, Options, Progress, Remote, RepairError, Report, Survey, Way,
};
use vmarea_terminal::console::Console;
use vmarea_terminal::duration::{OF_PAUSES, length};
use vmarea_terminal::exit::{Exit, Failure, Result, Status};
use vmarea_terminal::outputs::{JsonArg, Outputs};
use vmarea_terminal::progress::Meter;

/// Merge needlessly separate mappings of a running process.
///
/// Without --apply, the command only reports what it would do. With --apply, it replaces each run
/// of adjacent anonymous mappings that have equal attributes with one mapping: it moves their pages
/// out, puts a fresh mapping in place, and moves the pages back (before Linux 6.8 it copies them).
/// The merge is done in steps, and each step stops the process for at most --max-pause. Ctrl-C
/// (SIGINT), SIGTERM and SIGHUP end the merge after the step at hand. If this command is killed
/// (SIGKILL) during a step, the step is finished all the same, and the process runs on.
#[derive(Debug, Args)]
pub struct Merge {
    /// The process
    #[arg(short, long, value_name = "PID", value_parser = pid)]
    pid: i32,

    /// Carry the merge out
    #[arg(long)]
    apply: bool,

    /// Remove what a killed merge has left in the process (two small mappings), and say what is left
    /// to merge. The next merge does the same
    #[arg(long, conflicts_with_all = ["apply", "range", "copy", "fix", "json"])]
    resume: bool,

    /// Merge only between these addresses (hexadecimal)
    #[arg(long, value_name = "LOW,HIGH")]
    range: Option<Range>,

    /// Longest time for which one step may stop the process (500us, 5ms, 1s). Each step stops every
    /// thread, which takes about 25 ms for 1,000 threads; the dry run says whether the time is
    /// enough
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = length(OF_PAUSES))]
    max_pause: Duration,

    /// Copy up to this many pages that are shared after a fork and so cannot be moved
    #[arg(long, value_name = "PAGES", default_value_t = 0)]
    copy: u64,

    /// How pages get into the fresh mapping (default: `move` since Linux 6.8, `copy` before)
    #[arg(long, value_name = "WAY", value_parser = EnumValueParser::<By>::new().map(Way::from))]
    by: Option<Way>,

    /// Repairs to do before the merge
    #[arg(long, value_name = "REPAIR", value_delimiter = ',',
          value_parser = EnumValueParser::<First>::new().map(Fix::from))]
    fix: Vec<Fix>,

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
        let remote = Remote::new(self.pid, options).map_err(failure)?;
        if let Some(remark) = kernel::rules().remark() {
            console.note(&remark);
        }
        if self.resume {
            return self.finish(console, &remote);
        }
        let range = self
            .range
            .map_or(0..u64::MAX, |Range(range)| range.start..range.end);
        if !self.apply {
            let survey = remote.survey(&range, &self.fix).map_err(failure)?;
            return self.forecast(console, outputs, &remote, &range, survey);
        }
        let interrupt = Interrupt::listen()?;
        match (
            self.make(console, outputs, &remote, &range, &interrupt),
            interrupt.signal(),
        ) {
            // Whatever became of it, the user has ended it.
            (Err(error), Some(signal)) => {
                console.note(&format!("interrupted ({signal}): {}", error.message()));
                Ok(Exit::Interrupted)
            }
            (result, _) => result,
        }
    }

    /// Makes the repairs and the merge.
    fn make(
        &self,
        console: &Console,
        outputs: Outputs,
        remote: &Remote,
        range: &std::ops::Range<u64>,
        interrupt: &Interrupt,
    ) -> Result {
        // A forecast of the same plan that `explain` prints; the result is compared with it.
        let survey = remote.survey(range, &self.fix).map_err(failure)?;
        let begun = Instant::now();
        let fixes = self.fix(console, remote, range, interrupt)?;
        let fixed: u64 = fixes.iter().map(|fixed| fixed.places).sum();
        let merged = merge(console, remote, range, interrupt);
        let report = merged.inspect_err(|_| text::note_fixes(console, &fixes))?;
        let mut said = Said::of_report(self.pid, remote.way(), &report, &survey).with(&fixes);
        said.applied |= fixed > 0;
        if said.applied {
            said.total_us = begun.elapsed().as_micros() as u64;
        }
        let written = outputs.write(console, &said, |out| {
            self.write_result(console, out, &said, &fixes)
        });
        written.map_err(|failure| match said.applied {
            true => failure.context(format!(
                "{} mappings became {}, but the result cannot be written",
                count(said.before),
                count(said.after)
            )),
            false => failure,
        })?;
        self.explain_kept(console, &report.kept);
        let places: u64 = fixes.iter().map(|fixed| fixed.left).sum();
        if let Some(signal) = interrupt.signal() {
            console.note(&self.interrupted(signal, places, &said));
            return Ok(Exit::Interrupted);
        }
        match said.runs == 0 && fixed == 0 {
            true => Err(self.nothing(&said)),
            false => Ok(Exit::Ok),
        }
    }

    /// Reports what a merge would do, and whether `--max-pause` is long enough for it.
    fn forecast(
        &self,
        console: &Console,
        outputs: Outputs,
        remote: &Remote,
        range: &std::ops::Range<u64>,
        survey: Survey,
    ) -> Result {
        let fixes = remote.survey_fixes(range, &self.fix).map_err(failure)?;
        text::note_fixes(console, &fixes);
        if survey.may_be_pinned && remote.way() == Way::Move && survey.runs > 0 {
            console.note(
                "the process uses io_uring or has pinned memory: mappings with pinned pages will not be merged",
            );
        }
        let work = Work {
            bytes: survey.bytes,
            copies: survey.copies,
            runs: survey.runs,
            members: survey.members,
            changed: survey.changed,
        };
        let cost = Cost::of(&work, survey.threads, self.max_pause);
        let said = Said::of_survey(self.pid, remote.way(), &survey, &cost).with(&fixes);
        outputs.write(console, &said, |out| {
            self.write_forecast(console, out, &said)
        })?;
        self.explain_kept(console, &survey.kept);
        if said.runs == 0 && fixes.iter().all(|fixed| fixed.places == 0) {
            return Err(self.nothing(&said));
        }
        match fits(survey.threads, self.max_pause) {
            true => console.note("nothing was changed; add --apply to merge"),
            false => console.note(&format!(
                "nothing was changed, and --apply would refuse: stopping its {} threads once takes \
                 about {:.0} ms, too long for --max-pause {:.1} ms; add --max-pause {}ms --apply",
                count(survey.threads),
                cost.stop_ns as f64 / 1e6,
                self.max_pause.as_secs_f64() * 1e3,
                pause_needed_ms(survey.threads).unwrap_or(5),
            )),
        }
        Ok(Exit::Ok)
    }

    fn nothing(&self, said: &Said) -> Failure {
        let without = match self.fix.is_empty() {
            true => " without --fix",
            false => "",
        };
        let nothing = anyhow!(
            "nothing to merge in process {pid} ({} mappings){without}; vmarea explain -p {pid} says why",
            count(said.before),
            pid = self.pid,
        );
        Failure::new(Status::NothingToDo, nothing)
    }

    /// Returns the message after a signal: what is done, what is left, and how to go on.
    fn interrupted(&self, signal: &str, places: u64, said: &Said) -> String {
        let left = [
            (places, "places to change"),
            (said.left, "mappings to merge"),
        ];
        let left = left.into_iter().filter(|(n, _)| *n > 0);
        let left: Vec<_> = left
            .map(|(n, what)| format!("{} {what}", count(n)))
            .collect();
        let left = match left.is_empty() {
            true => "everything was done".to_owned(),
            false => format!(
                "not done: {}; process {} runs, nothing is left behind in it, and the same command goes on",
                left.join(", "),
                self.pid
            ),
        };
        let (before, after) = (count(said.before), count(said.after));
        format!("interrupted ({signal}): {before} mappings became {after}; {left}")
    }

    /// Makes the repairs of `--fix`.
    fn fix(
        &self,
        console: &Console,
        remote: &Remote,
        range: &std::ops::Range<u64>,
        interrupt: &Interrupt,
    ) -> Result<Vec<Fixed>> {
        if self.fix.is_empty() {
            return Ok(Vec::new());
        }
        let fixes = make_fixes(console, remote, range, &self.fix, interrupt);
        let fixes = fixes.map_err(failure)?;
        fixes
            .iter()
            .for_each(|fixed| text::note_apart(console, fixed));
        Ok(fixes)
    }

    /// Removes what a killed merge has left in the process.
    fn finish(&self, console: &Console, remote: &Remote) -> Result {
        let pid = self.pid;
        if !remote.resume().map_err(failure)? {
            let nothing = anyhow!("no killed merge has left anything in process {pid}");
            return Err(Failure::new(Status::NothingToDo, nothing));
        }
        let left = match remote.survey(&(0..u64::MAX), &[]) {
            Ok(survey) if survey.after < survey.mappings => format!(
                "its {} mappings can still become {}: vmarea merge -p {pid} --apply",
                count(survey.mappings),
                count(survey.after)
            ),
            Ok(survey) => format!(
                "it has {} mappings, none left to merge; vmarea explain -p {pid} shows what other \
                 repairs would do",
                count(survey.mappings)
            ),
            Err(error) => error.to_string(),
        };
        console.note(&format!(
            "what a killed merge had left in process {pid} is removed; {left}"
        ));
        Ok(Exit::Ok)
    }

    /// Reports merges that were tried or requested but not done.
    fn explain_kept(&self, console: &Console, kept: &Kept) {
        for (reason, n) in &kept.by_reason {
            if !reason.is_obstacle() {
                continue;
            }
            let why = match reason {
                KeptReason::Special => fresh_mapping_lacks(kept.special_flags),
                reason => reason.to_string(),
            };
            console.note(&format!("{} not merged: {why}", count(*n)));
        }
    }
}

/// Makes the repairs that move no pages, and shows the progress.
fn make_fixes(
    console: &Console,
    remote: &Remote,
    range: &std::ops::Range<u64>,
    fixes: &[Fix],
    interrupt: &Interrupt,
) -> std::result::Result<Vec<Fixed>, RepairError> {
    let mut meter: Option<(Fix, Meter<'_>)> = None;
    remote.fix_with(range, fixes, &mut |fix, progress| {
        if meter.as_ref().is_none_or(|(of, _)| *of != fix) {
            meter = Some((fix, Meter::of_items(console, fix.name(), progress.of)));
        }
        if let Some((_, meter)) = &mut meter {
            show(meter, progress, "places");
        }
        interrupt.goes_on()
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

/// Merges, and shows the progress.
fn merge(
    console: &Console,
    remote: &Remote,
    range: &std::ops::Range<u64>,
    interrupt: &Interrupt,
) -> Result<Report> {
    let mut meter = None;
    let report = remote.merge_with(range, &mut |progress| {
        let meter = meter.get_or_insert_with(|| Meter::of_items(console, "merging", progress.of));
        show(meter, progress, "mappings");
        interrupt.goes_on()
    });
    drop(meter);
    report.map_err(failure)
}

/// Returns the name that reports give the way; `--by` takes it too.
fn name(way: Way) -> &'static str {
    match way {
        Way::Move => "move",
        Way::Copy => "copy",
    }
}

pub(super) fn failure(error: RepairError) -> Failure {
    let status = match &error {
        error if error.is_permission() => Status::Permission,
        RepairError::NoMemory(_) => Status::NothingToDo,
        _ => Status::Error,
    };
    Failure::new(status, error)
}
