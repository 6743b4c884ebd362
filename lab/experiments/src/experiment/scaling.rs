//! Threads that change mappings of one address space at once, with one writer and with parts.
//!
//! The speed of two threads relative to that of one is measured, in the core with each kind of
//! writers and in the running kernel. More threads than this machine has processors are simulated:
//! under one writer a call holds `mmap_lock` for its whole length and the lock's line moves from
//! one processor to the next; under parts, `ci/run conflicts` finds no cache line that calls in
//! different parts share, so they do not wait for each other.

use super::Context;
use super::claim::{Bound, Claim};
use super::figure::{Figure, Unit};
use super::idle::{Idle, Watch};
use super::report::{Line, Report, Table};
use crate::parallel::{Speed, together};
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::{MmapRequest, Placement};
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::writers::{OneWriter, Regions, Writers};
use vmarea::types::{Errno, MmId, NoBytes, PAGE_SIZE, WithVmaLock};
use vmarea::vma::lock::VmaLock;
use vmarea::{Space, System};
use vmarea_oracle::own_memory::{Untouched, map_and_unmap_pages};

const SOURCE: &str = "no figures of the papers: their machines have 32 to 128 processors";
/// Speed of two writers relative to one that parts should reach.
const GOAL: f64 = 1.7;
/// Pages of a mapping.
const PAGES: u64 = 4;
/// Distance between the mappings of two threads in one part, and from the start of a part.
const APART: u64 = 1 << 30;
/// Numbers of processors of the simulated machines.
const CPUS: [u32; 6] = [2, 4, 8, 16, 32, 64];
/// Time to move a cache line from one processor to another in the simulation, in nanoseconds.
const TRANSFER: f64 = 100.0;

/// Two calls that leave the address space as it was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Map,
    MapFixed,
    Protect,
}

const WORKS: [(Work, &str); 3] = [
    (Work::Map, "mmap and munmap"),
    (Work::MapFixed, "mmap with MAP_FIXED and munmap"),
    (Work::Protect, "mprotect that splits and merges"),
];

/// Where the threads' mappings are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ranges {
    /// Each in a part of its own, and searched for in an arena of its own.
    Parts,
    /// All in one part, and searched for in the same arena.
    OnePart,
}

#[derive(Clone, Copy)]
struct Load {
    work: Work,
    ranges: Ranges,
    threads: u64,
    /// Number of times that each thread does the work.
    times: u64,
}

/// Runs the experiment.
pub(super) fn run(context: &Context<'_>, report: &mut Report) {
    report.substitute(
        "machines with many processors: two threads are measured, more are simulated with the \
         measured length of a call",
    );
    if context.quick {
        report.shorten("9 of 31 rounds, and a fifth of the calls");
    }
    let measured = measured(context, report);
    if let Some(lengths) = report.keep("speed of two threads", measured) {
        simulated(&lengths, report);
    }
}

type Machine<K> = Space<WithVmaLock<VmaLock, K>>;

/// The core with one kind of writers.
struct Core<K: Writers> {
    space: Machine<K>,
    mm: MmId,
}

impl<K: Writers> Core<K> {
    fn new() -> Result<Self, Errno> {
        let system = System::default();
        let layout = Layout {
            mmap_base: system.task_size - (1 << 32),
            ..Layout::default()
        };
        let space = Machine::<K>::in_environment(Policy::LINUX, system, Box::new(NoBytes));
        let mm = space.mm_create(layout, Limits::default())?;
        let core = Core { space, mm };
        // A first mapping puts each part to use.
        for thread in 0..2 {
            core.map(Regions::arena(thread).start + 4 * APART)?;
        }
        Ok(core)
    }

    fn map(&self, addr: u64) -> Result<(), Errno> {
        let request = MmapRequest {
            addr,
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
            ..MmapRequest::anonymous(PAGES * PAGE_SIZE)
        };
        self.space.mmap(self.mm, &request).map(drop)
    }

    fn once(&self, load: Load, thread: u64) -> Result<(), Errno> {
        let (space, mm, len) = (&self.space, self.mm, PAGES * PAGE_SIZE);
        let (arena, addr) = place(load.ranges, thread);
        match load.work {
            Work::Map => {
                let request = MmapRequest {
                    placement: Placement::Arena(arena),
                    ..MmapRequest::anonymous(len)
                };
                let addr = space.mmap(mm, &request)?;
                space.munmap(mm, addr, len)
            }
            Work::MapFixed => {
                self.map(addr)?;
                space.munmap(mm, addr, len)
            }
            Work::Protect => {
                let middle = addr + PAGE_SIZE;
                space.mprotect(mm, middle, PAGE_SIZE, Prot::READ, None)?;
                space.mprotect(mm, middle, PAGE_SIZE, Prot::READ | Prot::WRITE, None)
            }
        }
    }

