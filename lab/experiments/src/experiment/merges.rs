//! Merges in a recorded workload under each policy, and the cost of merging.
//!
//! The experiments of sections 4.3.3 to 4.3.5 of the thesis share this module. A workload is
//! recorded on the running kernel, which is unpatched, and replayed under each policy. A merge
//! *failed* if the recorded kernel's rules refuse to merge two private anonymous neighbours because
//! of their page offset or anon_vma. At each such refusal, the replay checks whether the other
//! policies would merge in the same state.

use super::claim::{Bound, Claim};
use super::figure::{Figure, Published, Unit};
use super::report::{Line, Report, Table};
use super::{Context, instructions, source};
use crate::one_world;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::time::Instant;
use vmarea::policy::Policy;
use vmarea_replay::world::World;
use vmarea_replay::{Options, PolicyName, PolicyReport, Replayer, machine};
use vmarea_trace::{Error as TraceError, Reader};

/// Policies for every replay, in addition to the rules of the recorded kernel.
const POLICIES: [&str; 3] = ["linux-5.18", "thesis", "vmarea"];

/// One recorded and replayed run of a workload.
pub(super) struct Run {
    trace: File,
    /// Processor time of the workload's processes, in seconds.
    processor: f64,
    /// Wall-clock time in seconds, including the recording.
    pub(super) seconds: f64,
    pub(super) replayed: vmarea_replay::Report,
    /// Policies of the replay, in the order of their rows: [`POLICIES`] and those of the user.
    pub(super) policies: Vec<&'static str>,
}

/// Merge counts of one policy in one run, in the order of the thesis's columns.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    pub(super) different: u64,
    pub(super) pgoff: u64,
    pub(super) expand: u64,
    pub(super) failed: u64,
}

/// Lists in the report what replaces the thesis's kernels and tracepoints.
pub(super) fn substitutions(report: &mut Report) {
    for text in [
        "unpatched Linux 5.18: the running kernel, whose refusals are counted; patched 5.18: a \
         replay of the recording under the policy thesis, compared with one under linux-5.18",
        "linux-5.18: no Debian kernel has this version, so no kernel was compared with its rules; they \
         are those of 6.1, which was, without the changes since 5.18",
        "the thesis's machines ran whole desktops; here only the workload's processes are seen",
    ] {
        report.substitute(text);
    }
}

/// Explains a table of merges; `time` explains the column `time`, if the table has one.
pub(super) fn explain(table: &mut Table, time: Option<&str>) {
    table.explain([
        "The thesis patches Linux 5.18 so that it merges neighbouring mappings that mainline keeps \
         apart, and counts the merges while a workload runs on two machines, Apollo and Orion. Its \
         figures are 95 % intervals of the mean. Rows of ours: kernel is the running, unpatched \
         kernel, on which the workload was recorded; linux-5.18, thesis and vmarea are replays of \
         that recording in vmarea's core under the policy of that name.",
    ]);
    table.explain(time.map(|time| format!("time: {time}")));
    table.explain([
        "diff m.: number of merges of two neighbours whose pages belong to different anon_vmas \
         (lists by which the kernel finds the mappings of a page). pgoff m.: number of mappings that \
         mremap moved and that merged at their new place, because their pages took the page offset \
         of the new address. failed m.: number of attempts to merge two private anonymous neighbours, \
         equal in every other respect, that the anon_vma or the page offset made fail.",
        "The counts depend on the workload, which is not the thesis's. What can be compared is the \
         share of failed merges that remain with the patches (the row thesis against the row \
         linux-5.18), which the claims below decide.",
    ]);
}

/// Records a script and replays it.
///
/// # Errors
/// One line that says what failed.
pub(super) fn run(context: &Context<'_>, name: &str, script: &str) -> Result<Run, String> {
    let times = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    let path = times.path().display();
    let script = format!("( {script} ); status=$?; times >'{path}'; exit $status");
    let recorded = context.record(name, &script)?;
    let policies: Result<Vec<PolicyName>, String> =
        POLICIES.iter().map(|name| name.parse()).collect();
    let mut policies = policies?;
    policies.extend(context.policies.iter().cloned());
    let names = policies.iter().map(|one| one.policy().name).collect();
    let replayed = replay(&recorded.trace, policies)?;
    let said = fs::read_to_string(times.path()).unwrap_or_default();
    Ok(Run {
        trace: recorded.trace,
        processor: processor_time(&said),
        seconds: recorded.seconds,
        replayed,
        policies: names,
    })
}

