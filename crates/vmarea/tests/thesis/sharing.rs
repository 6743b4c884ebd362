//! Sections 2.3 and 2.4: relatives of an anon_vma, the locks of a walk, and pages of KSM.

use crate::world::{PAGE, RW, World, at};
use crate::{POLICIES, ends_with};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use vmarea::fault::Access;
use vmarea::mm::{Layout, Limits};
use vmarea::page::Pte;
use vmarea::policy::{Policy, SharingCheck};
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::mmu::{Mmu, Translation};
use vmarea::types::platform::{Environment, Wait};
use vmarea::types::writers::DefaultWriters;
use vmarea::types::{Errno, MmId, NoBytes, VmFlags, VmRange};
use vmarea::vma::lock::VmaLock;
use vmarea::{Space, System};

const NOTHING: MremapFlags = MremapFlags::empty();

/// Maps and writes two mappings, forks, and lets the child write to all their pages, so that parent
/// and child are related but share no page.
fn related(w: &mut World, mm: MmId) -> MmId {
    for page in [0, 6] {
        w.map(mm, page, 2, RW);
        w.write(mm, page, 2);
    }
    let child = w.fork(mm);
    for page in [0, 6] {
        w.write(child, page, 2);
    }
    child
}

/// The thesis refuses a merge because of a relative, even if no page is shared.
#[test]
fn t2_3_the_child_check_finds_a_child_that_shares_no_page() {
    ends_with([2, 2, 2, 1], |w, mm| {
        related(w, mm);
        w.shift(mm, 6, 2, 2, NOTHING).unwrap();
    });
    ends_with([2, 2, 1, 1], |w, mm| {
        let child = related(w, mm);
        w.exit(child);
        w.shift(mm, 6, 2, 2, NOTHING).unwrap();
    });
}

#[test]
fn t2_3_the_parent_check_finds_a_parent_that_shares_no_page() {
    let vmas = POLICIES.map(|policy| {
        let (mut w, mm) = World::new(policy);
        let child = related(&mut w, mm);
        w.shift(child, 6, 2, 2, NOTHING).unwrap();
        w.vmas(child).len()
    });
    assert_eq!(
        vmas,
        [2, 2, 2, 1],
        "under linux, linux-5.10, thesis and vmarea"
    );
}

/// Allows KSM to merge the pages from `page` on.
fn mergeable(w: &World, mm: MmId, page: u64, pages: u64) {
    let space = w.machine.space();
    space
        .madvise(mm, at(page), pages * PAGE, Advice::Mergeable)
        .unwrap();
}

/// Lets KSM merge the two pages at `page` with two equal pages at page 100.
fn merge_by_ksm(w: &mut World, mm: MmId, page: u64) {
    w.map(mm, 100, 2, RW);
    mergeable(w, mm, 100, 2);
    mergeable(w, mm, page, 2);
    for n in 0..2 {
        w.write_equal(mm, 100 + n, page + n);
        let (one, other) = ((mm, at(page + n)), (mm, at(100 + n)));
        w.machine.space().ksm_merge(one, other).unwrap();
    }
    w.check();
    assert_eq!(ksm_pages(w, mm, page), 2);
}

fn ksm_pages(w: &World, mm: MmId, page: u64) -> usize {
    let r = w.machine.space().mmap_read_lock(mm).unwrap();
    let is_ksm = |n: &u64| matches!(r.pages().get(at(page + n)), Pte::Ksm { .. });
    (0..2).filter(is_ksm).count()
}

/// A KSM page is in several mappings, so a move makes ordinary pages of those that it moves.
#[test]
fn t2_4_a_move_unmerges_the_pages_of_ksm() {
    for policy in POLICIES {
        let (mut w, mm) = World::new(policy);
        w.map(mm, 6, 2, RW);
        w.write(mm, 6, 2);
        merge_by_ksm(&mut w, mm, 6);
        w.shift(mm, 6, 2, 20, NOTHING).unwrap();
        let left = [20, 100].map(|page| ksm_pages(&w, mm, page));
        assert_eq!(left, [0, 2], "{}", policy.name);
    }
}

