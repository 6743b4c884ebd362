//! Times of all maps in alternating rounds.

use super::fill::Fill;
use super::map::{Locked, Map};
use super::maple::Maple;
use super::task::Task;
use std::time::Instant;
use vmarea_range_tree::RangeTree;

const SIZES: [usize; 4] = [10, 100, 1_000, 65_000];
const CALLS: usize = 20_000;

/// Returns the nanoseconds per operation in one round.
fn round<M: Map>(fill: &mut Fill<'_, M>, task: Task) -> f64 {
    let mut nanoseconds = 0;
    let calls = task.run(fill, CALLS, |run| {
        let begun = Instant::now();
        run();
        nanoseconds += begun.elapsed().as_nanos();
    });
    nanoseconds as f64 / calls as f64
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Prints the median times, and the median of the ratios of rounds that were run in pairs.
pub fn print(rounds: usize) {
    let maple = Maple::load();
    println!(
        "{:<12} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "ns", "ranges", "RangeTree", "BTreeMap", "maple", "/BTreeMap", "/maple"
    );
    let (tree, locked) = (RangeTree::new(), Locked::default());
    for n in SIZES {
        let mut ours = Fill::new(&tree, n);
        let mut theirs = Fill::new(&locked, n);
        let mut linux = maple.as_ref().map(|maple| Fill::new(maple, n));
        for task in Task::ALL {
            let gap = matches!(task, Task::GapHighest | Task::GapLowest);
            let mut all = [const { Vec::new() }; 3];
            // The first round warms the caches up.
            for _ in 0..=rounds {
                all[0].push(round(&mut ours, task));
                all[1].push(if gap {
                    f64::NAN
                } else {
                    round(&mut theirs, task)
                });
                let last = linux.as_mut().map_or(f64::NAN, |fill| round(fill, task));
                all[2].push(last);
            }
            let ratio = |to: usize| {
                let pairs = all[0].iter().zip(&all[to]).skip(1);
                median(pairs.map(|(ours, theirs)| ours / theirs).collect())
            };
            let time = |of: usize| median(all[of][1..].to_vec());
            println!(
                "{:<12} {n:>8} {:>10.1} {:>10.1} {:>10.1} {:>10.2} {:>10.2}",
                task.name(),
                time(0),
                time(1),
                time(2),
                ratio(1),
                ratio(2)
            );
        }
    }
}