    fn speed(load: Load) -> Result<Speed, Errno> {
        let core = Self::new()?;
        if load.work == Work::Protect {
            for thread in 0..load.threads {
                core.map(place(load.ranges, thread).1)?;
            }
        }
        let each = |thread, _| core.once(load, thread);
        let speed = together((load.threads, load.times), &each, None)?;
        // In a program without debug assertions, a check for each kind of writers would be dead weight.
        if cfg!(debug_assertions) {
            core.space.validate_all().map_err(|_| Errno::EINVAL)?;
        }
        Ok(speed)
    }
}

/// Returns a thread's arena and the address of its mapping.
fn place(ranges: Ranges, thread: u64) -> (usize, u64) {
    let (arena, nth) = match ranges {
        Ranges::Parts => (thread as usize, 1),
        Ranges::OnePart => (0, 1 + thread),
    };
    (arena, Regions::arena(arena).start + nth * APART)
}

/// Returns the speed of the running kernel, whose threads share one `mmap_lock` in any case.
fn kernel_speed(load: Load) -> Result<Speed, std::io::Error> {
    let own = (0..load.threads).map(|_| Untouched::new(PAGES as usize));
    let own = own.collect::<Result<Vec<_>, _>>()?;
    let each = |thread: u64, _| match load.work {
        Work::Map | Work::MapFixed => map_and_unmap_pages(PAGES as usize),
        Work::Protect => {
            own[thread as usize].set_writable(1, false)?;
            own[thread as usize].set_writable(1, true)
        }
    };
    together((load.threads, load.times), &each, None)
}

fn speed(who: &str, load: Load) -> Result<Speed, String> {
    let refused = |why: String| format!("{who} refused a call: {why}");
    match who {
        "kernel" => kernel_speed(load).map_err(|why| refused(why.to_string())),
        "one writer" => Core::<OneWriter>::speed(load).map_err(|why| refused(why.to_string())),
        _ => Core::<Regions>::speed(load).map_err(|why| refused(why.to_string())),
    }
}

/// Measures two threads against one; returns for each work the length of a call in the core with
/// one writer, in nanoseconds.
fn measured(context: &Context<'_>, report: &mut Report) -> Result<Vec<f64>, String> {
    let (rounds, times) = if context.quick {
        (9, 4_000)
    } else {
        (31, 20_000)
    };
    let columns = [
        "separate parts,\nby the clock",
        "separate parts,\nby processor time",
        "one part,\nby the clock",
    ];
    let title = "Calls per second of two threads, relative to one thread";
    let mut table = Table::new(title, SOURCE, &columns);
    table.explain([
        "2 is perfect: neither thread waits for the other. separate parts: the threads' mappings \
         are in different parts of the address space, 4 TiB apart, and each thread searches in an \
         arena of its own. one part: they are 1 GiB apart, in one part. by the clock: of wall-clock \
         time, which other programs disturb. by processor time: of the time for which the threads \
         ran, which leaves out the time for which a waiting thread slept.",
        "one writer: the core as Linux is, all writers take mmap_lock. parts: the core with an \
         address space in 32 parts. kernel: the same calls on the running kernel, in this process; \
         its mappings are wherever the kernel puts them.",
    ]);
    let mut lengths = Vec::new();
    for (work, label) in WORKS {
        let mut lines = Vec::new();
        for who in ["one writer", "parts", "kernel"] {
            let watch = Watch::begin();
            let (length, cells) = compared(who, work, (rounds, times))?;
            let idle = watch.end();
            if who == "parts"
                && let Some(figure) = &cells[0]
            {
                report.claims.push(claim(label, figure, idle));
            }
            if who == "one writer" {
                lengths.push(length);
            }
            lines.push(Line {
                who: who.to_owned(),
                cells: cells.into(),
            });
        }
        table.row(label, Vec::new(), lines);
    }
    report.tables.push(table);
    Ok(lengths)
}

/// Decides whether two writers in separate parts do not wait for each other.
///
/// Processor time would not do, because it leaves out the time for which a waiting thread sleeps.
fn claim(label: &str, figure: &Figure, idle: Idle) -> Claim {
    Claim::by_clock(
        format!("{label}: two writers in separate parts are {GOAL} times as fast as one"),
        "goal of this project",
        ("speed of two threads / speed of one, by the clock", figure),
        Bound::AtLeast(GOAL),
        idle,
    )
}

/// The columns of the table of measured speeds.
type Cells = [Option<Figure>; 3];

