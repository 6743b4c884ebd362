//! The per-thread VMA cache of 2014: hit rates and cycles in the four result tables of its commit.
//!
//! Every workload is recorded and replayed; the lookups made by its page faults and calls are
//! measured. The lookups are repeated with one cache at a time, on a red-black tree like the one
//! that Linux used in 2014 and on the core's index. Cycles are ticks of the time-stamp counter,
//! measured once over consecutive lookups and once for lookups that start with cold processor
//! caches. Instructions are counted by valgrind.

mod workloads;

use super::claim::{Bound, Claim};
use super::figure::{Figure, Published, Unit};
use super::idle::{Idle, Watch};
use super::report::{Line, Report, Table};
use super::{Context, instructions};
use crate::cache::cost::{Finds, Measured, PAPER_SIDES, measure_ticks};
use crate::cache::{Log, count};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use vmarea_trace::Reader;
use workloads::Script;

/// The tables in the commit: hit rate in per cent and billions of cycles, baseline and patched.
const TABLES: [(&str, [f64; 2], [f64; 2]); 4] = [
    ("1) System bootup", [50.61, 19.90], [73.45, 13.58]),
    ("2) Kernel build", [75.28, 11.03], [88.09, 9.31]),
    ("3) Data mining", [70.66, 17.14], [91.15, 12.57]),
    ("4) Ebizzy, 80 threads", [1.06, 91.54], [99.97, 14.18]),
];
/// Tables for which `--quick` counts instructions.
const QUICK_COUNTS: [&str; 2] = [TABLES[1].0, TABLES[3].0];
const SOURCE: &str = "commit message of mm: per-thread vma caching";
/// Row labels of the [`PAPER_SIDES`].
const ROWS: [&str; PAPER_SIDES.len()] = [
    "no cache",
    "baseline",
    "with largest",
    "patched",
    "vmarea's cache",
    "no cache",
    "vmarea's cache",
];
/// Position in [`PAPER_SIDES`] of the cache of the last-used VMA on the red-black tree.
const BASELINE: usize = 1;
/// Position in [`PAPER_SIDES`] of the last-used-and-largest cache on the red-black tree.
const LARGEST: usize = 2;
/// Position in [`PAPER_SIDES`] of `vmacache` on the red-black tree.
const PATCHED: usize = 3;
/// Position in [`PAPER_SIDES`] of vmarea's cache on the red-black tree.
const OURS: usize = 4;

/// Runs the experiment.
pub(super) fn run(context: &Context<'_>, report: &mut Report) {
    substitutions(report);
    if context.quick {
        shortened(report);
    }
    let mut largest = Vec::new();
    for (script, paper) in workloads::single(context).into_iter().zip(&TABLES) {
        let lookups = measured(context, &script);
        if let Some(lookups) = report.keep(&script.name, lookups) {
            workload(context, &lookups, paper, report);
            largest.push([BASELINE, LARGEST].map(|at| lookups.rate(at).median));
        }
    }
    report.claims.push(largest_claim(&largest));
    let folder = tempfile::Builder::new().prefix("vmarea-ebizzy-").tempdir();
    let folder = folder.map_err(|error| format!("cannot create a directory: {error}"));
    let Some(folder) = report.keep("ebizzy", folder) else {
        return;
    };
    let scripts = workloads::ebizzy(folder.path());
    if let Some(scripts) = report.keep("ebizzy", scripts) {
        threads(context, &scripts, report);
    }
}

