//! Tests in which each allocation of the core fails: in every step of a set of sequences, and in
//! work on pages that the sequences do not reach.
//!
//! After such a failure, nothing may have changed except what Linux also changes: a fixed mapping
//! or move has unmapped its destination; a shrinking move has unmapped the tail; a change of
//! attributes has changed the VMAs before the failure; split VMAs remain split. No memory may leak.
//!
//! The global allocator fails, so the core needs no code for this test. VMAs and anon_vmas are in
//! tables that grow by many slots at a time. To make each use of a slot need memory, the test first
//! fills the tables except for a few slots.

use std::collections::{BTreeMap, BTreeSet};
use vmarea::fault::{Access, Faulted};
use vmarea::mm::lifecycle::{ImportedAnon, ImportedVma};
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::platform::Environment;
use vmarea::types::{Errno, MmId, Pgoff, VmFlags, VmRange};
use vmarea::vma::VmaBody;
use vmarea::{HugePages, Space, System};
use vmarea_conform::arena;
use vmarea_conform::generate::{Facts, Generator};
use vmarea_conform::model::Model;
use vmarea_conform::op::{Op, Places, Step};
use vmarea_conform::outcome::Outcome;
use vmarea_process::view::View;
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

/// A machine, and the number of sequences that it runs.
#[derive(Clone, Copy)]
struct Run {
    policy: Policy,
    swap: bool,
    huge_pages: HugePages,
    seeds: u64,
}

/// Under `vmarea` and `thesis` more VMAs merge, and pages get another owner.
const RUNS: [Run; 3] = [
    Run {
        policy: Policy::LINUX,
        swap: false,
        huge_pages: HugePages::Madvise,
        seeds: 40,
    },
    Run {
        policy: Policy::VMAREA,
        swap: true,
        huge_pages: HugePages::Always,
        seeds: 60,
    },
    Run {
        policy: Policy::THESIS,
        swap: true,
        huge_pages: HugePages::Always,
        seeds: 40,
    },
];

fn model(run: Run) -> Model {
    let mut view = View::default();
    view.mm.mmap_base = Some(0x7fff_0000_0000);
    view.mm.start_brk = Some(PLACES.heap);
    view.mm.brk = view.mm.start_brk;
    let limits = Limits {
        ipc_lock: true,
        ..Limits::default()
    };
    let system = System {
        swap: run.swap,
        huge_pages: run.huge_pages,
        ..System::default()
    };
    Model::new(run.policy, system, &view, limits).unwrap()
}

/// Returns the ranges of pages that are mapped, except for those in `excused`.
fn mapped(model: &Model, process: usize, excused: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for vma in model.state(process).vmas {
        let (first, end) = (vma.start >> 12, vma.end >> 12);
        match ranges.last_mut() {
            Some(last) if last.1 == first => last.1 = end,
            _ => ranges.push((first, end)),
        }
    }
    for &(from, to) in excused {
        let parts = ranges.iter().flat_map(|&(first, end)| {
            let below = (first, end.min(from));
            [below, (first.max(to), end)]
        });
        ranges = parts.filter(|(first, end)| first < end).collect();
    }
    ranges
}