/// Runs a script without recording; returns the wall-clock time in seconds.
///
/// # Errors
/// One line that says what failed.
pub(super) fn native(context: &Context<'_>, name: &str, script: &str) -> Result<f64, String> {
    context
        .host
        .note(&format!("running {name} without recording"));
    let begun = Instant::now();
    source::shell(name, &context.cache, script)?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Parses the output of the shell's `times`; returns the processor time of the child processes.
fn processor_time(said: &str) -> f64 {
    let time = |text: &str| {
        let (minutes, seconds) = text.trim_end_matches('s').split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let children = said.lines().nth(1).unwrap_or_default();
    children.split_whitespace().filter_map(time).sum()
}

fn replay(trace: &File, policies: Vec<PolicyName>) -> Result<vmarea_replay::Report, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let trace = trace.try_clone().map_err(|error| text(&error))?;
    let mut reader = Reader::new(trace).map_err(|error| text(&error))?;
    let options = Options {
        policies,
        ..Options::default()
    };
    let mut replayer = Replayer::new(reader.header(), &options).map_err(|error| text(&error))?;
    for event in &mut reader {
        match event {
            Ok(event) => replayer.event(&event).map_err(|error| text(&error))?,
            Err(TraceError::CutOff { .. } | TraceError::Damaged { .. }) => break,
            Err(error) => return Err(text(&error)),
        }
    }
    Ok(replayer.finish())
}

impl Run {
    /// Returns the merge counts of the recorded kernel, which is unpatched.
    pub(super) fn unpatched(&self) -> Counts {
        let mut counts = self.of_world("linux");
        counts.failed = self.replayed.counterfactual.refused_total();
        counts
    }

    /// Returns the merge counts of a policy.
    pub(super) fn patched(&self, policy: &str) -> Counts {
        let mut counts = self.of_world(policy);
        let made = self.replayed.counterfactual.policies.get(policy);
        counts.failed = made.map_or(0, |made| made.refused.values().sum());
        counts
    }

    fn of_world(&self, policy: &str) -> Counts {
        let empty = PolicyReport::default();
        let world = self.replayed.policies.get(policy).unwrap_or(&empty);
        let outcomes = world.attempts.values();
        let different = outcomes.filter_map(|of| of.get("AV_MERGE_DIFFERENT")).sum();
        Counts {
            different,
            pgoff: world.pgoff_merges,
            expand: world.expand_merges,
            failed: 0,
        }
    }
}

/// Returns the table line with our figures: the selected counts from all runs.
pub(super) fn line(
    who: &str,
    runs: &[Run],
    counts: impl Fn(&Run) -> Counts,
    columns: &[fn(&Counts) -> u64],
) -> Line<Figure> {
    let all: Vec<Counts> = runs.iter().map(counts).collect();
    let figure = |column: &fn(&Counts) -> u64| {
        let runs: Vec<f64> = all.iter().map(|counts| column(counts) as f64).collect();
        Figure::of_runs(&runs, Unit::Count)
    };
    Line {
        who: who.to_owned(),
        cells: columns.iter().map(figure).collect(),
    }
}

/// Decides the thesis's claims about merges for one workload.
///
/// The claims are decided with the run that has the fewest failed merges, because repeated runs are
/// not independent cases.
pub(super) fn claims(name: &str, runs: &[Run], report: &mut Report) {
    let Some(run) = runs.iter().min_by_key(|run| run.unpatched().failed) else {
        return;
    };
    let merged = |policy: &str| {
        let made = run.replayed.counterfactual.policies.get(policy);
        made.map_or(0, |made| made.merged)
    };
    let failed = run.unpatched().failed;
    let merged = ["thesis", "vmarea"].map(|policy| (policy, merged(policy)));
    report
        .claims
        .extend(merge_claims(name, failed, merged, run.patched("thesis")));
}

/// Decides the claims; `merged` has for each policy how many of the `failed` merges it makes.
fn merge_claims(
    name: &str,
    failed: u64,
    merged: [(&str, u64); 2],
    Counts {
        different,
        pgoff,
        expand,
        ..
    }: Counts,
) -> Vec<Claim> {
    let papers = ["more than 90 % (section 4.4)", "no figure; our policy"];
    let resolves = merged
        .into_iter()
        .zip(papers)
        .map(|((policy, merged), paper)| {
            Claim::share(
                format!("{name}: {policy} resolves more than 90 % of the failed merges"),
                paper,
                (merged, failed, "failed merges of the unpatched kernel"),
                0.9,
            )
        });
    let majority = Claim::share(
        format!("{name}: different anon_vmas are the vast majority of the new merges"),
        "the vast majority (section 4.4; we take 50 %)",
        (
            different,
            different + pgoff + expand,
            "merges that only the patches make",
        ),
        0.5,
    );
    resolves.chain([majority]).collect()
}

/// Claims about a workload decided by figures that contradict them.
#[cfg(test)]
pub(super) fn refuted(name: &str) -> Vec<Claim> {
    let counts = Counts {
        different: 10,
        pgoff: 80,
        expand: 10,
        failed: 70,
    };
    merge_claims(name, 100, [("thesis", 30), ("vmarea", 60)], counts)
}

/// Claims about the cost of a workload's merges, decided by figures that contradict them.
#[cfg(test)]
pub(super) fn refuted_costs(name: &str) -> Vec<Claim> {
    let more = Figure::of_runs(&[100.5, 101.0], Unit::Percent).expect("two runs");
    let dearer = COSTS.iter().filter(|(policy, base)| policy != base);
    dearer
        .map(|(policy, base)| instruction_claim(name, policy, base, &more))
        .collect()
}

/// The thesis's figure of the cost.
const SLOWER: &str = "0.5 to 2 % slower (table 4.11)";

/// Policies whose cost is measured, each with the policy used for comparison.
const COSTS: [(&str, &str); 4] = [
    ("linux-5.18", "linux-5.18"),
    ("thesis", "linux-5.18"),
    ("linux", "linux"),
    ("vmarea", "linux"),
];
/// Number of times that the instructions of each replay are counted. The counts differ only because
/// hash maps are seeded randomly.
const COUNTS: usize = 2;

/// Maximum number of events to replay when instructions are counted.
const EVENTS: usize = 500_000;
/// Maximum number of events to replay when instructions are counted with `--quick`.
const EVENTS_QUICK: usize = 50_000;

/// Reports what `--quick` omits from the parts that the workloads of the thesis share.
pub(super) fn shortened(report: &mut Report) {
    let [quick, whole] = [EVENTS_QUICK, EVENTS].map(|n| Unit::Count.format(n as f64));
    report.shorten(format!(
        "repeated runs of the workload; instructions are counted for {quick} events instead of \
         {whole}"
    ));
}

/// Counts the instructions of a replay under each policy, and decides the claims about cost.
///
/// # Errors
/// One line that says why the instructions cannot be counted.
pub(super) fn cost(
    context: &Context<'_>,
    name: &str,
    run: &Run,
    report: &mut Report,
) -> Result<(), String> {
    let limit = if context.quick { EVENTS_QUICK } else { EVENTS };
    let path = format!("/proc/{}/fd/{}", std::process::id(), run.trace.as_raw_fd());
    let counted = count_replays(context, &path, limit)?;
    let shown = run.replayed.events.min(limit as u64);
    let mut table = cost_table(name, shown);
    let seconds = replay_seconds(&path, limit)? * run.replayed.events as f64 / shown.max(1) as f64;
    for ((policy, base), runs) in COSTS.iter().zip(&counted) {
        let at = COSTS.iter().position(|(policy, _)| policy == base);
        let to = counted[at.unwrap_or_default()].iter();
        let ratios: Vec<f64> = runs
            .iter()
            .zip(to)
            .map(|(of, to)| 100.0 * of / to)
            .collect();
        let share = |ratio: &f64| 100.0 + (ratio - 100.0) * seconds / run.processor.max(1e-9);
        let shares: Vec<f64> = ratios.iter().map(share).collect();
        let figures = [ratios, shares].map(|runs| Figure::of_runs(&runs, Unit::Percent));
        if let [Some(ratio), _] = &figures
            && policy != base
        {
            report.claims.push(time_claim(name, policy));
            report
                .claims
                .push(instruction_claim(name, policy, base, ratio));
        }
        let [ratio, share] = figures;
        let line = Line {
            who: (*policy).to_owned(),
            cells: vec![Figure::of_runs(runs, Unit::Large), ratio, share],
        };
        table.row(format!("to {base}"), Vec::new(), vec![line]);
    }
    report.tables.push(table);
    Ok(())
}

/// Returns the table of costs, with the thesis's figures.
fn cost_table(name: &str, events: u64) -> Table {
    let columns = ["instructions", "relative", "time of the\nworkload"];
    let events = Unit::Count.format(events as f64);
    let title = format!("Cost of merging: replay of {events} events of {name}");
    let mut table = Table::new(title, "table 4.11, lowest and highest", &columns);
    table.explain([
        "What the additional merges cost. The thesis compares the workload's time on the patched \
         kernel with that on the unpatched one, which is 100 %. Ours counts instructions.",
        "instructions: executed in vmarea's core by the replay of the recorded calls and faults \
         under one policy, counted by valgrind, without those that read the recording; below it the \
         lowest and the highest of two counts. relative: that count as a share of the count of the \
         policy in the first column, which has the same rules without the additional merges. time of \
         the workload: the workload's time if its share in the core grew as much, estimated from the \
         time of the replay and the processor time of the workload. Below 100 %: merging saves more \
         than it costs.",
    ]);
    let paper = |(who, low, high): (&str, f64, f64)| Line {
        who: who.to_owned(),
        cells: vec![
            None,
            None,
            Some(Published::between(&[], low, high, Unit::Percent)),
        ],
    };
    let rows = [("Apollo", 100.831, 101.662), ("Orion", 100.490, 101.928)];
    table.row("patched", rows.map(paper).into(), Vec::new());
    table
}

/// Counts the instructions of a replay under each of the [`COSTS`].
///
/// The instructions for reading the trace are subtracted.
fn count_replays(
    context: &Context<'_>,
    path: &str,
    limit: usize,
) -> Result<[Vec<f64>; COSTS.len()], String> {
    let count = |policy: &str| {
        let arguments = ["replay", policy, &limit.to_string(), path].map(OsString::from);
        let arguments: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
        instructions::count(context, &arguments)
    };
    let reading = count("none")?;
    let mut counted: [Vec<f64>; COSTS.len()] = Default::default();
    for _ in 0..COUNTS {
        for ((policy, _), runs) in COSTS.iter().zip(&mut counted) {
            runs.push(count(policy)?.saturating_sub(reading) as f64);
        }
    }
    Ok(counted)
}

fn instruction_claim(name: &str, policy: &str, base: &str, ratio: &Figure) -> Claim {
    Claim::by(
        format!("{name}: {policy} needs no more instructions in the VMA layer than {base}"),
        SLOWER,
        ("instructions of the replay", ratio),
        Bound::AtMost(100.0),
    )
}

/// Returns the claim about the workload's time, which only a patched kernel could decide.
fn time_claim(name: &str, policy: &str) -> Claim {
    Claim::withdrawn(
        format!("{name}: {policy}: merging slows the workload down by at most 2 %"),
        SLOWER,
        "the time was estimated, from the core's share of the workload's time: to contradict the \
         claim, the core would have needed about three times its instructions; a measured time needs \
         a patched kernel",
    )
}

/// Returns the duration of a replay under the first of the [`COSTS`] in this process, in seconds.
fn replay_seconds(path: &str, limit: usize) -> Result<f64, String> {
    let (header, events) = read(OsStr::new(path), limit)?;
    let mut world = World::new("linux-5.18", Policy::LINUX_5_18, machine::system(&header));
    let begun = Instant::now();
    one_world::replay(&mut world, &events);
    Ok(begun.elapsed().as_secs_f64())
}

fn read(
    path: &OsStr,
    limit: usize,
) -> Result<(vmarea_trace::event::Header, Vec<vmarea_trace::event::Event>), String> {
    let shown = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| shown(&error))?;
    one_world::read(file, limit).map_err(|error| shown(&error))
}

/// Replays a trace. Arguments: a policy, or `none` to only read the trace; the number of events;
/// and the trace's path.
pub(super) fn work(arguments: &[OsString]) -> Result<(), String> {
    let [policy, limit, path] = arguments else {
        return Err("replay needs a policy or none, a number of events, and a trace".to_owned());
    };
    let limit = limit.to_str().and_then(|limit| limit.parse().ok());
    let (header, events) = read(path, limit.ok_or("how many events?")?)?;
    let policy = policy.to_str().unwrap_or_default();
    if policy == "none" {
        return Ok(());
    }
    let policy = Policy::by_name(policy).ok_or("there is no such policy")?;
    let mut world = World::new(policy.name, policy, machine::system(&header));
    one_world::replay(&mut world, &events);
    world.finish();
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_time_of_the_children_is_the_second_line() {
        let said = "0m0.010s 0m0.000s\n1m2.500s 0m1.250s\n";
        assert_eq!(super::processor_time(said), 63.75);
        assert_eq!(super::processor_time(""), 0.0);
    }
}