fn substitutions(report: &mut Report) {
    for text in [
        "boot: Debian's System V init with its scripts, rsyslog, cron, dbus and sshd, in a container \
         without rights on the machine: no firmware, no hardware, no udev",
        "kernel build: mm/ and kernel/ of Debian's kernel source, tinyconfig, 2 jobs",
        "Oracle 11g data mining: SQLite on a generated warehouse, one process",
        "ebizzy: rebuilt from its description, with memory from the C library's arenas",
        "80 processors: one thread executes all lookups, in a simulated order in which the threads \
         of a process take turns, as if each had a processor. Contention is not in the cycles",
        "lookups are those of faults and of recorded calls; a kernel makes others (futexes, /proc)",
        "a cached VMA is an id whose generation is checked instead of a pointer: a hit costs more \
         than in a kernel",
        "cycles: the lookups follow each other, so every VMA is in the processor's caches; cold: \
         500 lookups of a round, each after the processor's own caches were evicted, as a program \
         between two lookups does",
        "the totals are smaller than the paper's, which ran longer: compare the ratios",
    ] {
        report.substitute(text);
    }
}

/// Reports what `--quick` omits.
fn shortened(report: &mut Report) {
    for text in [
        "kernel build: all files but mmap.o, memory.o, rmap.o and slub.o of mm/",
        "data mining: nine tenths of the warehouse's rows",
        "14 of 21 rounds of each measurement of cycles",
        "instructions of the boot, of data mining, and of all caches but those that the paper compares",
    ] {
        report.shorten(text);
    }
}

/// Lookups in a recorded script, with their measurements.
struct Lookups {
    log: Log,
    /// Number of hits of each cache if the lookups are made in their recorded order.
    recorded: Vec<u64>,
    sides: Vec<Measured>,
    /// Whether other programs ran while the ticks were measured.
    idle: Idle,
}

impl Lookups {
    /// Returns the hit rate of one of the [`PAPER_SIDES`] with the threads in turn.
    fn rate(&self, at: usize) -> Figure {
        percent(self.sides[at].hits, self)
    }
}

fn measured(context: &Context<'_>, script: &Script) -> Result<Lookups, String> {
    let text = script.text.as_ref().map_err(String::clone)?;
    let recorded = context.record(&script.name, text)?;
    let reader = Reader::new(recorded.trace).map_err(|error| error.to_string())?;
    let counted = count(reader).map_err(|error| error.to_string())?;
    if counted.log.lookups() == 0 {
        return Err("the recording has no lookups".to_owned());
    }
    let log = counted.log.in_turn();
    let rounds = if context.quick { 7 } else { 21 };
    let watch = Watch::begin();
    let sides = measure_ticks(&log, rounds);
    Ok(Lookups {
        sides,
        idle: watch.end(),
        recorded: counted.counters.iter().map(|one| one.hits).collect(),
        log,
    })
}

fn percent(hits: u64, lookups: &Lookups) -> Figure {
    let rate = 100.0 * hits as f64 / lookups.log.lookups() as f64;
    Figure::exact(rate, Unit::Percent)
}

/// Returns the table of one workload, without rows.
fn lookup_table(title: &str) -> Table {
    let columns = [
        "hit rate\n(simulated)",
        "in recorded\norder",
        "TSC ticks",
        "ticks of\none, cold",
        "instructions",
    ];
    let mut table = Table::new(title, SOURCE, &columns);
    table.explain([
        "A kernel looks up the VMA of an address at each page fault and in many calls. The commit \
         replaces the cache of the VMA that was used last in an address space (baseline) by four \
         VMAs for each thread (patched). The lookups of the workload, recorded here, are made once \
         with each cache in front of a red-black tree as of 2014, and in front of the core's tree. with \
         largest: baseline and the largest VMA, a proposal of that time; vmarea's cache: ours.",
        "hit rate: share of the lookups that the cache answers, in a simulated order: each thread \
         makes its own lookups and changes in the recorded order, and the threads of a process take \
         turns, as on a machine with a processor for each. in recorded order: the same in the order \
         of the recording, on this machine's processors. TSC ticks: ticks of the time-stamp counter \
         for all lookups, one after the other; the paper's cycles are of a kernel and of many more \
         lookups, so compare patched with baseline. ticks of one, cold: ticks of one lookup after \
         the processor's own caches were evicted. instructions: of all lookups, counted by valgrind. \
         k, M, G: thousands, millions, thousand millions. Below a measured figure is the interval \
         of its median.",
    ]);
    table
}

