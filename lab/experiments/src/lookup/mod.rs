//! Comparison of the index with alternative structures in the same run.
//!
//! The operations are: looking up random addresses and addresses with locality, with and without a
//! cache; replacing a range; and searching for a gap. The structures are the range tree, `BTreeMap`
//! without and with a lock, and two crates that store ranges. The range tree is measured twice: as
//! a bare index, which returns the same result as the other structures, and with an additional read
//! of the VMA in its slot, as in a page fault. Every round measures all structures in turn.

mod fill;
mod gap;

use super::Ratio;
use super::bare::BareMm;
use super::ratio::median;
use crate::vma_cache::{Cache, Checked, NoCache, find_vma};
use fill::{ADDRESSES, Fill, LOCAL, Map, Random, area};
pub use gap::Gaps;
use gap::gaps;
use memory_set::MemoryArea;
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;
use vmarea::types::VmRange;
use vmarea_range_tree::Entry;

/// Maximum number of VMAs in a measured address space.
pub const MOST_VMAS: u64 = 4_000_000;
/// Approximate duration of a batch in seconds; it is short, so most batches are not interrupted.
const BATCH: f64 = 2e-4;
/// Number of batches in a round. The round's result is the time of the fastest batch.
const BATCHES: usize = 5;

/// Results of one contender (a structure in one configuration).
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// Name of the contender.
    pub who: &'static str,
    /// Median time of an operation, in nanoseconds.
    pub nanoseconds: f64,
    /// Time relative to the time with `BTreeMap` and `RwLock` in the same round.
    pub ratio: Option<Ratio>,
}

/// Results of one operation for one number of VMAs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Section {
    /// Name of the operation.
    pub what: &'static str,
    /// Number of VMAs.
    pub vmas: u64,
    /// One row per contender.
    pub rows: Vec<Row>,
    /// Time with the cache relative to the time without it, if both were measured.
    pub cached: Option<Ratio>,
}

/// Results of all operations.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Sections ordered by number of VMAs, then by operation.
    pub sections: Vec<Section>,
    /// Results of the gap search.
    pub gaps: Gaps,
}

/// Name of the row for vmarea's bare index.
pub const INDEX: &str = "vmarea, index alone";
/// Name of the row for vmarea's index, including a read of the VMA.
const UNCACHED: &str = "vmarea, with the VMA";
/// Name of the row for vmarea's index with a cache.
const CACHED: &str = "vmarea, cached";
/// Name of the row with which the other rows are compared.
pub const LOCKED: &str = "BTreeMap, RwLock";

/// A contender: its name, and a function that executes a given number of operations.
struct Contender<'a> {
    who: &'static str,
    many: Box<dyn FnMut(usize) + 'a>,
}

/// Creates a contender that executes one operation for each address or range in turn.
fn contender<'a, T: Copy>(
    who: &'static str,
    of: &'a [T],
    mut one: impl FnMut(T) + 'a,
) -> Contender<'a> {
    let mut at = 0;
    let many = Box::new(move |times: usize| {
        for _ in 0..times {
            one(of[at]);
            at += 1;
            if at == of.len() {
                at = 0;
            }
        }
    });
    Contender { who, many }
}

