//! Stress test with real threads: readers concurrent with a writer that never pauses.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use vmarea_range_tree::{Contended, Entry, RangeTree};

const RANGES: u64 = if cfg!(miri) { 40 } else { 1_000 };
const ROUNDS: u64 = if cfg!(miri) { 60 } else { 200_000 };
const STEP: u64 = 0x10_0000;

/// Returns range `i`. Ranges with an even `i` stay in the map and only their ends may move; the
/// others are added and removed repeatedly.
fn range(i: u64, len: u64) -> Entry {
    Entry {
        start: i * STEP,
        end: i * STEP + len,
        value: i,
    }
}

fn change(tree: &RangeTree, round: u64) {
    let i = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let mut writer = tree.write();
    if i.is_multiple_of(3) {
        let even = i % RANGES / 2 * 2;
        writer.resize(even * STEP, even * STEP, even * STEP + 0x1000 + i % 0x1000);
        return;
    }
    // Removes or adds a run of neighbours, so that leaves become empty, merge and split.
    let first = i % RANGES / 2 * 2 + 1;
    for odd in (first..RANGES).step_by(2).take(40) {
        if i.is_multiple_of(2) {
            writer.remove(odd * STEP);
        } else if is_absent(tree, odd) {
            writer.insert(range(odd, 0x2000));
        }
    }
}

fn is_absent(tree: &RangeTree, i: u64) -> bool {
    tree.get(i * STEP).is_none()
}

fn check(found: Option<Entry>, addr: u64) {
    let found = found.expect("an even range above");
    assert_eq!(found.start, found.value * STEP);
    assert!(
        (0x1000..=0x2000).contains(&(found.end - found.start)),
        "{found:?}"
    );
    assert!(found.end > addr);
    assert!(
        found.value - addr / STEP <= 2,
        "{found:?} for {addr:#x}: skipped a range"
    );
}

fn read(tree: &RangeTree, round: u64, retries: &AtomicU64) {
    let i = round.wrapping_mul(0xd134_2543_de82_ef95) >> 33;
    let addr = i % (RANGES - 2) * STEP + i % 0x1000;
    check(tree.find(addr), addr);
    match tree.try_find(addr) {
        Ok(found) => check(found, addr),
        Err(Contended) => {
            retries.fetch_add(1, Ordering::Relaxed);
        }
    }
    let even = i % RANGES / 2 * 2;
    assert_eq!(tree.get(even * STEP).map(|e| e.value), Some(even));
    if let Some(below) = tree.prev(even * STEP) {
        assert!(even - below.value <= 2, "{below:?} below {even}");
    }
    if i.is_multiple_of(64) {
        let seen: Vec<_> = tree.ranges(addr, addr + 40 * STEP).collect();
        assert!(seen.is_sorted_by(|a, b| a.end <= b.start));
        let missing = (addr.div_ceil(STEP)..RANGES.min(addr / STEP + 40)).filter(|i| i % 2 == 0);
        assert!(
            missing
                .into_iter()
                .all(|i| seen.iter().any(|e| e.value == i))
        );
    }
    if i.is_multiple_of(16) {
        let high = (RANGES - 1) * STEP;
        let (start, end) = tree.gap_lowest(addr, high, 0x1000).expect("a gap");
        assert!(end - start >= 0x1000 && start >= addr && end <= high && start - addr <= 4 * STEP);
        assert!(start % STEP <= 0x2000 && end % STEP == 0);
        assert_eq!(tree.gap_highest(0, high, 2 * STEP), None);
    }
}

#[test]
fn readers_concurrent_with_a_writer() {
    let tree = RangeTree::new();
    for i in 0..RANGES {
        tree.write().insert(range(i, 0x2000));
    }
    let (done, retries) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for seed in 1..3 {
            let (tree, done, retries) = (&tree, &done, &retries);
            scope.spawn(move || {
                let mut round = seed << 40;
                while !done.load(Ordering::Relaxed) {
                    read(tree, round, retries);
                    round += 1;
                }
            });
        }
        for round in 0..ROUNDS {
            change(&tree, round);
        }
        done.store(true, Ordering::Relaxed);
    });
    tree.validate().expect("valid at the end");
    println!("{} lookups met the writer", retries.into_inner());
}
