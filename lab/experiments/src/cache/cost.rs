//! Cost of a lookup, measured by repeating the lookups of a replay with one cache at a time.
//!
//! The steps of the replay's log are executed on an index, without the rest of the core.
//! Consecutive lookups are timed together. A further pass executes the steps without the lookups;
//! the time that it measures is the cost of reading the clock and is subtracted. One thread
//! simulates all threads in the order of the trace, so the times include no contention for cache
//! lines. The times also exclude the cost of updating a cache when a VMA is removed (one or two
//! stores).

use super::super::Ratio;
use super::super::bare::mm_id;
use super::super::ratio::median;
use super::index::{CoreIndex, Index, RedBlackIndex};
use super::log::{Log, Step};
use crate::vma_cache::{
    Cache, Checked, LastUsed, LastUsedAndLargest, Lookup, NoCache, VmaCache, find_vma,
};
use std::hint::black_box;
use std::time::{Duration, Instant};
use vmarea::types::{VmRange, VmaId};
use vmarea_oracle::tsc::ticks;

/// Lookup cost with one cache.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Nanoseconds per lookup.
    pub nanoseconds: f64,
    /// Time per lookup, relative to the time per lookup without a cache.
    pub ratio: Option<Ratio>,
}

/// State during one pass over a log.
struct Pass<'l, C: Cache, I: Index> {
    log: &'l Log,
    index: I,
    /// Id and address space of each live VMA, by the VMA's number in the log.
    vmas: Vec<Option<(VmaId, u32)>>,
    shared: Vec<C::Mm>,
    threads: Vec<Option<C::Thread>>,
    hits: u64,
}

/// Whether a pass executes the lookups or only the other steps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Finds {
    /// The lookups are executed.
    Made,
    /// The lookups are left out.
    LeftOut,
}

/// Cost of one pass over a log.
#[derive(Clone, Copy, Default, Debug)]
struct Spent {
    /// Seconds for all lookups, including the timing overhead.
    seconds: f64,
    /// Ticks of the time-stamp counter for all lookups, including the timing overhead.
    ticks: f64,
    /// Number of lookups that hit in the cache.
    hits: u64,
}

impl<'l, C: Cache, I: Index> Pass<'l, C, I> {
    fn new(log: &'l Log) -> Self {
        Pass {
            log,
            index: I::new(log.mms),
            vmas: vec![None; log.vmas as usize],
            shared: (0..log.mms).map(|_| C::Mm::default()).collect(),
            threads: (0..log.threads).map(|_| None).collect(),
            hits: 0,
        }
    }

    /// Executes every step.
    fn run(mut self, finds: Finds) -> Spent {
        let mut begun = None;
        let (mut time, mut total) = (Duration::ZERO, 0);
        let mut end = |begun: &mut Option<(Instant, u64)>| {
            if let Some((clock, counter)) = begun.take() {
                total += ticks() - counter;
                time += clock.elapsed();
            }
        };
        for step in &self.log.steps {
            if let Step::Find { thread, mm, addr } = *step {
                begun.get_or_insert_with(|| (Instant::now(), ticks()));
                if finds == Finds::Made {
                    self.find(thread, mm, addr);
                }
                continue;
            }
            end(&mut begun);
            self.change(step);
        }
        end(&mut begun);
        Spent {
            seconds: time.as_secs_f64(),
            ticks: total as f64,
            hits: self.hits,
        }
    }

