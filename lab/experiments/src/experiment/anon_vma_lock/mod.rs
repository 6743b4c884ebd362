//! The anon_vma lock shared by related processes, while the processes move their break.
//!
//! In Linux 2.6.31, all VMAs that descend from one VMA share one anon_vma, with a spin lock and a
//! list of these VMAs. `brk` took that spin lock to move `vm_end`; with the patch that the paper
//! describes, it does not. The model in [`family`] has such a lock and list. In current kernels, a
//! heap that grows after a fork gets an anon_vma of its own. Our core also creates such an
//! anon_vma. The experiment counts how often the lock is taken in the model and in the core; the
//! core is measured once with the lock always taken, and once with the lock taken only when needed.
//!
//! Results that need more processors than this machine has are simulated: cache-line transfers with
//! [`coherence`](super::coherence), and throughput with a discrete-event simulation that assigns a
//! fixed cost to each event.

mod family;

use super::Context;
use super::claim::{Bound, Claim};
use super::coherence::{Access, transfers_per_round};
use super::figure::{Figure, Published, Unit};
use super::report::{Line, Report, Table};
use crate::brk::{self, FIRST, HEAP, PAGE};
use crate::parallel::{Speed, together};
use family::Family;
use vmarea::page::Pte;
use vmarea::policy::AdjustLock;
use vmarea::types::{Errno, MmId};
use vmarea::vma::lock::VmaLock;

const SOURCE: &str = "patch description, 2.6.31-stable";
/// Jobs per minute at the two plateaus of AIM7 on 32 processors, without and with the patch.
const PLATEAUS: [f64; 2] = [65e3, 130e3];
/// Jobs per minute with mainline kernels on newer processors, without and with the patch.
const SHANGHAI: [f64; 2] = [77e3, 80e3];
/// Improvement that a tester reported, in per cent.
const TESTED: f64 = 150.0;
/// Number of processors of the simulated machines, from the paper and its testers.
const CPUS: [u32; 4] = [8, 16, 32, 64];
/// Time to move a cache line from one processor to another in the simulation, in nanoseconds.
const TRANSFER: u64 = 100;
/// Time that a simulated `brk` takes outside of the lock, in nanoseconds.
const CALL: u64 = 300;
/// Time for which a simulated `brk` holds the lock, in nanoseconds.
const HELD: u64 = 50;

/// Runs the experiment.
pub(super) fn run(context: &Context<'_>, report: &mut Report) {
    report.substitute(
        "AIM7, 8 sockets and hundreds of disks are not at hand: a shell-like parent forks tasks, \
         and only their brk calls are measured, counted or simulated",
    );
    report.substitute(
        "Linux 2.6.31: a model with its lock and its list; our core's family does not share a lock \
         in brk, because a heap that grows after a fork gets a VMA and an anon_vma of its own",
    );
    report.substitute(format!(
        "throughput on many processors: simulated with a fair lock whose waiters cost nothing; a line needs {TRANSFER} ns between processors, \
         a call {CALL} ns and {HELD} ns under the lock, and the work between two calls varies"
    ));
    if context.quick {
        report.shorten(
            "families of 30,000 tasks in the counts and of 10,000 tasks in the measurement, which \
             has 1,000; 22 of 31 rounds, and four fifths of the calls",
        );
    }
    let counted = growth(context, report);
    report.keep("growth with the number of tasks", counted);
    let measured = timed(context, report);
    report.keep("speed of brk", measured);
    traffic(report);
    throughput(report);
}

/// Number of times that the lock was taken per 1,000 calls, and the length of a reverse-map walk.
///
/// The length is the number of VMAs that are visited by a walk from one page of one task.
struct Counted {
    locked: f64,
    visited: f64,
}

fn on_model(tasks: usize, shortcut: bool) -> Counted {
    let family = Family::new(tasks);
    let forks = family.taken();
    let calls = 1000.max(tasks);
    for call in 0..calls {
        family.brk(1 + call % tasks, shortcut);
    }
    let locked = (family.taken() - forks) as f64 * 1000.0 / calls as f64;
    Counted {
        locked,
        visited: family.walk(HEAP) as f64,
    }
}