/// A page of KSM has no owner that a merge would have to change, and does not count as shared.
#[test]
fn t2_4_pages_of_ksm_are_left_alone_where_they_are() {
    ends_with([3, 3, 2, 2], |w, mm| {
        w.map(mm, 0, 1, RW);
        w.map(mm, 2, 2, RW);
        w.write(mm, 0, 1);
        w.write(mm, 2, 2);
        merge_by_ksm(w, mm, 2);
        w.protect(mm, 2, 2, Prot::READ);
        w.map(mm, 1, 1, RW);
        mergeable(w, mm, 0, 2);
        w.protect(mm, 2, 2, RW);
        assert_eq!(ksm_pages(w, mm, 2), 2);
    });
}

/// An environment in which a move stops before its last flush, with the locks of the family held.
#[derive(Debug, Default)]
struct Stopping;

impl Environment for Stopping {
    type VmaLock = VmaLock;
    type Platform = NoBytes;
    type Mmu = StoppingMmu;
    type Wait = Noting;
    type Writers = DefaultWriters;
}

/// The next flush lets the walk begin.
static ARMED: AtomicBool = AtomicBool::new(false);
static WALK: AtomicBool = AtomicBool::new(false);
static WALKED: AtomicBool = AtomicBool::new(false);
/// A thread has waited for a lock.
static WAITED: AtomicBool = AtomicBool::new(false);

fn wait_for(until: impl Fn() -> bool) {
    while !until() {
        thread::yield_now();
    }
}

#[derive(Debug)]
struct Noting;

impl Wait for Noting {
    const SLEEPS: bool = false;

    fn wait(_: usize, until: &mut dyn FnMut() -> bool) {
        while !until() {
            WAITED.store(true, Ordering::Release);
            thread::yield_now();
        }
    }

    fn wake(_: usize) {}
}

#[derive(Debug, Default)]
struct StoppingMmu;

impl Mmu for StoppingMmu {
    fn mm_created(&self, _: MmId) -> Result<(), Errno> {
        Ok(())
    }
    fn mm_gone(&self, _: MmId) {}
    fn set_entry(&self, _: MmId, _: u64, _: Translation) -> Result<(), Errno> {
        Ok(())
    }
    fn clear(&self, _: MmId, _: VmRange) {}
    fn restrict(&self, _: MmId, _: VmRange, _: VmFlags) {}
    fn flush(&self, _: MmId, _: VmRange) {
        if ARMED.swap(false, Ordering::AcqRel) {
            WALK.store(true, Ordering::Release);
            let either = || WAITED.load(Ordering::Acquire) || WALKED.load(Ordering::Acquire);
            wait_for(either);
        }
    }
}

/// The check of a child's pages waits for a move in the parent, which changes entries of the same
/// family.
#[test]
fn t2_4_1_the_walk_holds_the_locks_of_the_reverse_map() {
    let space = Space::<Stopping>::in_environment(Policy::THESIS, System::default(), NoBytes);
    let parent = space
        .mm_create(Layout::default(), Limits::default())
        .unwrap();
    let request = MmapRequest {
        addr: at(0),
        len: 2 * PAGE,
        prot: RW,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
        ..MmapRequest::default()
    };
    space.mmap(parent, &request).unwrap();
    for page in 0..2 {
        space.fault(parent, at(page), Access::Write).unwrap();
    }
    let child = space.fork(parent).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let r = space.mmap_read_lock(child).unwrap();
            let vma = r.vma_lookup(at(0)).unwrap();
            wait_for(|| WALK.load(Ordering::Acquire));
            let check = SharingCheck::Thesis;
            r.page_tables().shared_pages(vma.anon_vma, vma.range, check);
            WALKED.store(true, Ordering::Release);
        });
        ARMED.store(true, Ordering::Release);
        let request = MremapRequest {
            addr: at(0),
            old_len: 2 * PAGE,
            new_len: 2 * PAGE,
            flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
            new_addr: at(20),
            ..MremapRequest::default()
        };
        let moved = space.mremap(parent, &request);
        // The walk begins in any case, so that a move without a flush fails instead of waiting.
        WALK.store(true, Ordering::Release);
        assert_eq!(moved, Ok(at(20)));
    });
    assert!(!ARMED.load(Ordering::Acquire), "the move flushes");
    assert!(WAITED.load(Ordering::Acquire), "the walk took no lock");
    space.validate_all().unwrap();
}