    /// Executes every step; returns the mean ticks per lookup that starts with evicted caches.
    ///
    /// The processor's private caches are evicted before each `every`-th lookup, and only these
    /// lookups are timed. The longest 2 % of the timed lookups are left out, because an interrupt
    /// probably prolonged them.
    fn run_evicted(mut self, finds: Finds, every: u64, evictor: &Evictor) -> f64 {
        let mut samples = Vec::new();
        let mut seen = 0;
        for step in &self.log.steps {
            let Step::Find { thread, mm, addr } = *step else {
                self.change(step);
                continue;
            };
            seen += 1;
            if seen % every != 0 {
                self.find(thread, mm, addr);
                continue;
            }
            evictor.evict();
            let begun = ticks();
            if finds == Finds::Made {
                self.find(thread, mm, addr);
            }
            samples.push(ticks() - begun);
        }
        samples.sort_unstable();
        samples.truncate((samples.len() * 98).div_ceil(100));
        samples.iter().sum::<u64>() as f64 / samples.len().max(1) as f64
    }

    fn change(&mut self, step: &Step) {
        match *step {
            Step::Find { .. } => {}
            Step::Enter { thread, mm } => {
                let own = self.threads[thread as usize].insert(C::Thread::default());
                C::enter(&self.shared[mm as usize], own, mm_id(mm));
            }
            Step::Leave { thread } => self.threads[thread as usize] = None,
            Step::Link { mm, vma, range } => self.link(mm, vma, range),
            Step::Resize { vma, start, range } => self.resize(vma, start, range),
            Step::Unlink { vma, prev } => self.unlink(vma, prev),
            Step::Unmapped { mm } => C::unmapped(&self.shared[mm as usize]),
        }
    }

    #[inline]
    fn find(&mut self, thread: u32, mm: u32, addr: u64) {
        let space = self.index.mm(mm);
        let own = self.threads[thread as usize].get_or_insert_default();
        let found = find_vma::<C, _>(&self.shared[mm as usize], own, &space, addr);
        self.hits += u64::from(matches!(found, Lookup::Hit(..)));
        black_box(found.found());
    }

    fn link(&mut self, mm: u32, vma: u32, range: VmRange) {
        let id = self.index.link(mm, range);
        self.vmas[vma as usize] = id.map(|id| (id, mm));
    }

    fn resize(&mut self, vma: u32, start: u64, range: VmRange) {
        if let Some((id, mm)) = self.vmas[vma as usize] {
            self.index.resize(mm, id, start, range);
        }
    }

    fn unlink(&mut self, vma: u32, prev: Option<u32>) {
        let Some((id, mm)) = self.vmas[vma as usize].take() else {
            return;
        };
        let prev = prev.and_then(|prev| self.vmas[prev as usize]);
        C::unlinked(&self.shared[mm as usize], id, prev.map(|(id, _)| id));
        self.index.unlink(mm, id);
    }
}

/// Buffer of twice the size of a processor's private caches; reading all of it evicts their
/// content.
///
/// The eviction simulates the program and kernel code that runs between two lookups.
struct Evictor(Vec<[u64; 8]>);

impl Evictor {
    fn new() -> Evictor {
        const LINES: usize = (2 << 20) / 64;
        Evictor((0..LINES).map(|line| [line as u64; 8]).collect())
    }

    fn evict(&self) {
        black_box(self.0.iter().map(|line| line[0]).sum::<u64>());
    }
}

/// A cache in front of an index.
#[derive(Clone, Copy)]
pub struct Side {
    /// Name of the index.
    pub index: &'static str,
    /// Name of the cache.
    pub cache: &'static str,
    pass: fn(&Log, Finds) -> Spent,
    evicted: fn(&Log, Finds, u64, &Evictor) -> f64,
}

impl Side {
    const fn of<C: Cache, I: Index>() -> Side {
        Side {
            index: I::NAME,
            cache: C::NAME,
            pass: |log, finds| Pass::<C, I>::new(log).run(finds),
            evicted: |log, finds, every, evictor| {
                Pass::<C, I>::new(log).run_evicted(finds, every, evictor)
            },
        }
    }

    /// Executes the steps of a log once, so that a tool can count the instructions.
    pub fn once(&self, log: &Log, finds: Finds) {
        (self.pass)(log, finds);
    }
}

/// Every cache in front of the core's index, in the order of [`count`](super::count()).
pub const SIDES: [Side; 5] = sides::<CoreIndex>();