fn workload(
    context: &Context<'_>,
    lookups: &Lookups,
    paper: &(&str, [f64; 2], [f64; 2]),
    report: &mut Report,
) {
    let (title, baseline, patched) = *paper;
    let counted = if context.quick && !QUICK_COUNTS.contains(&title) {
        Ok(vec![None; PAPER_SIDES.len()])
    } else {
        of_each_side(context, &lookups.log)
    };
    let counted = report.keep(&format!("instructions of {title}"), counted);
    let lookups_made = Unit::Count.format(lookups.log.lookups() as f64);
    let title = format!("{title}: {lookups_made} lookups");
    let mut table = lookup_table(&title);
    for (at, side) in PAPER_SIDES.iter().enumerate() {
        let published = |[rate, cycles]: [f64; 2]| Line {
            who: String::new(),
            cells: vec![
                Some(Published::exact(rate, Unit::Percent)),
                None,
                Some(Published::exact(cycles * 1e9, Unit::Large)),
                None,
                None,
            ],
        };
        let paper = match at {
            BASELINE => vec![published(baseline)],
            PATCHED => vec![published(patched)],
            _ => Vec::new(),
        };
        // The same cache has the same number of hits in front of the core's index and of the
        // red-black tree.
        let recorded = lookups
            .recorded
            .get(if at > OURS { (at - 5) * OURS } else { at });
        let line = Line {
            who: side.index.to_owned(),
            cells: vec![
                Some(lookups.rate(at)),
                recorded.map(|hits| percent(*hits, lookups)),
                Figure::of_runs(&lookups.sides[at].ticks, Unit::Large),
                Figure::of_runs(&lookups.sides[at].evicted, Unit::Count),
                counted
                    .as_ref()
                    .and_then(|all| all[at])
                    .map(|n| Figure::exact(n as f64, Unit::Large)),
            ],
        };
        table.row(ROWS[at], paper, vec![line]);
    }
    report.tables.push(table);
    let sides = &lookups.sides;
    let pair = |of: fn(&Measured) -> &Vec<f64>| {
        Figure::of_pairs(of(&sides[PATCHED]), of(&sides[BASELINE]))
    };
    let instructions = |all: &Vec<Option<u64>>| {
        let ratio = all[PATCHED]? as f64 / all[BASELINE]? as f64;
        Some(Figure::exact(ratio, Unit::Ratio))
    };
    let ratios = Ratios {
        ticks: pair(|side| &side.ticks),
        cold: pair(|side| &side.evicted),
        instructions: counted.as_ref().and_then(instructions),
    };
    let rates = [BASELINE, PATCHED].map(|at| lookups.rate(at).median);
    report
        .claims
        .extend(claims(paper, rates, &ratios, lookups.idle));
}

/// What the lookups cost with the commit's cache, relative to the baseline.
struct Ratios {
    ticks: Option<Figure>,
    cold: Option<Figure>,
    instructions: Option<Figure>,
}

/// Decides whether the largest VMA lifts a hit rate over 60 %, by `rates` of workloads with the
/// baseline and with the largest VMA.
///
/// A workload whose baseline exceeds 60 % says nothing about the largest VMA.
fn largest_claim(rates: &[[f64; 2]]) -> Claim {
    let text = "with the largest VMA cached as well, hit rates exceed 60 % for some workloads";
    let paper = "over 60 % for some workloads (LWN, 2014)";
    let what = format!(
        "highest hit rate of with largest in a workload whose baseline does not exceed 60 % \
         (workloads: {})",
        rates
            .iter()
            .filter(|[baseline, _]| *baseline <= 60.0)
            .count()
    );
    let below = rates.iter().filter(|[baseline, _]| *baseline <= 60.0);
    match below.map(|[_, largest]| *largest).max_by(f64::total_cmp) {
        Some(best) => {
            let best = Figure::exact(best, Unit::Percent);
            Claim::by(text, paper, (&what, &best), Bound::MoreThan(60.0))
        }
        None => {
            let refuter = format!("{what}: at most 60 %");
            let why = "the baseline of every workload here exceeds 60 % already";
            Claim::undecided(text, paper, refuter, why)
        }
    }
}