/// Returns the length of a call of one thread in nanoseconds, and the speeds of two threads.
fn compared(who: &str, work: Work, (rounds, times): (usize, u64)) -> Result<(f64, Cells), String> {
    let mut ratios = [Vec::new(), Vec::new(), Vec::new()];
    let mut length = Vec::new();
    for _ in 0..rounds {
        let at = |ranges, threads| {
            let load = Load {
                work,
                ranges,
                threads,
                times,
            };
            speed(who, load)
        };
        let (one, two) = (at(Ranges::Parts, 1)?, at(Ranges::Parts, 2)?);
        let near = at(Ranges::OnePart, 2)?;
        ratios[0].push(two.clock / one.clock);
        ratios[1].push(two.processor / one.processor);
        ratios[2].push(near.clock / one.clock);
        length.push(1e9 / one.processor / 2.0);
    }
    let cells = ratios.map(|runs| Figure::of_runs(&runs, Unit::Ratio));
    let length = Figure::of_runs(&length, Unit::Nanoseconds);
    Ok((length.map_or(0.0, |figure| figure.median), cells))
}

/// Returns the speed of `cpus` processors relative to one, if each call holds a lock for `held`
/// nanoseconds and each processor then works for `work` nanoseconds.
fn speedup(cpus: u32, held: f64, work: f64) -> f64 {
    const CALLS: u32 = 20_000;
    // The processors start at different times, as threads on a real machine do.
    let mut ready: Vec<f64> = (0..cpus).map(|cpu| f64::from(cpu) * 37.0).collect();
    let (mut free, mut last, mut now) = (0.0_f64, usize::MAX, 0.0);
    for _ in 0..CALLS {
        let next = (0..ready.len()).min_by(|a, b| ready[*a].total_cmp(&ready[*b]));
        let next = next.unwrap_or(0);
        let transfer = if last == next { 0.0 } else { TRANSFER };
        free = free.max(ready[next]) + transfer + held;
        last = next;
        now = free;
        ready[next] = now + work;
    }
    f64::from(CALLS) * (held + work) / now.max(1.0)
}

fn simulated(lengths: &[f64], report: &mut Report) {
    let columns = CPUS.map(|cpus| format!("{cpus} CPUs"));
    let columns = columns.each_ref().map(String::as_str);
    let title = "Calls per second of many threads, relative to one thread (simulated)";
    let mut table = Table::new(title, SOURCE, &columns);
    table.explain([format!(
        "A thread makes a call and then works for the stated time without one. one writer: a fair \
         lock is held for the whole call, whose length is the median measured above, and its line \
         takes {TRANSFER} ns to the next processor. Calls in separate parts share no cache line \
         that one of them writes (docs/conflicts.md), so the simulation has nothing in which they \
         wait: the row is the number of processors, an upper bound that leaves out the memory bus."
    )]);
    for (&length, (_, label)) in lengths.iter().zip(WORKS) {
        for work in [0.0, 1_000.0, 10_000.0] {
            let one = CPUS.map(|cpus| Figure::exact(speedup(cpus, length, work), Unit::Ratio));
            let parts = CPUS.map(|cpus| Figure::exact(f64::from(cpus), Unit::Ratio));
            table.row(
                format!("{label}, {} ns between", Unit::Count.format(work)),
                Vec::new(),
                vec![Line::full("one writer", one), Line::full("parts", parts)],
            );
        }
    }
    report.tables.push(table);
}

/// Claims decided by figures that contradict them.
#[cfg(test)]
pub(super) fn refuted() -> Vec<Claim> {
    let waiting = Figure::of_runs(&[0.9, 1.0, 1.6], Unit::Ratio).expect("three runs");
    WORKS
        .map(|(_, label)| claim(label, &waiting, Idle(Some(0.0))))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_bounds_the_simulated_speed_and_work_between_calls_hides_it() {
        assert!((speedup(1, 500.0, 0.0) - 1.0).abs() < 0.01);
        assert!(
            speedup(64, 500.0, 0.0) < 1.0,
            "the line moves for each call"
        );
        let hidden = speedup(2, 100.0, 100_000.0);
        assert!((1.99..=2.0).contains(&hidden), "{hidden}");
        assert_eq!(speedup(8, 500.0, 1e3), speedup(8, 500.0, 1e3));
    }

    #[test]
    fn each_subject_does_each_work_with_two_threads() {
        for (work, label) in WORKS {
            for who in ["one writer", "parts", "kernel"] {
                for ranges in [Ranges::Parts, Ranges::OnePart] {
                    let load = Load {
                        work,
                        ranges,
                        threads: 2,
                        times: 50,
                    };
                    let speed = speed(who, load).unwrap_or_else(|why| panic!("{label}: {why}"));
                    assert!(speed.clock > 0.0);
                }
            }
        }
    }
}