/// Every cache in front of the red-black tree, then two caches in front of the core's index.
///
/// The two entries for the core's index are the one without a cache and the one with vmarea's
/// cache.
pub const PAPER_SIDES: [Side; 7] = {
    let [none, last, largest, vmacache, ours] = sides::<RedBlackIndex>();
    let [core_none, .., core_ours] = SIDES;
    [none, last, largest, vmacache, ours, core_none, core_ours]
};

const fn sides<I: Index>() -> [Side; 5] {
    [
        Side::of::<NoCache, I>(),
        Side::of::<LastUsed, I>(),
        Side::of::<LastUsedAndLargest, I>(),
        Side::of::<VmaCache, I>(),
        Side::of::<Checked, I>(),
    ]
}

/// Returns the number of hits of every cache in front of the core's index.
pub fn hits(log: &Log) -> Vec<u64> {
    let hits = |side: &Side| (side.pass)(log, Finds::Made).hits;
    SIDES.iter().map(hits).collect()
}

/// Measurements of one of the [`PAPER_SIDES`].
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Number of hits.
    pub hits: u64,
    /// Ticks of the time-stamp counter for all lookups, one value per round.
    pub ticks: Vec<f64>,
    /// Mean ticks of a lookup that starts with evicted caches, one value per round.
    pub evicted: Vec<f64>,
}

/// Approximate number of lookups per round that start with evicted caches.
const EVICTED: u64 = 500;

/// Measures the [`PAPER_SIDES`] in turn, `rounds` times.
pub fn measure_ticks(log: &Log, rounds: usize) -> Vec<Measured> {
    let mut all = vec![Measured::default(); PAPER_SIDES.len()];
    let (mut clock, mut evicted_clock) = (f64::INFINITY, f64::INFINITY);
    let (evictor, every) = (Evictor::new(), (log.finds / EVICTED).max(1));
    for round in 0..rounds.max(1) {
        // The shortest pass without lookups is the cost of reading the clock; a longer one was
        // disturbed.
        let first = PAPER_SIDES[0];
        clock = clock.min((first.pass)(log, Finds::LeftOut).ticks);
        let read = (first.evicted)(log, Finds::LeftOut, every, &evictor);
        evicted_clock = evicted_clock.min(read);
        for turn in 0..PAPER_SIDES.len() {
            // Each round starts with another cache.
            let at = (round + turn) % PAPER_SIDES.len();
            let spent = (PAPER_SIDES[at].pass)(log, Finds::Made);
            all[at].hits = spent.hits;
            all[at].ticks.push(spent.ticks);
            let mean = (PAPER_SIDES[at].evicted)(log, Finds::Made, every, &evictor);
            all[at].evicted.push(mean);
        }
    }
    for side in &mut all {
        for (figures, clock) in [(&mut side.ticks, clock), (&mut side.evicted, evicted_clock)] {
            for figure in figures {
                *figure = (*figure - clock).max(1.0);
            }
        }
    }
    all
}

/// Measures the caches in front of the core's index in turn, `rounds` times.
pub fn measure(log: &Log, rounds: usize) -> Vec<Cost> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); SIDES.len()];
    for round in 0..rounds.max(1) {
        let without = (SIDES[0].pass)(log, Finds::LeftOut).seconds;
        for turn in 0..SIDES.len() {
            // Each round starts with another cache.
            let at = (round + turn) % SIDES.len();
            let seconds = (SIDES[at].pass)(log, Finds::Made).seconds;
            times[at].push((seconds - without) * 1e9 / log.finds as f64);
        }
    }
    let base = times[0].clone();
    let cost = |mut times: Vec<f64>| {
        let ratio = Ratio::of_pairs(&times, &base);
        times.sort_by(f64::total_cmp);
        Cost {
            nanoseconds: median(&times),
            ratio,
        }
    };
    times.into_iter().map(cost).collect()
}
