//! Comparison of lookups, replacements, gap searches and memory use with a locked `BTreeMap`.
//!
//! Prints one line per size and measure: the figures of `RangeTree` and `BTreeMap`, and their
//! ratio. The two maps are measured in alternating rounds and the median round of each is reported,
//! so a disturbance affects both.

mod ranges;

use parking_lot::RwLock;
use ranges::{PAGE, Random};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use vmarea_range_tree::{Entry, RangeTree};

type Map = RwLock<BTreeMap<u64, (u64, u64)>>;

const ROUNDS: usize = 9;
const SIZES: [usize; 6] = [10, 100, 1_000, 10_000, 65_000, 1_000_000];

fn filled(all: &[Entry]) -> (RangeTree, Map) {
    let (tree, map) = (RangeTree::new(), Map::default());
    for e in all {
        tree.write().insert(*e);
        map.write().insert(e.start, (e.end, e.value));
    }
    (tree, map)
}

fn find(map: &Map, addr: u64) -> Option<u64> {
    let map = map.read();
    let below = map
        .range(..=addr)
        .next_back()
        .filter(|(_, (end, _))| addr < *end);
    below
        .or_else(|| map.range(addr..).next())
        .map(|(_, &(_, value))| value)
}

/// Returns the median times per call of `ours` and `theirs`, in nanoseconds.
fn race(calls: usize, mut ours: impl FnMut(usize), mut theirs: impl FnMut(usize)) -> (f64, f64) {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..=ROUNDS {
        let sides: [&mut dyn FnMut(usize); 2] = [&mut |n| (0..n).for_each(&mut ours), &mut |n| {
            (0..n).for_each(&mut theirs)
        }];
        for (side, times) in sides.into_iter().zip(&mut times) {
            let begun = Instant::now();
            side(calls);
            times.push(begun.elapsed().as_nanos() as f64 / calls as f64);
        }
    }
    let [ours, theirs] = times.map(|mut rounds| {
        rounds.remove(0);
        rounds.sort_by(f64::total_cmp);
        rounds[ROUNDS / 2]
    });
    (ours, theirs)
}

fn print(what: &str, n: usize, (ours, theirs): (f64, f64)) {
    println!(
        "{what:<34} {n:>9}  {ours:>9.1}  {theirs:>9.1}  {:>6.2}",
        ours / theirs
    );
}

fn lookups(n: usize, all: &[Entry], tree: &RangeTree, map: &Map) {
    let mut random = Random(11);
    let addrs: Vec<u64> = (0..1 << 14)
        .map(|_| {
            let e = all[random.below(n as u64) as usize];
            e.start + random.below(e.end - e.start)
        })
        .collect();
    let next = |i: usize| addrs[i & (addrs.len() - 1)];
    let result = race(
        200_000,
        |i| {
            black_box(tree.find(black_box(next(i))));
        },
        |i| {
            black_box(find(map, black_box(next(i))));
        },
    );
    print("find, ns", n, result);
    // Each address depends on the previous answer, so that searches do not overlap.
    let (mut last, mut theirs) = (0, 0);
    let result = race(
        200_000,
        |i| {
            last = tree
                .find(next(i ^ (last >> 63) as usize))
                .map_or(0, |e| e.value)
        },
        |i| theirs = find(map, next(i ^ (theirs >> 63) as usize)).unwrap_or(0),
    );
    black_box((last, theirs));
    print("find, dependent addresses, ns", n, result);
}

fn changes(n: usize, all: &[Entry], tree: &RangeTree, map: &Map) {
    let mut random = Random(13);
    let order: Vec<usize> = (0..1 << 14)
        .map(|_| random.below(n as u64) as usize)
        .collect();
    let pick = |i: usize| all[order[i & (order.len() - 1)]];
    let result = race(
        100_000,
        |i| {
            let e = pick(i);
            let mut writer = tree.write();
            black_box(writer.remove(e.start));
            writer.reserve(1).expect("memory");
            writer.insert(e);
        },
        |i| {
            let e = pick(i);
            let mut map = map.write();
            black_box(map.remove(&e.start));
            map.insert(e.start, (e.end, e.value));
        },
    );
    print("replace a range, ns", n, result);
    let result = race(
        100_000,
        |i| {
            let e = pick(i);
            tree.write()
                .resize(e.start, e.start, e.end - 1 + (i as u64 & 1));
        },
        |i| {
            let e = pick(i);
            map.write()
                .insert(e.start, (e.end - 1 + (i as u64 & 1), e.value));
        },
    );
    print("move an end, ns", n, result);
}

