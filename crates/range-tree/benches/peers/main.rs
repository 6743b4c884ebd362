//! Instructions and times of the map's operations beside other maps on the same task.
//!
//! The other maps are a `BTreeMap` under `parking_lot`'s `RwLock` and, if `VMAREA_MAPLE` names the
//! library that `ci/checks/index/maple.sh` builds, Linux's maple tree. `ci/run index` runs both modes.
//!
//! ```text
//! peers count MAP TASK RANGES     performs the task CALLS times in `measured`, for callgrind
//! peers times [ROUNDS]            prints the median time of each task and the ratio of the medians
//! ```

mod fill;
mod map;
mod maple;
#[path = "../ranges/mod.rs"]
mod ranges;
mod task;
mod times;

use fill::Fill;
use map::{Locked, Map};
use maple::Maple;
use task::Task;
use vmarea_range_tree::RangeTree;

/// Number of operations that `count` measures.
const CALLS: usize = 1_000;

/// Runs a prepared task. Callgrind counts the instructions within this function.
#[inline(never)]
fn measured(run: &mut dyn FnMut()) {
    run();
}

fn count<M: Map>(map: M, task: Task, ranges: usize) {
    let mut fill = Fill::new(&map, ranges);
    let calls = task.run(&mut fill, CALLS, |run| measured(run));
    println!("{calls}");
}

fn main() {
    // `cargo bench` adds an argument of its own.
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["count", map, task, ranges] => {
            let task = Task::ALL.into_iter().find(|t| t.name() == task);
            let task = task.expect("the name of a task");
            let ranges = ranges.parse().expect("a number of ranges");
            match map {
                "tree" => count(RangeTree::new(), task, ranges),
                "btree" => count(Locked::default(), task, ranges),
                "maple" => count(Maple::load().expect("VMAREA_MAPLE"), task, ranges),
                _ => panic!("unknown map {map}"),
            }
        }
        ["times"] | [] => times::print(9),
        ["times", rounds] => times::print(rounds.parse().expect("a number of rounds")),
        _ => panic!("see the documentation of benches/peers/main.rs"),
    }
}
