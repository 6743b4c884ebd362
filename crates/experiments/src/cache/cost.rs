//! Cost of a lookup: the steps of a replay on the index alone, with one cache at a time.
//!
//! Consecutive lookups are timed together. The steps are executed once more without lookups, and
//! that time, which is the cost of reading the clock, is subtracted. All threads are simulated by
//! one thread, in the order of the trace, so the times exclude the contention of threads for cache
//! lines. They also exclude a cache's cost for the writer (one or two stores per removed VMA).

use super::super::Ratio;
use super::super::bare::{Bare, BareMm, mm_id};
use super::super::ratio::median;
use super::log::{Log, Step};
use crate::vma_cache::{
    Cache, Checked, LastUsed, LastUsedAndLargest, Lookup, NoCache, VmaCache, find_vma,
};
use std::hint::black_box;
use std::time::{Duration, Instant};
use vmarea::types::{VmRange, VmaId};
use vmarea_range_tree::RangeTree;
use vmarea_sync::Slots;

/// Lookup cost with one cache.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Nanoseconds per lookup.
    pub nanoseconds: f64,
    /// Time relative to the time without a cache.
    pub ratio: Option<Ratio>,
}

/// State during one pass over the log.
struct Pass<'l, C: Cache> {
    log: &'l Log,
    slots: Slots<Bare>,
    trees: Vec<RangeTree>,
    /// Ids of the live VMAs, by number.
    vmas: Vec<Option<(VmaId, u32)>>,
    shared: Vec<C::Mm>,
    threads: Vec<Option<C::Thread>>,
    hits: u64,
}

/// Whether a pass executes the lookups or only the other steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Finds {
    Made,
    LeftOut,
}

impl<'l, C: Cache> Pass<'l, C> {
    fn new(log: &'l Log) -> Self {
        Pass {
            log,
            slots: Slots::new(),
            trees: (0..log.mms).map(|_| RangeTree::new()).collect(),
            vmas: vec![None; log.vmas as usize],
            shared: (0..log.mms).map(|_| C::Mm::default()).collect(),
            threads: (0..log.threads).map(|_| None).collect(),
            hits: 0,
        }
    }

    /// Executes every step. Returns the seconds for the lookups, including the timing overhead.
    fn run(&mut self, finds: Finds) -> f64 {
        let (mut begun, mut total) = (None, Duration::ZERO);
        for step in &self.log.steps {
            if let Step::Find { thread, mm, addr } = *step {
                begun.get_or_insert_with(Instant::now);
                if finds == Finds::Made {
                    self.find(thread, mm, addr);
                }
                continue;
            }
            if let Some(begun) = begun.take() {
                total += begun.elapsed();
            }
            self.change(step);
        }
        if let Some(begun) = begun {
            total += begun.elapsed();
        }
        total.as_secs_f64()
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
        let space = BareMm {
            id: mm_id(mm),
            tree: &self.trees[mm as usize],
            slots: &self.slots,
        };
        let own = self.threads[thread as usize].get_or_insert_default();
        let found = find_vma::<C, _>(&self.shared[mm as usize], own, &space, addr);
        self.hits += u64::from(matches!(found, Lookup::Hit(..)));
        // A caller that looks up a VMA then reads it.
        black_box(found.range(&space));
    }

    fn mm(&self, number: u32) -> BareMm<'_> {
        BareMm {
            id: mm_id(number),
            tree: &self.trees[number as usize],
            slots: &self.slots,
        }
    }

    fn link(&mut self, mm: u32, vma: u32, range: VmRange) {
        let id = self.mm(mm).link(range);
        self.vmas[vma as usize] = id.map(|id| (id, mm));
    }

    fn resize(&mut self, vma: u32, start: u64, range: VmRange) {
        if let Some((id, mm)) = self.vmas[vma as usize] {
            self.mm(mm).resize(id, start, range);
        }
    }

    fn unlink(&mut self, vma: u32, prev: Option<u32>) {
        let Some((id, mm)) = self.vmas[vma as usize].take() else {
            return;
        };
        let prev = prev.and_then(|prev| self.vmas[prev as usize]);
        C::unlinked(&self.shared[mm as usize], id, prev.map(|(id, _)| id));
        self.mm(mm).unlink(id);
    }
}

/// Runs a pass with one cache; returns the seconds for all lookups, and the number of hits.
type Side = fn(&Log, Finds) -> (f64, u64);

fn pass<C: Cache>(log: &Log, finds: Finds) -> (f64, u64) {
    let mut pass = Pass::<C>::new(log);
    let seconds = pass.run(finds);
    (seconds, pass.hits)
}

/// Passes of all caches, in the order of [`count`](super::count()).
const SIDES: [Side; 5] = [
    pass::<NoCache>,
    pass::<LastUsed>,
    pass::<LastUsedAndLargest>,
    pass::<VmaCache>,
    pass::<Checked>,
];

/// Returns the hits of every cache.
pub fn hits(log: &Log) -> Vec<u64> {
    SIDES.iter().map(|side| side(log, Finds::Made).1).collect()
}

/// Measures the caches in turn, `rounds` times.
pub fn measure(log: &Log, rounds: usize) -> Vec<Cost> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); SIDES.len()];
    for round in 0..rounds.max(1) {
        let (without, _) = SIDES[0](log, Finds::LeftOut);
        for turn in 0..SIDES.len() {
            // Each round starts with another cache.
            let at = (round + turn) % SIDES.len();
            let (seconds, _) = SIDES[at](log, Finds::Made);
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
