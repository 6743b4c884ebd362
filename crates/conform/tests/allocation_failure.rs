//! Tests in which each allocation of the core fails, in every step of a set of sequences.
//!
//! After such a failure, nothing may have changed except what Linux also changes: a fixed mapping
//! or move has unmapped its destination; a shrinking move has unmapped the tail; a change of
//! attributes has changed the VMAs before the failure; split VMAs remain split. No memory may leak.
//!
//! The global allocator fails, so the core needs no code for this test. VMAs and anon_vmas are in
//! tables that grow by many slots at a time. To make each use of a slot need memory, the test first
//! fills the tables except for a few slots.

use std::collections::BTreeMap;
use vmarea::System;
use vmarea::fault::Access;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::{Errno, MmId, VmFlags};
use vmarea_conform::arena;
use vmarea_conform::generate::{Facts, Generator};
use vmarea_conform::model::Model;
use vmarea_conform::op::{Op, Places, Step};
use vmarea_conform::outcome::Outcome;
use vmarea_process::view::View;
use vmarea_soft_platform::Space;
use vmarea_test_support::failing_allocator::{FailingAllocator, Site, fail, record};
use vmarea_trace::sysno;

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

const STEPS: usize = 60;
/// Number of slots that remain free in the tables of VMAs and anon_vmas; the test runs with 0 up to
/// this number.
const FREE_SLOTS: usize = 4;
/// Number of slots in the first part of a table; each further part has twice as many.
const FIRST_SLOTS: usize = 64;

/// Crates outside of the core, whose allocations do not fail in this test.
const OUTSIDE: [&str; 4] = [
    "vmarea_conform",
    "vmarea_replay",
    "vmarea_soft_platform",
    "allocation_failure",
];
const PLACES: Places = Places {
    heap: 0x5555_5555_0000,
    special: 0,
};
const PROCESSES: usize = 4;
const SEEDS: u64 = 40;

fn model() -> Model {
    let mut view = View::default();
    view.mm.mmap_base = Some(0x7fff_0000_0000);
    view.mm.start_brk = Some(PLACES.heap);
    view.mm.brk = view.mm.start_brk;
    let limits = Limits {
        ipc_lock: true,
        ..Limits::default()
    };
    Model::new(Policy::LINUX, System::default(), &view, limits).unwrap()
}

/// Returns page number, flags and page offset of every mapped page, regardless of VMA boundaries.
fn pages(model: &Model, process: usize) -> Vec<(u64, u64, u64)> {
    let state = model.state(process);
    let of = |v: &vmarea_conform::state::VmaState| {
        let first = v.start >> 12;
        let (flags, pgoff) = (v.flags, v.pgoff);
        (first..v.end >> 12).map(move |page| (page, flags, pgoff + page - first))
    };
    state.vmas.iter().flat_map(of).collect()
}

/// Returns the number of pages charged to the commit limit that no VMA of the process accounts for.
fn charged_for_nothing(model: &Model, process: usize) -> u64 {
    let space = model.machine().space();
    let Some(r) = model.mm(process).and_then(|mm| space.mmap_read_lock(mm)) else {
        return 0;
    };
    let charged = r.vmas().filter(|v| v.body.flags.contains(VmFlags::ACCOUNT));
    let pages: u64 = charged.map(|v| v.range.pages()).sum();
    r.state().committed - pages
}

/// Returns the pages whose mapping a failed call may have changed.
fn excused(step: &Step) -> Vec<(u64, u64)> {
    let Op::Call(call) = &step.op else {
        return Vec::new();
    };
    let [a, b, c, _, e, _] = call.placed(PLACES);
    let range = |start: u64, len: u64| (start >> 12, start.saturating_add(len).div_ceil(4096));
    match call.nr {
        sysno::SHMAT => vec![range(b & !0xfff, arena::SEGMENTS[0])],
        sysno::MMAP | sysno::REMAP_FILE_PAGES => vec![range(a, b)],
        // If several VMAs are moved, those before the failure have moved.
        sysno::MREMAP => vec![range(a, b), range(e, c)],
        _ => Vec::new(),
    }
}

fn play(steps: &[Step]) -> Model {
    let mut model = model();
    for step in steps {
        model.apply(step);
    }
    model
}