fn on_core(tasks: usize, lock: AdjustLock) -> Result<Counted, Errno> {
    let (space, tasks) = brk::family::<VmaLock>(lock, tasks as u64)?;
    let adjusts = || -> u64 {
        let of = |mm: &MmId| Some(space.mmap_read_lock(*mm)?.state().stats.adjusts_locked);
        tasks.iter().filter_map(of).sum()
    };
    let before = adjusts();
    let calls = 1000.max(tasks.len());
    for call in 0..calls {
        let brk = FIRST + (1 + call / tasks.len()) as u64 * PAGE;
        space.brk(tasks[call % tasks.len()], brk)?;
    }
    let locked = (adjusts() - before) as f64 * 1000.0 / calls as f64;
    let entry = |mm: MmId| Some(space.mmap_read_lock(mm)?.pages().get(FIRST - PAGE));
    let mut visited = 0;
    if let Some(Pte::Anon { frame, .. }) = entry(tasks[0]) {
        space.rmap_walk(frame, |_| visited += 1);
    }
    Ok(Counted {
        locked,
        visited: f64::from(visited),
    })
}

fn growth(context: &Context<'_>, report: &mut Report) -> Result<(), String> {
    let all: &[usize] = if context.quick {
        &[1, 10, 100, 1000, 10_000]
    } else {
        &[1, 10, 100, 1000, 10_000, 30_000]
    };
    let columns = [
        "locks per\n1,000 brk,\nalways",
        "with the\nshortcut",
        "VMAs that\na walk visits",
    ];
    let mut table = Table::new(
        "Growth with the number of tasks (counted)",
        SOURCE,
        &columns,
    );
    table.explain([
        "Tasks that were forked from one parent raise their break, which moves only the end of their \
         heap. locks per 1,000 brk: how often 1,000 calls take the lock of the heap's anon_vma (the \
         list by which the kernel finds the mappings of a page), always as before the patch, and with \
         its shortcut. VMAs that a walk visits: length of a walk over that list from one page of one \
         task, during which the lock is held.",
        "2.6.31, list: a model of that kernel, in which one anon_vma is shared by the whole family. \
         core: vmarea's core under the rules of current kernels, where a heap that grows after the \
         fork gets an anon_vma of its own. The patch has no such table: it says only that brk need \
         not take the lock.",
    ]);
    let mut shortcut_locks = 0.0;
    for &tasks in all {
        let refused = |errno| format!("the core refused a call with {tasks} tasks: {errno}");
        let model = [on_model(tasks, false), on_model(tasks, true)];
        let core = [
            on_core(tasks, AdjustLock::Always).map_err(refused)?,
            on_core(tasks, AdjustLock::WhenNeeded).map_err(refused)?,
        ];
        shortcut_locks += model[1].locked + core[1].locked;
        let line = |who: &str, [always, needed]: &[Counted; 2]| {
            let cells = [always.locked, needed.locked, needed.visited];
            Line::full(who, cells.map(|value| Figure::exact(value, Unit::Count)))
        };
        let lines = vec![line("2.6.31, list", &model), line("core", &core)];
        table.row(
            format!("{} tasks", Unit::Count.format(tasks as f64)),
            Vec::new(),
            lines,
        );
    }
    report.tables.push(table);
    report.claims.push(lock_claim(shortcut_locks));
    Ok(())
}

fn lock_claim(locks: f64) -> Claim {
    Claim::by(
        "brk needs no anon_vma lock: only vm_end moves",
        "no lock",
        (
            "locks per 1,000 calls with the shortcut, the model's and the core's at every number of \
             tasks added up",
            &Figure::exact(locks, Unit::Count),
        ),
        Bound::AtMost(0.0),
    )
}

/// Simulated tasks that raise their program breaks in turn, and the threads that make the calls for
/// them.
#[derive(Clone, Copy)]
struct Load {
    threads: u64,
    tasks: u64,
    /// Number of calls that each thread makes.
    calls: u64,
}

impl Load {
    /// Returns the task for which a thread makes a call, and how many calls that task has made
    /// before.
    fn task(self, thread: u64, call: u64) -> (u64, u64) {
        let nr = call * self.threads + thread;
        (nr % self.tasks, nr / self.tasks)
    }
}

