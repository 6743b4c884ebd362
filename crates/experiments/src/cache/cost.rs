//! What a lookup costs: the steps of a replay on indexes alone, with one cache at a time.
//!
//! Lookups that follow each other are timed together; the same is done once more without any lookup, and
//! that time, which is the clock's own, is taken off. All threads run on one, in the order of the
//! trace: what threads cost each other by sharing cache lines is not in here, nor what a cache costs
//! the writer (a store or two for each VMA that goes).

use super::super::Ratio;
use super::super::bare::{Bare, BareMm, mm_id};
use super::super::ratio::median;
use super::log::{Log, Step};
use std::hint::black_box;
use std::time::{Duration, Instant};
use vmarea::lookup::range_tree::RangeTree;
use vmarea::lookup::{
    Cache, Checked, LastUsed, LastUsedAndLargest, Lookup, NoCache, Slots, VmaCache, find_vma,
};
use vmarea::types::{VmRange, VmaId};

/// What one cache costs.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Nanoseconds a lookup.
    pub nanoseconds: f64,
    /// Against no cache.
    pub ratio: Option<Ratio>,
}

/// All that a pass works on.
struct Pass<'l, C: Cache> {
    log: &'l Log,
    slots: Slots<Bare>,
    trees: Vec<RangeTree>,
    /// Ids of the VMAs that live, by number.
    vmas: Vec<Option<(VmaId, u32)>>,
    shared: Vec<C::Mm>,
    threads: Vec<Option<C::Thread>>,
    hits: u64,
}

/// Whether lookups are made.
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

    /// Does every step; returns the seconds that the lookups took, with those that it takes to
    /// measure them.
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
        // Whoever looks a VMA up wants to read it.
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

/// Seconds of all lookups with one cache, and its hits.
type Side = fn(&Log, Finds) -> (f64, u64);

fn pass<C: Cache>(log: &Log, finds: Finds) -> (f64, u64) {
    let mut pass = Pass::<C>::new(log);
    let seconds = pass.run(finds);
    (seconds, pass.hits)
}

/// The caches, in the order of [`count`](super::count()).
const SIDES: [Side; 5] = [
    pass::<NoCache>,
    pass::<LastUsed>,
    pass::<LastUsedAndLargest>,
    pass::<VmaCache>,
    pass::<Checked>,
];

/// Hits of every cache.
pub fn hits(log: &Log) -> Vec<u64> {
    SIDES.iter().map(|side| side(log, Finds::Made).1).collect()
}

/// Measures every cache `rounds` times in turn.
pub fn measure(log: &Log, rounds: usize) -> Vec<Cost> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); SIDES.len()];
    for round in 0..rounds.max(1) {
        let (without, _) = SIDES[0](log, Finds::LeftOut);
        for turn in 0..SIDES.len() {
            // Another one begins each time.
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