/// Returns the nanoseconds per operation, by contender and round.
fn race(contenders: &mut [Contender<'_>], rounds: usize) -> Vec<Vec<f64>> {
    let times: Vec<usize> = contenders.iter_mut().map(|c| batch(&mut c.many)).collect();
    let mut all = vec![Vec::new(); contenders.len()];
    for round in 0..rounds.max(1) {
        for turn in 0..contenders.len() {
            // Each round starts with another contender.
            let at = (round + turn) % contenders.len();
            let seconds = fastest(&mut contenders[at].many, times[at]);
            all[at].push(seconds * 1e9 / times[at] as f64);
        }
    }
    all
}

/// Returns the duration of the fastest of several batches, in seconds.
fn fastest(many: &mut dyn FnMut(usize), times: usize) -> f64 {
    let mut time = || {
        let begun = Instant::now();
        many(times);
        begun.elapsed().as_secs_f64()
    };
    (1..BATCHES).fold(time(), |fastest, _| fastest.min(time()))
}

/// Returns the number of operations in a batch.
fn batch(many: &mut dyn FnMut(usize)) -> usize {
    let mut times = 1;
    loop {
        let begun = Instant::now();
        many(times);
        if begun.elapsed().as_secs_f64() >= BATCH || times >= 1 << 20 {
            return times;
        }
        times *= 2;
    }
}

fn section(
    what: &'static str,
    vmas: u64,
    mut contenders: Vec<Contender<'_>>,
    rounds: usize,
) -> Section {
    let times = race(&mut contenders, rounds);
    let of = |who: &str| contenders.iter().position(|c| c.who == who);
    let against = |who: &str, times: &[f64], all: &[Vec<f64>]| {
        of(who).and_then(|at| Ratio::of_pairs(times, &all[at]))
    };
    let cached = of(CACHED).and_then(|at| against(UNCACHED, &times[at], &times));
    let row = |(contender, rounds): (&Contender<'_>, &Vec<f64>)| {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        Row {
            who: contender.who,
            nanoseconds: median(&sorted),
            ratio: against(LOCKED, rounds, &times),
        }
    };
    Section {
        what,
        vmas,
        rows: contenders.iter().zip(&times).map(row).collect(),
        cached,
    }
}

fn find(map: &Map, addr: u64) -> Option<(u64, u64)> {
    let below = map.range(..=addr).next_back();
    let found = below.filter(|(_, (end, _))| addr < *end);
    found
        .or_else(|| map.range(addr..).next())
        .map(|(start, (_, value))| (*start, *value))
}

/// Looks up an address, as a page fault does at its start.
///
/// Not inlined, so that the result does not depend on how well the code fits into the surrounding
/// loop.
#[inline(never)]
fn look_up<C: Cache>(
    (shared, own): (&C::Mm, &mut C::Thread),
    mm: &BareMm<'_>,
    addr: u64,
) -> Option<VmRange> {
    let found = find_vma::<C, _>(shared, own, mm, addr).found();
    found.map(|(_, range)| range)
}

/// A cache that has room for all the VMAs of local lookups.
type Roomy = Checked<LOCAL>;

fn lookups(fill: &Fill, what: &'static str, addrs: &[u64], rounds: usize) -> Section {
    let mm = fill.mm();
    let (shared, mut own) = <(<Roomy as Cache>::Mm, <Roomy as Cache>::Thread)>::default();
    Roomy::enter(&shared, &mut own, mm.id);
    let (map, set, ranged) = (fill.map.borrow(), fill.set.borrow(), fill.ranged.borrow());
    let mut contenders = vec![
        contender(INDEX, addrs, |addr| {
            black_box(fill.tree.find(black_box(addr)));
        }),
        contender(UNCACHED, addrs, |addr| {
            black_box(look_up::<NoCache>((&(), &mut ()), &mm, black_box(addr)));
        }),
        contender(CACHED, addrs, |addr| {
            black_box(look_up::<Roomy>((&shared, &mut own), &mm, black_box(addr)));
        }),
        contender("BTreeMap", addrs, |addr| {
            black_box(find(&map, black_box(addr)));
        }),
        contender(LOCKED, addrs, |addr| {
            black_box(find(&fill.locked.read(), black_box(addr)));
        }),
        contender("memory_set", addrs, |addr| {
            black_box(set.find(black_box(addr) as usize).map(MemoryArea::start));
        }),
        contender("rangemap", addrs, |addr| {
            black_box(ranged.get(&black_box(addr)));
        }),
    ];
    // Each contender starts at another address of the sequence, so that it does not find its data
    // cached by the previous contender.
    let apart = addrs.len() / contenders.len();
    for (turn, contender) in contenders.iter_mut().enumerate() {
        (contender.many)(turn * apart);
    }
    section(what, fill.ranges.len() as u64, contenders, rounds)
}