/// Returns the speed of the model under `load`.
fn model_speed(load: Load, shortcut: bool) -> Result<Speed, Errno> {
    let family = Family::new(load.tasks as usize);
    let brk = |thread, call| {
        family.brk(1 + load.task(thread, call).0 as usize, shortcut);
        Ok(())
    };
    together((load.threads, load.calls), &brk, None)
}

/// Returns the speed of the core under `load`.
fn core_speed(load: Load, shortcut: bool) -> Result<Speed, Errno> {
    let lock = if shortcut {
        AdjustLock::WhenNeeded
    } else {
        AdjustLock::Always
    };
    let (space, tasks) = brk::family::<VmaLock>(lock, load.tasks)?;
    let brk = |thread, call| {
        let (task, turn) = load.task(thread, call);
        let brk = FIRST + (1 + turn) * PAGE;
        space.brk(tasks[task as usize], brk).map(|_| ())
    };
    together((load.threads, load.calls), &brk, None)
}

fn speed_table() -> Table {
    let mut table = Table::new(
        "brk calls per second with the shortcut, relative to without",
        "AIM7: 130,000 to 65,000 jobs a minute on 32 processors, 80,000 to 77,000 on others",
        &["by the clock", "by processor\ntime"],
    );
    table.explain([
        "Calls per second with the shortcut, divided by those without it in the same round: above 1 \
         is faster with the shortcut. by the clock: of wall-clock time, which other programs on the \
         machine disturb. by processor time: of the time for which the threads ran; it decides the \
         claims. Below each is the interval of the median. The paper's figures are jobs of the \
         benchmark AIM7, of which brk is only a part.",
    ]);
    table
}

fn timed(context: &Context<'_>, report: &mut Report) -> Result<(), String> {
    let rounds = if context.quick { 9 } else { 31 };
    let calls = if context.quick { 20_000 } else { 100_000 };
    let mut table = speed_table();
    type Speeds = fn(Load, bool) -> Result<Speed, Errno>;
    let subjects: [(&str, Speeds); 2] = [("2.6.31, list", model_speed), ("core", core_speed)];
    let many = if context.quick { 1000 } else { 10_000 };
    for (threads, tasks) in [(1, 1), (2, 2), (2, many)] {
        let load = Load {
            threads,
            tasks,
            calls,
        };
        let label = match tasks {
            1 => "1 task".to_owned(),
            2 => "2 tasks".to_owned(),
            _ => format!("{} tasks, 2 threads", Unit::Count.format(tasks as f64)),
        };
        let mut lines = Vec::new();
        for (who, speed) in subjects {
            let mut ratios = [Vec::new(), Vec::new()];
            for _ in 0..rounds {
                let refused = |errno: Errno| format!("the core refused a call: {errno}");
                let with = speed(load, true).map_err(refused)?;
                let without = speed(load, false).map_err(refused)?;
                ratios[0].push(with.clock / without.clock);
                ratios[1].push(with.processor / without.processor);
            }
            let figures = ratios.map(|runs| Figure::of_runs(&runs, Unit::Ratio));
            if let Some(figure) = &figures[1] {
                report.claims.push(speed_claim(who, &label, figure));
            }
            lines.push(Line {
                who: who.to_owned(),
                cells: figures.into(),
            });
        }
        table.row(label, Vec::new(), lines);
    }
    report.tables.push(table);
    Ok(())
}

/// Decides whether brk is faster with the shortcut; `figure` is a ratio of processor times.
fn speed_claim(who: &str, label: &str, figure: &Figure) -> Claim {
    Claim::by(
        format!("{who}: {label}: brk is faster with the shortcut"),
        format!(
            "{:.3} and {:.1} times the jobs of AIM7",
            SHANGHAI[1] / SHANGHAI[0],
            1.0 + TESTED / 100.0
        ),
        (
            "speed with the shortcut / speed without it, by processor time",
            figure,
        ),
        Bound::AtLeast(1.0),
    )
}

