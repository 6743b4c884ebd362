//! Makes each allocation in the core fail in turn, in every step of a set of sequences.
//!
//! The global allocator injects the failures, so the core needs no code for this test. The core
//! stores VMAs and anon_vmas in tables that grow by many slots at a time, so a new VMA or anon_vma
//! rarely needs an allocation. To make allocations frequent, the test first fills all but a few
//! slots of the tables.

use super::{RUNS, Run, check, end, for_each_step, play};
use std::collections::{BTreeMap, BTreeSet};
use vmarea::Space;
use vmarea::fault::Access;
use vmarea::mm::{Layout, Limits};
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::MmId;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::platform::Environment;
use vmarea_conform::op::Step;
use vmarea_test_support::failing_allocator::{FailingAllocator, Site, fail, record};

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

/// Exclusive upper bound on the slots left free in the tables of VMAs and anon_vmas.
const FREE_SLOTS: usize = 4;
/// Number of slots in a table's first part; each further part has twice as many as the previous
/// one.
const FIRST_SLOTS: usize = 64;

/// Crates other than the core; their allocations do not fail in this test.
const OUTSIDE: [&str; 4] = [
    "vmarea_conform",
    "vmarea_replay",
    "vmarea_soft_platform",
    "allocation_failure",
];

/// Returns the number of slots in use in the space's table named `table`.
pub fn slots<E: Environment>(space: &Space<E>, table: &str) -> usize {
    let text = format!("{space:?}");
    let (_, rest) = text.split_once(&format!(" {table}: ")).unwrap();
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

/// Creates a process whose mappings leave `free` slots in the VMA table and in the anon_vma table.
fn fill<E: Environment>(space: &Space<E>, free: usize) -> MmId {
    let missing = |table| {
        let used = slots(space, table) + free;
        let mut sizes = (1..).map(|parts| FIRST_SLOTS * ((1 << parts) - 1));
        sizes
            .find_map(|size: usize| size.checked_sub(used))
            .unwrap()
    };
    let mm = space
        .mm_create(Layout::default(), Limits::default())
        .unwrap();
    let mut addr = 0x1000_0000;
    let mut map = || {
        let request = MmapRequest {
            addr,
            len: 0x1000,
            prot: Prot::READ | Prot::WRITE,
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
            ..MmapRequest::default()
        };
        // The next mapping is not adjacent.
        addr += 0x2000;
        space.mmap(mm, &request).unwrap()
    };
    for _ in 0..missing("anon_vmas") {
        space.fault(mm, map(), Access::Write).unwrap();
    }
    for _ in 0..missing("vmas") {
        map();
    }
    mm
}

/// Functions of the core that call a closure and do not allocate. The compiler may inline the
/// closure, which can belong to another crate.
const CALLERS: [&str; 2] = ["read_slot", "for_each_ordered"];

/// Returns true if an allocation belongs to the core and can fail.
fn may_fail(site: &Site) -> bool {
    let function = site.function_besides(&CALLERS);
    !OUTSIDE.iter().any(|name| function.contains(name))
}

/// Lists the allocations in `step` that can fail with `free` free slots, each with its position.
fn allocations(run: Run, before: &[Step], step: &Step, free: usize) -> Vec<(usize, Site)> {
    let mut model = play(run, before);
    fill(model.machine().space(), free);
    let (_, sites) = record(|| model.apply(step));
    // The number of free slots affects only the allocations of the tables.
    let counts = |site: &Site| free == 0 || site.function().contains("vmarea_sync::slots");
    let sites = sites.into_iter().enumerate();
    sites
        .filter(|(_, site)| may_fail(site) && counts(site))
        .collect()
}

/// Makes an allocation in `step` fail; returns an error if the step is left half done.
fn check_allocation(
    run: Run,
    before: &[Step],
    step: &Step,
    (free, nth): (usize, usize),
) -> Result<(), String> {
    let mut model = play(run, before);
    let filler = fill(model.machine().space(), free);
    check(&mut model, step, |model| fail(nth, || model.apply(step)))?;
    model.machine().space().mm_exit(filler).unwrap();
    end(&mut model)
}

/// Makes each allocation in one sequence fail in turn, and counts the failures by function.
fn fail_each(
    run: Run,
    seed: u64,
    failures: &mut BTreeMap<String, usize>,
    met: &mut BTreeSet<&str>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for_each_step(run, seed, |steps, step| {
        for free in 0..FREE_SLOTS {
            for (nth, site) in allocations(run, steps, step, free) {
                let function = site.function();
                let told = || {
                    let (policy, after) = (run.policy.name, steps.len());
                    format!(
                        "{policy}, seed {seed}: {function} fails in {step} (after {after} steps)"
                    )
                };
                let times = failures.entry(function.to_owned()).or_default();
                if *times == 0 {
                    println!("{}", told());
                }
                *times += 1;
                met.extend(MET.iter().filter(|name| site.passes(name)));
                if let Err(found) = check_allocation(run, steps, step, (free, nth)) {
                    wrong.push(format!("{}: {found}", told()));
                }
            }
        }
    });
    wrong
}

/// Functions in which an allocation must have failed: one for each kind of page memory.
const MET: [&str; 6] = [
    "Shard::place",
    "Table::new",
    "Huge::zero",
    "huge_alloc",
    "huge_dup",
    "Swap::take",
];

#[test]
fn every_allocation_may_fail() {
    let mut failures: BTreeMap<String, usize> = BTreeMap::new();
    let mut met = BTreeSet::new();
    let mut wrong = Vec::new();
    for run in RUNS {
        for seed in 0..run.seeds {
            wrong.extend(fail_each(run, seed, &mut failures, &mut met));
        }
    }
    println!("{failures:#?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    let all: usize = failures.values().sum();
    assert!(all > 3000, "only {all} allocations failed");
    assert!(met.iter().eq(&BTreeSet::from(MET)), "only {met:?} failed");
}