fn replacing(fill: &Fill, rounds: usize) -> Section {
    let mut random = Random(17);
    let all = fill.ranges.len() as u64;
    let picked: Vec<VmRange> = (0..ADDRESSES)
        .map(|_| fill.ranges[random.below(all) as usize])
        .collect();
    let contenders = vec![
        contender(INDEX, &picked, |range: VmRange| {
            let mut writer = fill.tree.write();
            let gone = writer.remove(range.start);
            // A change of an address space reserves the nodes that it may need before it begins.
            if writer.reserve(1).is_ok() {
                writer.insert(Entry {
                    start: range.start,
                    end: range.end,
                    value: gone.map_or(0, |entry| entry.value),
                });
            }
        }),
        contender("BTreeMap", &picked, |range: VmRange| {
            let mut map = fill.map.borrow_mut();
            if let Some(value) = map.remove(&range.start) {
                map.insert(range.start, value);
            }
        }),
        contender(LOCKED, &picked, |range: VmRange| {
            let mut map = fill.locked.write();
            if let Some(value) = map.remove(&range.start) {
                map.insert(range.start, value);
            }
        }),
        contender("memory_set", &picked, |range: VmRange| {
            let mut set = fill.set.borrow_mut();
            let (start, len) = (range.start as usize, range.len_bytes() as usize);
            black_box(set.unmap(start, len, &mut ()).is_ok());
            black_box(set.map(area(range), &mut (), false).is_ok());
        }),
        contender("rangemap", &picked, |range: VmRange| {
            let mut ranged = fill.ranged.borrow_mut();
            let value = ranged.get(&range.start).copied().unwrap_or(0);
            ranged.remove(range.start..range.end);
            ranged.insert(range.start..range.end, value);
        }),
    ];
    section("replace a range", all, contenders, rounds)
}

/// Measures all contenders in turn at each size, `rounds` times.
///
/// Each size must be between 2 and [`MOST_VMAS`].
pub fn run(sizes: &[u64], rounds: usize) -> Report {
    let mut sections = Vec::new();
    for size in sizes {
        let fill = Fill::new((*size).clamp(2, MOST_VMAS));
        sections.push(lookups(&fill, "find, random", &fill.random(), rounds));
        sections.push(lookups(&fill, "find, local", &fill.local(), rounds));
        sections.push(replacing(&fill, rounds));
    }
    Report {
        sections,
        gaps: gaps(),
    }
}

#[cfg(test)]
mod tests {
    use super::gap::{HOLES, gap};
    use super::*;

    /// Checks that all structures return the same results, so that the comparison measures equal
    /// work.
    #[test]
    fn they_agree() {
        let fill = Fill::new(300);
        let (shared, mut own) = <(<Roomy as Cache>::Mm, <Roomy as Cache>::Thread)>::default();
        Roomy::enter(&shared, &mut own, fill.mm().id);
        for addrs in [fill.random(), fill.local()] {
            for addr in addrs {
                let ours = fill.tree.get(addr).unwrap();
                let range = VmRange::new(ours.start, ours.end);
                let (none, roomy) = ((&(), &mut ()), (&shared, &mut own));
                assert_eq!(look_up::<NoCache>(none, &fill.mm(), addr), Some(range));
                assert_eq!(look_up::<Roomy>(roomy, &fill.mm(), addr), Some(range));
                let (start, value) = find(&fill.map.borrow(), addr).unwrap();
                assert_eq!(start, ours.start);
                assert_eq!(find(&fill.locked.read(), addr), Some((start, value)));
                let set = fill.set.borrow();
                assert_eq!(set.find(addr as usize).unwrap().start() as u64, start);
                assert_eq!(fill.ranged.borrow().get(&addr), Some(&value));
            }
        }
    }

    #[test]
    fn everything_is_measured_and_nothing_is_left_changed() {
        let report = run(&[10, 200], 2);
        assert_eq!(report.sections.len(), 6);
        for section in &report.sections {
            assert!(section.rows.iter().all(|row| row.nanoseconds > 0.0));
            assert!(section.rows.iter().all(|row| row.ratio.is_some()));
        }
        let fill = Fill::new(100);
        assert!((0..HOLES).filter_map(|hole| gap(&fill, hole)).count() > HOLES / 2);
        assert_eq!(fill.tree.len(), 100);
        assert_eq!(
            (fill.map.borrow().len(), fill.set.borrow().len()),
            (100, 100)
        );
    }
}