fn traffic(report: &mut Report) {
    let columns = CPUS.map(|cpus| format!("{cpus} CPUs"));
    let columns = columns.each_ref().map(String::as_str);
    let title = "Line transfers of a brk call (simulated)";
    let mut table = Table::new(title, "no table in the patch", &columns);
    table.explain([
        "How often a cache line moves from one processor's cache to another's in one call, on \
         average, if all processors call brk at once for tasks of one family: simulated.",
    ]);
    for (label, shared_lock) in [("lock always", true), ("with the shortcut", false)] {
        let each = |cpus: u32| {
            let list = |cpu: u32| {
                let own = u64::from(cpu + 1) << 12;
                let mut list = vec![Access::Write(own), Access::Read(own + 64)];
                if shared_lock {
                    list.push(Access::Write(0));
                }
                list.push(Access::Write(own + 64));
                if shared_lock {
                    list.push(Access::Write(0));
                }
                list.push(Access::Write(own));
                list
            };
            let lists: Vec<_> = (0..cpus).map(list).collect();
            Figure::exact(transfers_per_round(&lists, 200), Unit::Ratio)
        };
        table.row(label, Vec::new(), vec![Line::full("model", CPUS.map(each))]);
    }
    report.tables.push(table);
}

/// Returns the calls per microsecond of all simulated processors combined.
fn calls_per_microsecond(cpus: u32, work: u64, locked: bool) -> f64 {
    const CALLS: u64 = 20_000;
    // The processors start at different times, as tasks on a real machine do.
    let mut ready: Vec<u64> = (0..u64::from(cpus)).map(|cpu| cpu * 37).collect();
    let (mut free, mut last) = (0, usize::MAX);
    let mut now = 0;
    for _ in 0..CALLS {
        let next = (0..ready.len()).min_by_key(|cpu| ready[*cpu]).unwrap_or(0);
        now = ready[next];
        if locked {
            let begin = now.max(free);
            let transfer = if last == next { 0 } else { TRANSFER };
            free = begin + transfer + HELD;
            last = next;
            now = free;
        }
        ready[next] = now + CALL + work;
    }
    CALLS as f64 * 1000.0 / now.max(1) as f64
}

/// Returns the throughput with the lock relative to that with the shortcut, for each of `CPUS`.
fn with_lock(work: u64) -> [f64; CPUS.len()] {
    CPUS.map(|cpus| {
        calls_per_microsecond(cpus, work, true) / calls_per_microsecond(cpus, work, false)
    })
}

/// Returns the work between two calls, in nanoseconds, at which the lock halves the throughput.
///
/// The simulation uses 32 processors, because the patch's description reports halved throughput for
/// such a machine.
fn halving_work() -> u64 {
    let far = |work: &u64| (with_lock(*work)[2] - PLATEAUS[0] / PLATEAUS[1]).abs();
    let works = (0..100).map(|hundreds| hundreds * 100);
    works
        .min_by(|a, b| far(a).total_cmp(&far(b)))
        .unwrap_or_default()
}

fn throughput(report: &mut Report) {
    let columns = CPUS.map(|cpus| format!("{cpus} CPUs"));
    let columns = columns.each_ref().map(String::as_str);
    let title = "Throughput with the lock, relative to the shortcut (simulated)";
    let source = "AIM7: 65,000 to 130,000 jobs a minute; 100 to 250";
    let mut table = Table::new(title, source, &columns);
    let halving = halving_work();
    table.explain([
        "Calls per second of all processors together with the lock, divided by those with the \
         shortcut, if each processor works for the stated time between two calls: 1 means that the \
         lock costs nothing, 0.5 that it halves the throughput. The paper does not say how much work \
         AIM7 does between two calls. The row with figures of the paper is the work for which the \
         lock halves the throughput of 32 processors, as AIM7's did: it is chosen, so it decides no \
         claim.",
    ]);
    let mut works = vec![0, 1000, halving, 5000, 10_000, 100_000];
    works.sort_unstable();
    for work in works {
        let mut paper = Vec::new();
        if work == halving {
            let ratio = |value| Some(Published::exact(value, Unit::Ratio));
            let tested = ratio(100.0 / (100.0 + TESTED));
            let cells = vec![None, None, ratio(PLATEAUS[0] / PLATEAUS[1]), tested];
            let who = String::new();
            paper.push(Line { who, cells });
        }
        let ratios = with_lock(work).map(|ratio| Figure::exact(ratio, Unit::Ratio));
        let label = format!("{} ns of work between", Unit::Count.format(work as f64));
        table.row(label, paper, vec![Line::full("model", ratios)]);
    }
    report.tables.push(table);
    report.claims.extend(throughput_claims());
}