/// Returns the number of slots in use in a table of the space, by the name of the table.
fn slots(space: &Space, table: &str) -> usize {
    let text = format!("{space:?}");
    let (_, rest) = text.split_once(&format!(" {table}: ")).unwrap();
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

/// Fills the tables of VMAs and anon_vmas except for `free` slots each, with mappings of a new
/// process.
fn fill(space: &Space, free: usize) -> MmId {
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

/// Returns true if an allocation belongs to the core and can fail.
fn may_fail(site: &Site) -> bool {
    let function = site.function();
    !OUTSIDE.iter().any(|name| function.contains(name))
}

/// Lists the allocations of `step` that may fail, with `free` free slots, by number.
fn allocations(before: &[Step], step: &Step, free: usize) -> Vec<(usize, Site)> {
    let mut model = play(before);
    fill(model.machine().space(), free);
    let (_, sites) = record(|| model.apply(step));
    // The number of free slots affects only the allocations of the tables.
    let counts = |site: &Site| free == 0 || site.function().contains("vmarea_sync::slots");
    let sites = sites.into_iter().enumerate();
    sites
        .filter(|(_, site)| may_fail(site) && counts(site))
        .collect()
}

/// Checks that the failure of an allocation of `step` leaves no partial change.
fn check(before: &[Step], step: &Step, free: usize, nth: usize, told: &dyn Fn() -> String) {
    let mut model = play(before);
    let filler = fill(model.machine().space(), free);
    let was: Vec<_> = (0..PROCESSES).map(|p| pages(&model, p)).collect();
    let charges = |model: &Model| -> Vec<u64> {
        let processes = 0..PROCESSES;
        processes.map(|p| charged_for_nothing(model, p)).collect()
    };
    let charged = charges(&model);
    let outcome = fail(nth, || model.apply(step));
    if let Err(violation) = model.machine().space().validate_all() {
        panic!("{}: {}", told(), violation.0);
    }
    if outcome.is_refused() {
        assert_eq!(charges(&model), charged, "{}: a charge is left", told());
        let excused = excused(step);
        for (process, was) in was.iter().enumerate() {
            let now = pages(&model, process);
            let counts = |(page, ..): &&(u64, u64, u64)| {
                !excused.iter().any(|(from, to)| (*from..*to).contains(page))
            };
            let mapped = |(page, ..): &(u64, u64, u64)| *page;
            // Attributes of the pages before the failure may have changed; the set of mapped pages
            // may not.
            let was: Vec<u64> = was.iter().filter(counts).map(mapped).collect();
            let now: Vec<u64> = now.iter().filter(counts).map(mapped).collect();
            assert!(was == now, "{}: mapped otherwise than before", told());
        }
    }
    if matches!(step.op, Op::Fork { .. }) {
        assert_eq!(outcome, Outcome::Errno(12), "{}", told());
    }
    model.machine().space().mm_exit(filler).unwrap();
    for process in 0..PROCESSES {
        model.apply(&Step {
            process: process as u8,
            op: Op::Exit,
        });
    }
    let left = format!("{:?}", model.machine().space());
    assert!(
        left.contains("vmas: 0, anon_vmas: 0, frames: 0"),
        "{}: left over: {left}",
        told()
    );
}

#[test]
fn every_allocation_may_fail() {
    let mut failures: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut generator = Generator::new(seed, Facts::ALL);
        if generator.steps() <= STEPS {
            continue;
        }
        let mut steps: Vec<Step> = Vec::new();
        let mut ahead = model();
        for _ in 0..STEPS {
            let step = generator.next(&ahead);
            for free in 0..FREE_SLOTS {
                for (nth, site) in allocations(&steps, &step, free) {
                    let function = site.function();
                    let told =
                        || format!("{function} fails in {step} (after {} steps)", steps.len());
                    let times = failures.entry(function.to_owned()).or_default();
                    if *times == 0 {
                        println!("{}", told());
                    }
                    *times += 1;
                    check(&steps, &step, free, nth, &told);
                }
            }
            ahead.apply(&step);
            steps.push(step);
        }
    }
    println!("{failures:#?}");
    let all: usize = failures.values().sum();
    assert!(all > 1000, "only {all} allocations failed");
}

/// The first growth in an address space reserves nodes of the tree of VMAs.
#[test]
fn a_growth_without_memory_leaves_no_charge() {
    let space = vmarea::Space::new(Policy::LINUX, System::default());
    let layout = Layout {
        mmap_base: 0x7fff_0000_0000,
        ..Layout::default()
    };
    let mm = space.mm_create(layout, Limits::default()).unwrap();
    let mapping = MmapRequest {
        addr: 0x1000_0000,
        len: 0x1000,
        prot: Prot::READ | Prot::WRITE,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
        ..MmapRequest::default()
    };
    let addr = space.mmap(mm, &mapping).unwrap();
    let committed = || space.mmap_read_lock(mm).unwrap().state().committed;
    let before = committed();
    let growth = MremapRequest {
        addr,
        old_len: 0x1000,
        new_len: 0x5000,
        ..MremapRequest::default()
    };
    assert_eq!(fail(0, || space.mremap(mm, &growth)), Err(Errno::ENOMEM));
    assert_eq!(committed(), before);
    assert_eq!(space.mremap(mm, &growth), Ok(addr));
    assert_eq!(committed(), before + 4);
}