/// Returns the sorted times, in nanoseconds, of searches for rare gap sizes in the whole window.
/// Each search starts at the top of the window, as in `mmap`.
fn whole_window(n: usize, all: &[Entry], tree: &RangeTree, high: u64) -> Vec<f64> {
    let mut times = Vec::new();
    for i in 0..21 {
        let e = all[(i * 7919 + 5) % n];
        let (below, above) = (tree.prev(e.start), tree.find(e.end));
        let (Some(below), Some(above)) = (below, above) else {
            continue;
        };
        for gone in [below, e, above] {
            tree.write().remove(gone.start);
        }
        let len = above.end - below.start;
        let search = |_| {
            black_box(tree.gap_highest(1 << 20, high, len));
        };
        times.push(race(20_000, search, |_| ()).0);
        for back in [below, e, above] {
            tree.write().insert(back);
        }
    }
    times.sort_by(f64::total_cmp);
    times
}

fn gaps(n: usize, all: &[Entry], tree: &RangeTree, base: &mut f64) {
    let high = all.iter().map(|e| e.end).max().unwrap_or(0);
    let mut random = Random(17);
    let windows: Vec<_> = (0..1 << 12).map(|_| random.below(high)).collect();
    let at = |i: usize| windows[i & (windows.len() - 1)];
    let whole = whole_window(n, all, tree, high);
    println!(
        "{:<34} {n:>9}  {:>9.1}  (worst {:.1})",
        "gap in the whole window, ns",
        whole[whole.len() / 2],
        whole[whole.len() - 1]
    );
    for (name, len) in [
        ("gap above/below a place, ns", 3 * PAGE),
        ("gap that does not exist, ns", 4 * PAGE),
    ] {
        let (low, high) = race(
            100_000,
            |i| {
                black_box(tree.gap_lowest(at(i), high, len));
            },
            |i| {
                black_box(tree.gap_highest(1 << 20, at(i), len));
            },
        );
        println!("{name:<34} {n:>9}  {low:>9.1}  {high:>9.1}");
    }
    if n == 100 {
        *base = whole[whole.len() / 2];
    }
    if n == 65_000 {
        println!(
            "{:<34} {n:>9}  {:>9.2}",
            "gap search relative to 100 ranges",
            whole[whole.len() / 2] / *base
        );
    }
}

/// Measures lookups and replacements per second, in millions, with two readers and one writer.
fn crowd(n: usize, all: &[Entry], tree: &RangeTree, map: &Map) {
    let run = |find: &(dyn Fn(u64) -> Option<u64> + Sync), replace: &(dyn Fn(Entry) + Sync)| {
        let (stop, found, written) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for seed in [19, 23] {
                let (stop, found) = (&stop, &found);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) {
                        black_box(find(all[random.below(n as u64) as usize].start));
                        count += 1;
                    }
                    found.fetch_add(count, Ordering::Relaxed);
                });
            }
            let (stop, written) = (&stop, &written);
            scope.spawn(move || {
                let mut random = Random(29);
                while !stop.load(Ordering::Relaxed) {
                    replace(all[random.below(n as u64) as usize]);
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(400));
            stop.store(true, Ordering::Relaxed);
        });
        (
            found.into_inner() as f64 / 4e5,
            written.into_inner() as f64 / 4e5,
        )
    };
    let ours = run(&|addr| tree.find(addr).map(|e| e.value), &|e| {
        let mut writer = tree.write();
        writer.remove(e.start);
        writer.insert(e);
    });
    let theirs = run(&|addr| find(map, addr), &|e| {
        let mut map = map.write();
        map.remove(&e.start);
        map.insert(e.start, (e.end, e.value));
    });
    print("2 readers and a writer, M/s", n, (ours.0, theirs.0));
    print("  replacements by the writer, M/s", n, (ours.1, theirs.1));
}

fn main() {
    println!(
        "{:<34} {:>9}  {:>9}  {:>9}  {:>6}",
        "", "ranges", "RangeTree", "BTreeMap", "ratio"
    );
    let mut base = 0.0;
    for n in SIZES {
        let all = Random(7).ranges(n);
        let (tree, map) = filled(&all);
        println!(
            "{:<34} {n:>9}  {:>9.1}",
            "bytes per range, random order",
            tree.bytes() as f64 / n as f64
        );
        let mut sorted = all.clone();
        sorted.sort_by_key(|e| e.start);
        println!(
            "{:<34} {n:>9}  {:>9.1}",
            "bytes per range, ascending",
            filled(&sorted).0.bytes() as f64 / n as f64
        );
        sorted.reverse();
        println!(
            "{:<34} {n:>9}  {:>9.1}",
            "bytes per range, descending",
            filled(&sorted).0.bytes() as f64 / n as f64
        );
        lookups(n, &all, &tree, &map);
        gaps(n, &all, &tree, &mut base);
        changes(n, &all, &tree, &map);
        if n == 1_000 || n == 65_000 {
            crowd(n, &all, &tree, &map);
        }
    }
}