/// Returns the claims about machines with many processors, none of which is decided.
fn throughput_claims() -> Vec<Claim> {
    let fitted = [
        (
            "a machine with 8 processors does not show it",
            "not seen on 4 sockets with 8 cores",
        ),
        (
            "a machine with 2 x 4 x 2 processors does not show it clearly",
            "not clear on dual-socket Nehalem",
        ),
        (
            "the shortcut gains 150 % or more on 4 x 8 x 2 processors",
            "150 %",
        ),
    ]
    .map(|(text, paper)| {
        let why = "it followed from the simulation's only free parameter, the work between two calls, \
            which was chosen so that 32 processors have the paper's 0.50: no costs of a lock, a call \
            or a cache line made it come out false";
        Claim::withdrawn(text, paper, why)
    });
    let measured = [
        (
            "AIM7's throughput stays on the plateau of 130,000 jobs a minute",
            "65,000 and 130,000",
            "AIM7 on 32 processors with the shortcut: a run at 65,000 jobs a minute",
        ),
        (
            "3.9 % more jobs a minute with mainline on newer processors",
            "80,000 to 77,000",
            "AIM7 on 32 processors: less than 3.9 % more jobs a minute with the shortcut",
        ),
    ]
    .map(|(text, paper, refuted_by)| {
        let why = "needs AIM7, its disks and a machine with 32 processors; brk alone is above";
        Claim::undecided(text, paper, refuted_by, why)
    });
    fitted.into_iter().chain(measured).collect()
}

/// Claims decided by figures that contradict them.
#[cfg(test)]
pub(super) fn refuted() -> Vec<Claim> {
    let slower = Figure::of_runs(&[0.7, 0.8, 0.9], Unit::Ratio).expect("three runs");
    let labels = [
        "1 task",
        "2 tasks",
        "10,000 tasks, 2 threads",
        "1,000 tasks, 2 threads",
    ];
    let speeds = ["2.6.31, list", "core"]
        .into_iter()
        .flat_map(|who| labels.map(|label| speed_claim(who, label, &slower)));
    speeds.chain([lock_claim(1.0)]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::claim::Decision;
    use super::*;

    #[test]
    fn the_model_locks_once_a_call_and_the_shortcut_never() {
        for tasks in [1, 7, 300] {
            assert_eq!(on_model(tasks, false).locked, 1000.0);
            assert_eq!(on_model(tasks, true).locked, 0.0);
            assert_eq!(on_model(tasks, true).visited, (tasks + 1) as f64);
        }
    }

    #[test]
    fn the_core_locks_when_needed_only_and_a_walk_visits_one_task() {
        let always = on_core(20, AdjustLock::Always).unwrap();
        let needed = on_core(20, AdjustLock::WhenNeeded).unwrap();
        assert_eq!((always.locked, needed.locked), (1000.0, 0.0));
        assert_eq!(needed.visited, 1.0);
    }

    #[test]
    fn what_follows_from_a_fit_decides_nothing() {
        let claims = throughput_claims();
        let decided =
            |claim: &&Claim| !matches!(claim.decision, Decision::Withdrawn | Decision::Undecided);
        assert_eq!(claims.iter().filter(decided).count(), 0);
        assert_eq!(claims.len(), 5, "a withdrawn claim keeps its row");
    }

    #[test]
    fn the_lock_bounds_the_simulated_throughput() {
        assert_eq!(
            calls_per_microsecond(1, 0, true),
            calls_per_microsecond(1, 0, true)
        );
        let most = 1000.0 / (TRANSFER + HELD) as f64;
        let locked = calls_per_microsecond(56, 0, true);
        assert!(locked <= most * 1.01 && locked > most * 0.9, "{locked}");
        let free = calls_per_microsecond(56, 0, false);
        assert!(free > 5.0 * locked, "{free}");
    }
}