/// Decides the claims about one of the commit's tables; `before` and `after` are the hit rates.
fn claims(
    (title, baseline, patched): &(&str, [f64; 2], [f64; 2]),
    [before, after]: [f64; 2],
    ratios: &Ratios,
    idle: Idle,
) -> Vec<Claim> {
    let name = title.split_once(") ").map_or(*title, |(_, name)| name);
    let gain = Figure::exact(after - before, Unit::Percent);
    let what = format!("hit rate of patched, {after:.2} %, less that of baseline, {before:.2} %");
    let theirs = patched[0] - baseline[0];
    let mut claims = vec![
        Claim::by(
            format!("{name}: the per-thread cache hits more often"),
            format!("{} to {} %", baseline[0], patched[0]),
            (&what, &gain),
            Bound::MoreThan(0.0),
        ),
        Claim::by(
            format!("{name}: by as many points as in the paper"),
            format!("{theirs:.2} points"),
            (&what, &gain),
            Bound::AtLeast(theirs),
        ),
    ];
    let paper = patched[1] / baseline[1];
    let published = format!("{paper:.3} of the baseline's cycles");
    let always = Idle(Some(0.0));
    for (what, ratio, idle) in [
        ("cycles (TSC ticks)", &ratios.ticks, idle),
        ("cycles of cold lookups", &ratios.cold, idle),
        ("instructions", &ratios.instructions, always),
    ] {
        let Some(ratio) = ratio else { continue };
        let measure = format!("{what} of patched / of baseline");
        for (share, bound) in [("", 1.0), (", as large a share as in the paper", paper)] {
            claims.push(Claim::by_clock(
                format!("{name}: it saves {what}{share}"),
                published.clone(),
                (&measure, ratio),
                Bound::AtMost(bound),
                idle,
            ));
        }
    }
    claims
}

