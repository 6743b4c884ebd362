//! Makes each allocation fail in turn, in work on pages that the sequences of calls do not contain.

use super::allocator::slots;
use vmarea::fault::{Access, Faulted};
use vmarea::mm::lifecycle::{ImportedAnon, ImportedVma};
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{Errno, MmId, Pgoff, VmRange};
use vmarea::vma::VmaBody;
use vmarea::vma::merge::{CallKind, MergeOutcome};
use vmarea::{Overcommit, Space, System};
use vmarea_test_support::failing_allocator::{Site, fail, record};

/// Makes each allocation in `work` fail, each on a new machine; returns the allocations' sites.
///
/// `work` returns true on success. When called again after a failed allocation, it must succeed.
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

/// A growth into a free range only moves the end of a mapping: the tree of VMAs needs no node for it.
#[test]
fn a_growth_in_place_needs_no_memory() {
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
    assert_eq!(fail(0, || space.mremap(mm, &growth)), Ok(addr));
    assert_eq!(committed(), before + 4);
}

/// Under a strict commit limit, a charged VMA that is moved does not merge with an uncharged one.
/// If the move then fails as well, the abandoned merge is counted only once.
#[test]
fn a_merge_is_given_up_once() {
    const FAR: u64 = ARENA + (1 << 30);
    let prepare = || {
        let system = System {
            overcommit: Overcommit::Never(1 << 20),
            ..System::default()
        };
        let space = Space::new(Policy::VMAREA, system);
        let mm = space.mm_create(Layout::default(), Limits::default());
        let mm = mm.unwrap();
        let map = |addr, prot| {
            let request = MmapRequest {
                addr,
                len: PAGES * 0x1000,
                prot,
                flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
                ..MmapRequest::default()
            };
            space.mmap(mm, &request).unwrap();
        };
        map(ARENA, Prot::READ);
        map(FAR, Prot::READ | Prot::WRITE);
        assert_eq!(space.fault(mm, FAR, Access::Write), Ok(Faulted::Done));
        let len = PAGES * 0x1000;
        space.mprotect(mm, FAR, len, Prot::READ, None).unwrap();
        (space, mm)
    };
    let shift = |space: &Space, mm| {
        let request = MremapRequest {
            addr: FAR,
            old_len: PAGES * 0x1000,
            new_len: PAGES * 0x1000,
            flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
            new_addr: page(PAGES),
            ..MremapRequest::default()
        };
        let moved = space.mremap(mm, &request).is_ok();
        let r = space.mmap_read_lock(mm).unwrap();
        let stats = &r.state().stats;
        assert!(stats.merges().all(|(_, n)| n == 0), "given up each time");
        let mut attempts = stats.attempts();
        let given_up = |of: (CallKind, MergeOutcome, u64)| {
            (of.0, of.1) == (CallKind::MremapMove, MergeOutcome::Failed) && of.2 > 0
        };
        assert!(!moved || attempts.any(given_up), "the charge refused it");
        moved
    };
    assert_passes(&each(prepare, shift), "Table::new");
}

/// If an allocation fails while a VMA with its own anon_vma is imported, nothing is left behind.
#[test]
fn an_import_without_memory_leaves_nothing() {
    let vma = ImportedVma {
        range: VmRange::new(0x1000_0000, 0x1000_1000),
        pgoff: Pgoff::of_addr(0x1000_0000),
        anon_pgoff: None,
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