/// Returns the number of pages charged to the commit limit that no VMA of the process accounts for.
fn charged_for_nothing(model: &Model, process: usize) -> u64 {
    let space = model.machine().space();
    let Some(r) = model.mm(process).and_then(|mm| space.mmap_read_lock(mm)) else {
        return 0;
    };
    let charged = r.vmas().filter(|v| v.body.flags.contains(VmFlags::ACCOUNT));
    r.state().committed - charged.map(|v| v.range.pages()).sum::<u64>()
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

fn play(run: Run, steps: &[Step]) -> Model {
    let mut model = model(run);
    for step in steps {
        model.apply(step);
    }
    model
}

/// Returns the number of slots in use in a table of the space, by the name of the table.
fn slots<E: Environment>(space: &Space<E>, table: &str) -> usize {
    let text = format!("{space:?}");
    let (_, rest) = text.split_once(&format!(" {table}: ")).unwrap();
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

/// Fills the tables of VMAs and anon_vmas except for `free` slots each, with mappings of a new
/// process.
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

/// Returns true if an allocation belongs to the core and can fail.
fn may_fail(site: &Site) -> bool {
    let function = site.function();
    !OUTSIDE.iter().any(|name| function.contains(name))
}

/// Lists the allocations of `step` that may fail while `free` slots are free, by position.
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

/// Returns what the failure of an allocation of `step` leaves half done.
fn check(
    run: Run,
    before: &[Step],
    step: &Step,
    (free, nth): (usize, usize),
) -> Result<(), String> {
    let mut model = play(run, before);
    let filler = fill(model.machine().space(), free);
    let excused = excused(step);
    let all = |model: &Model| -> Vec<_> {
        (0..PROCESSES)
            .map(|process| mapped(model, process, &excused))
            .collect()
    };
    let was = all(&model);
    let charges = |model: &Model| -> Vec<u64> {
        let processes = 0..PROCESSES;
        processes.map(|p| charged_for_nothing(model, p)).collect()
    };
    let charged = charges(&model);
    let outcome = fail(nth, || model.apply(step));
    model.machine().validate()?;
    // The attributes of VMAs before the one that failed may have changed; what is mapped has not.
    if outcome.is_refused() && all(&model) != was {
        return Err("mapped otherwise than before".into());
    }
    if outcome.is_refused() && charges(&model) != charged {
        return Err("a charge is left".into());
    }
    if matches!(step.op, Op::Fork { .. }) && outcome != Outcome::Errno(12) {
        return Err(format!("fork: {outcome:?}"));
    }
    model.machine().space().mm_exit(filler).unwrap();
    for process in 0..PROCESSES {
        model.apply(&Step {
            process: process as u8,
            op: Op::Exit,
        });
    }
    let left = format!("{:?}", model.machine().space());
    match left.contains("vmas: 0, anon_vmas: 0, frames: 0") {
        true => Ok(()),
        false => Err(format!("left over: {left}")),
    }
}

/// Fails every allocation of one sequence, and counts the failures by function.
fn fail_each(
    run: Run,
    seed: u64,
    failures: &mut BTreeMap<String, usize>,
    met: &mut BTreeSet<&str>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut generator = Generator::new(seed, Facts::ALL);
    if generator.steps() <= STEPS {
        return wrong;
    }
    let mut steps: Vec<Step> = Vec::new();
    let mut ahead = model(run);
    for _ in 0..STEPS {
        let step = generator.next(&ahead);
        for free in 0..FREE_SLOTS {
            for (nth, site) in allocations(run, &steps, &step, free) {
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
                if let Err(found) = check(run, &steps, &step, (free, nth)) {
                    wrong.push(format!("{}: {found}", told()));
                }
            }
        }
        ahead.apply(&step);
        steps.push(step);
    }
    wrong
}

/// Functions that must have led to a failed allocation: the kinds of memory that a page needs.
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

/// Fails each allocation of `work` in turn, on a new machine each time, and returns their sites.
///
/// `work` returns true on success. Called again after a failed allocation, it must succeed.
fn each(prepare: impl Fn() -> (Space, MmId), work: impl Fn(&Space, MmId) -> bool) -> Vec<Site> {
    let (space, mm) = prepare();
    let (done, sites) = record(|| work(&space, mm));
    assert!(done, "there is memory");
    for (nth, site) in sites.iter().enumerate() {
        let (space, mm) = prepare();
        assert!(!fail(nth, || work(&space, mm)), "{}", site.function());
        space.validate_all().unwrap();
        assert!(work(&space, mm), "{}", site.function());
        space.validate_all().unwrap();
    }
    sites
}

const ARENA: u64 = 0x1000_0000;

/// Number of pages in the tests: more than the smallest buffer can hold.
const PAGES: u64 = 5;

fn page(n: u64) -> u64 {
    ARENA + n * 0x1000
}

/// Equal pages that KSM may merge, on a machine with swap.
fn equal_pages() -> (Space, MmId) {
    let system = System {
        swap: true,
        ..System::default()
    };
    let space = Space::new(Policy::LINUX, system);
    let mm = space.mm_create(Layout::default(), Limits::default());
    let mm = mm.unwrap();
    let request = MmapRequest {
        addr: ARENA,
        len: PAGES * 0x1000,
        prot: Prot::READ | Prot::WRITE,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
        ..MmapRequest::default()
    };
    space.mmap(mm, &request).unwrap();
    let advised = space.madvise(mm, ARENA, PAGES * 0x1000, Advice::Mergeable);
    advised.unwrap();
    for addr in (0..PAGES).map(page) {
        assert_eq!(space.fault(mm, addr, Access::Write), Ok(Faulted::Done));
    }
    (space, mm)
}

fn merged_pages() -> (Space, MmId) {
    let (space, mm) = equal_pages();
    assert!(merge(&space, mm));
    space.fork(mm).unwrap();
    (space, mm)
}

fn merge(space: &Space, mm: MmId) -> bool {
    let merged = space.ksm_merge((mm, page(0)), (mm, page(1)));
    merged
        .inspect_err(|error| assert_eq!(*error, Errno::ENOMEM))
        .is_ok()
}

fn migrate(space: &Space, mm: MmId) -> bool {
    let frame = space.mmap_read_lock(mm).unwrap().pages().get(ARENA).frame();
    let migrating = space.migrate_begin(frame.unwrap()).unwrap();
    space.migrate_end(migrating).is_ok()
}

#[track_caller]
fn assert_passes(sites: &[Site], name: &str) {
    assert!(
        sites.iter().any(|site| site.passes(name)),
        "{name}: {sites:?}"
    );
}

#[test]
fn pages_that_ksm_merges() {
    assert_passes(&each(equal_pages, merge), "Ksm::add");
    let fork = |space: &Space, mm| space.fork(mm).is_ok();
    assert_passes(&each(merged_pages, fork), "Ksm::add");
    assert_passes(&each(merged_pages, migrate), "Ksm::reserve_all");
}

#[test]
fn a_page_that_others_still_have_in_swap() {
    let read = |space: &Space, mm, addr| match space.fault(mm, addr, Access::Read) {
        Ok(Faulted::Done) => true,
        Ok(Faulted::OutOfMemory) => false,
        other => panic!("{other:?}"),
    };
    let swapped = || {
        let (space, mm) = equal_pages();
        space.fork(mm).unwrap();
        for addr in (0..PAGES).map(page) {
            space.swap_out(mm, addr).unwrap();
        }
        for addr in (1..PAGES).map(page) {
            assert!(read(&space, mm, addr));
        }
        (space, mm)
    };
    let sites = each(swapped, |space, mm| read(space, mm, page(0)));
    assert_passes(&sites, "Swap::fill");
}

/// The first growth in an address space reserves nodes of the tree of VMAs.
#[test]
fn a_growth_without_memory_leaves_no_charge() {
    let space = Space::new(Policy::LINUX, System::default());
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

/// Importing a VMA with its own anon_vma leaves nothing behind, whichever allocation fails.
#[test]
fn an_import_without_memory_leaves_nothing() {
    let vma = ImportedVma {
        range: VmRange::new(0x1000_0000, 0x1000_1000),
        pgoff: Pgoff::of_addr(0x1000_0000),
        body: VmaBody::default(),
        anon: ImportedAnon::New,
    };
    for nth in 0.. {
        let space = Space::new(Policy::LINUX, System::default());
        let mm = space
            .mm_create(Layout::default(), Limits::default())
            .unwrap();
        let imported = fail(nth, || space.mm_import(mm, &vma));
        if imported.is_ok() {
            assert!(nth > 2, "only {nth} allocations failed");
            break;
        }
        assert_eq!(imported, Err(Errno::ENOMEM));
        assert_eq!((slots(&space, "vmas"), slots(&space, "anon_vmas")), (0, 0));
        space.validate_all().unwrap();
    }
}