/// Decides the claims about ebizzy; `rates` has the number of threads, and the hit rates of the
/// baseline and of the commit's cache.
fn thread_claims(rates: &[(u32, f64, f64)]) -> Vec<Claim> {
    let list = |of: fn(&(u32, f64, f64)) -> f64| {
        let one = |row: &(u32, f64, f64)| format!("{:.2} % with {}", of(row), row.0);
        rates.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let all = |of: fn(&(u32, f64, f64)) -> f64| rates.iter().map(of);
    let (Some(highest), Some(lowest)) = (
        all(|row| row.1).max_by(f64::total_cmp),
        all(|row| row.2).min_by(f64::total_cmp),
    ) else {
        return Vec::new();
    };
    let [highest, lowest] = [highest, lowest].map(|rate| Figure::exact(rate, Unit::Percent));
    vec![
        Claim::by(
            "Ebizzy: the baseline hits less than 2 %, no matter how many threads run",
            "less than 2 %, often below 1 %",
            (
                &format!("highest hit rate of baseline ({})", list(|row| row.1)),
                &highest,
            ),
            Bound::LessThan(2.0),
        ),
        Claim::by(
            "Ebizzy: the per-thread cache hits nearly always (we take 99 %)",
            "99.97 % with 80 threads",
            (
                &format!("lowest hit rate of patched ({})", list(|row| row.2)),
                &lowest,
            ),
            Bound::AtLeast(99.0),
        ),
    ]
}

/// Claims decided by figures that contradict them.
#[cfg(test)]
pub(super) fn refuted() -> Vec<Claim> {
    let slower = || Figure::of_runs(&[1.1, 1.2, 1.3], Unit::Ratio);
    let ratios = Ratios {
        ticks: slower(),
        cold: slower(),
        instructions: Some(Figure::exact(1.1, Unit::Ratio)),
    };
    let idle = Idle(Some(0.0));
    let of_table = |paper| claims(paper, [70.0, 69.0], &ratios, idle);
    let mut all: Vec<Claim> = TABLES.iter().flat_map(of_table).collect();
    // The second workload's rate is high without the largest VMA.
    all.push(largest_claim(&[[40.0, 59.0], [98.0, 99.0]]));
    all.extend(thread_claims(&[(1, 99.0, 99.5), (80, 1.0, 98.0)]));
    all
}

fn threads(context: &Context<'_>, scripts: &[(u32, Script)], report: &mut Report) {
    let columns = [
        "baseline\nhit rate",
        "patched\nhit rate",
        "vmarea\nhit rate",
        "patched to\nbaseline, ticks",
    ];
    let mut table = Table::new("Ebizzy, 1 to 80 threads", SOURCE, &columns);
    table.explain([
        "The hit rates of three caches by the number of threads, as in the column hit rate above, \
         and the ticks of all lookups with the commit's cache divided by those with the baseline: \
         below 1 is faster with the commit's cache.",
    ]);
    let mut rates = Vec::new();
    for (threads, script) in scripts {
        let lookups = measured(context, script);
        let Some(lookups) = report.keep(&script.name, lookups) else {
            continue;
        };
        if *threads == 80 {
            workload(context, &lookups, &TABLES[3], report);
        }
        let rate = |at: usize| lookups.rate(at);
        let ticks = [PATCHED, BASELINE].map(|at| &lookups.sides[at].ticks);
        rates.push((*threads, rate(BASELINE).median, rate(PATCHED).median));
        let line = Line {
            who: String::new(),
            cells: vec![
                Some(rate(BASELINE)),
                Some(rate(PATCHED)),
                Some(rate(OURS)),
                Figure::of_pairs(ticks[0], ticks[1]),
            ],
        };
        let plural = if *threads == 1 { "" } else { "s" };
        table.row(format!("{threads} thread{plural}"), Vec::new(), vec![line]);
    }
    report.tables.push(table);
    report.claims.extend(thread_claims(&rates));
}

/// Counts the instructions of the lookups with each of the [`PAPER_SIDES`].
///
/// With `--quick`, only the two caches that the paper compares are measured.
fn of_each_side(context: &Context<'_>, log: &Log) -> Result<Vec<Option<u64>>, String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    log.write(file.as_file())
        .map_err(|error| error.to_string())?;
    let count = |at: usize, finds: &str| {
        let at = at.to_string();
        let arguments = ["lookups", &at, finds].map(OsStr::new);
        let [what, at, finds] = arguments;
        instructions::count(context, &[what, at, finds, file.path().as_os_str()])
    };
    (0..PAPER_SIDES.len())
        .map(|at| {
            if context.quick && ![BASELINE, PATCHED].contains(&at) {
                return Ok(None);
            }
            let (made, left) = (count(at, "made")?, count(at, "left")?);
            Ok(Some(made.saturating_sub(left)))
        })
        .collect()
}

/// Executes the lookups with one of the [`PAPER_SIDES`]. Arguments: the cache's position, `made` or
/// `left`, and the path of the log file.
pub(super) fn work(arguments: &[OsString]) -> Result<(), String> {
    let [at, finds, path] = arguments else {
        return Err("lookups needs a number, made or left, and a file".to_owned());
    };
    let at = at.to_str().and_then(|at| at.parse::<usize>().ok());
    let side = at
        .and_then(|at| PAPER_SIDES.get(at))
        .ok_or("there is no such cache")?;
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let log = Log::read(file).map_err(|error| format!("{}: {error}", path.display()))?;
    let finds = if finds == "made" {
        Finds::Made
    } else {
        Finds::LeftOut
    };
    side.once(&log, finds);
    Ok(())
}
