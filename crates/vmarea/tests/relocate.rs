//! The policy `relocate`: moved pages get the page offsets and the anon_vma of their new address.
//!
//! Each scene is compared with `linux`, which has the same rules without the relocation. The
//! refusals are those of the series "mm/mremap: introduce more mergeable mremap via
//! MREMAP_RELOCATE_ANON" (docs/successors.md).

mod world;

use core::num::NonZeroU32;
use vmarea::fault::Access;
use vmarea::policy::Policy;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::userfaultfd::WatchMode;
use vmarea::types::call_flags::{MapFlags, MlockFlags, MremapFlags, Prot};
use vmarea::types::{AnonVmaId, File, FileId, FileKind, MmId, PMD_SIZE};
use vmarea::vma::merge::{Refusal, Relocation};
use vmarea::{HugePages, System};
use world::{PAGE, RW, World, at};

const HERE: MremapFlags = MremapFlags::empty();
/// Number of base pages in a huge page.
const SLOT: u64 = PMD_SIZE / PAGE;

fn faulted(w: &mut World, mm: MmId, page: u64, pages: u64) {
    w.map(mm, page, pages, RW);
    w.write(mm, page, pages);
}

/// Two faulted mappings with a gap between them: pages 0 and 1, and pages 6 and 7.
fn two(policy: Policy) -> (World, MmId) {
    let (mut w, mm) = World::new(policy);
    faulted(&mut w, mm, 0, 2);
    faulted(&mut w, mm, 6, 2);
    (w, mm)
}

/// Returns the number of relocations by outcome.
fn relocations(w: &World, mm: MmId) -> Vec<(Relocation, u64)> {
    let r = w.machine.space().mmap_read_lock(mm).unwrap();
    let counts = r.state().stats.relocations();
    counts.filter(|(_, n)| *n > 0).collect()
}

fn anon_vma(w: &World, mm: MmId, page: u64) -> Option<AnonVmaId> {
    let r = w.machine.space().mmap_read_lock(mm).unwrap();
    r.vma_lookup(at(page)).unwrap().anon_vma
}

/// Checks what the scene leaves under `linux` and `relocate`: the number of VMAs, and what became of
/// the relocation.
#[track_caller]
fn ends_with(vmas: [usize; 2], becomes: &[Relocation], scene: impl Fn(&mut World, MmId)) {
    for (policy, vmas) in [Policy::LINUX, Policy::RELOCATE].into_iter().zip(vmas) {
        let (mut w, mm) = World::new(policy);
        scene(&mut w, mm);
        assert_eq!(w.vmas(mm).len(), vmas, "{}: {}", policy.name, w.picture());
        let expected: Vec<_> = match policy.merging.relocate {
            true => becomes.iter().map(|what| (*what, 1)).collect(),
            false => Vec::new(),
        };
        assert_eq!(relocations(&w, mm), expected, "{}", policy.name);
    }
}

/// ```text
/// AA....BB   mremap   AABB   the pages of B get A's anon_vma
/// ```
#[test]
fn moved_pages_take_the_anon_vma_of_their_neighbour() {
    ends_with([2, 1], &[Relocation::Done], |w, mm| {
        faulted(w, mm, 0, 2);
        faulted(w, mm, 6, 2);
        let first = anon_vma(w, mm, 0);
        w.shift(mm, 6, 2, 2, HERE).unwrap();
        assert_eq!(anon_vma(w, mm, 0), first);
    });
    ends_with([2, 1], &[Relocation::Done], |w, mm| {
        faulted(w, mm, 0, 2);
        faulted(w, mm, 6, 2);
        w.shift(mm, 0, 2, 4, HERE).unwrap();
    });
}

/// ```text
/// AA..CC  BB   mremap   AABBCC   one VMA if A and C have one anon_vma
/// ```
#[test]
fn a_gap_between_parts_of_one_mapping_closes() {
    ends_with([3, 1], &[Relocation::Done], |w, mm| {
        faulted(w, mm, 0, 6);
        w.unmap(mm, 2, 2);
        faulted(w, mm, 8, 2);
        w.shift(mm, 8, 2, 2, HERE).unwrap();
    });
}

/// Between two anon_vmas, the range takes that of the next VMA, as a first fault does, and the other
/// neighbour stays apart: no page changes that has not moved.
#[test]
fn between_two_anon_vmas_the_next_one_lends_its_own() {
    ends_with([3, 2], &[Relocation::Done], |w, mm| {
        faulted(w, mm, 0, 2);
        faulted(w, mm, 4, 2);
        faulted(w, mm, 8, 2);
        let before = [0, 4].map(|page| anon_vma(w, mm, page));
        w.shift(mm, 8, 2, 2, HERE).unwrap();
        assert_eq!([0, 4].map(|page| anon_vma(w, mm, page)), before);
        if w.vmas(mm).len() == 2 {
            assert_eq!(anon_vma(w, mm, 2), before[1]);
        }
    });
}

/// The next VMA may be the one that moves, which is unmapped only afterwards:
///
/// ```text
/// A.B   mremap of B down by its own length   AB   B takes back its own anon_vma, and stays apart
/// ```
#[test]
fn a_range_that_moves_beside_itself_takes_its_own_anon_vma() {
    ends_with([2, 2], &[Relocation::Done], |w, mm| {
        faulted(w, mm, 0, 1);
        faulted(w, mm, 2, 1);
        let own = anon_vma(w, mm, 2);
        w.shift(mm, 2, 1, 1, HERE).unwrap();
        assert_eq!(anon_vma(w, mm, 1), own);
    });
    ends_with([2, 1], &[Relocation::Done], |w, mm| {
        faulted(w, mm, 0, 1);
        faulted(w, mm, 3, 1);
        w.shift(mm, 3, 1, 1, HERE).unwrap();
    });
}

/// A range that finds no neighbour gets an anon_vma of its own, and what it leaves behind keeps
/// its own. An `mprotect` merges the range later.
#[test]
fn without_a_merge_the_pages_are_relocated_too() {
    ends_with([2, 1], &[Relocation::Done], |w, mm| {
        faulted(w, mm, 0, 5);
        w.unmap(mm, 1, 2);
        w.protect(mm, 3, 2, Prot::READ);
        w.shift(mm, 3, 2, 1, HERE).unwrap();
        assert_eq!(w.vmas(mm).len(), 2, "the protection keeps them apart");
        w.protect(mm, 1, 2, RW);
    });
    ends_with([2, 2], &[Relocation::Done], |w, mm| {
        faulted(w, mm, 0, 4);
        w.shift(mm, 2, 2, 8, HERE).unwrap();
        let relocated = w.machine.space().policy().merging.relocate;
        assert_eq!(anon_vma(w, mm, 0) != anon_vma(w, mm, 8), relocated);
        assert_eq!(w.lines(mm), if relocated { [0, 0] } else { [0, -6] });
    });
}

/// What merges as it is, or has no page, has no reason to be relocated.
#[test]
fn what_merges_as_it_is_keeps_its_anon_vma() {
    ends_with([1, 1], &[], |w, mm| {
        w.map(mm, 0, 2, RW);
        w.map(mm, 6, 2, RW);
        w.shift(mm, 6, 2, 2, HERE).unwrap();
    });
    ends_with([2, 1], &[Relocation::Done], |w, mm| {
        faulted(w, mm, 0, 2);
        w.shift(mm, 0, 2, 20, HERE).unwrap();
        let relocated = anon_vma(w, mm, 20);
        w.map(mm, 6, 2, RW);
        w.shift(mm, 6, 2, 22, HERE).unwrap();
        assert_eq!(anon_vma(w, mm, 20), relocated);
    });
}

/// An unfaulted neighbour gets the anon_vma of the relocated pages.
#[test]
fn an_unfaulted_neighbour_is_joined() {
    ends_with([2, 1], &[Relocation::Done], |w, mm| {
        w.map(mm, 0, 2, RW);
        faulted(w, mm, 6, 2);
        w.shift(mm, 6, 2, 2, HERE).unwrap();
        w.write(mm, 0, 4);
    });
}

#[test]
fn a_living_relative_keeps_the_pages_as_they_are() {
    ends_with([2, 2], &[Relocation::Family], |w, mm| {
        faulted(w, mm, 0, 2);
        faulted(w, mm, 6, 2);
        let child = w.fork(mm);
        // Even a child that shares no page any more.
        w.write(child, 6, 2);
        w.shift(mm, 6, 2, 2, HERE).unwrap();
    });
    ends_with([2, 1], &[Relocation::Done], |w, mm| {
        faulted(w, mm, 0, 2);
        faulted(w, mm, 6, 2);
        let child = w.fork(mm);
        w.exit(child);
        w.shift(mm, 6, 2, 2, HERE).unwrap();
    });
    let (mut w, mm) = two(Policy::RELOCATE);
    let child = w.fork(mm);
    w.exit(mm);
    w.write(child, 6, 2);
    w.shift(child, 6, 2, 2, HERE).unwrap();
    assert_eq!(relocations(&w, child), [(Relocation::Family, 1)]);
    assert_eq!(w.vmas(child).len(), 2, "a parent that has exited counts");
}

/// Two parts of a mapping move to neighbouring places, the second after a fork. Linux merges them,
/// because both have kept their page offsets and their anon_vma.
#[test]
fn a_relocation_that_a_fork_interrupts_leaves_more_mappings() {
    ends_with([1, 2], &[Relocation::Done, Relocation::Family], |w, mm| {
        faulted(w, mm, 0, 4);
        w.shift(mm, 0, 2, 20, HERE).unwrap();
        w.fork(mm);
        w.shift(mm, 2, 2, 22, HERE).unwrap();
    });
}

#[test]
fn a_pinned_page_keeps_all_pages_as_they_are() {
    let (mut w, mm) = two(Policy::RELOCATE);
    let pins = [1, 7].map(|page| w.machine.space().pin_page(mm, at(page)).unwrap());
    w.shift(mm, 6, 2, 2, HERE).unwrap();
    assert_eq!(w.lines(mm), [0, 4], "it has moved, as it was");
    assert_eq!(relocations(&w, mm), [(Relocation::Pinned, 1)]);
    let refused = |w: &World, reason| {
        let r = w.machine.space().mmap_read_lock(mm).unwrap();
        let mut all = r.state().stats.refusals();
        all.find(|(refusal, _)| *refusal == reason).unwrap().1
    };
    assert_eq!(refused(&w, Refusal::Pinned), 1);
    let [neighbour, moved] = pins;
    w.machine.space().unpin_page(moved);
    w.shift(mm, 2, 2, 10, HERE).unwrap();
    w.shift(mm, 10, 2, 2, HERE).unwrap();
    assert_eq!(w.lines(mm), [0], "only the pages that move change");
    w.machine.space().unpin_page(neighbour);
}

/// Private mappings of files are not relocated; one of `/dev/zero` is anonymous memory.
#[test]
fn only_anonymous_memory_is_relocated() {
    for (kind, why) in [
        (FileKind::Regular, Relocation::File),
        (FileKind::DevZero, Relocation::Done),
    ] {
        let (mut w, mm) = World::new(Policy::RELOCATE);
        let request = MmapRequest {
            addr: at(0),
            len: SLOT * PAGE,
            prot: RW,
            flags: MapFlags::PRIVATE | MapFlags::FIXED,
            file: Some(File::read_write(FileId(1), 1, kind)),
            ..MmapRequest::default()
        };
        let space = w.machine.space();
        space.mmap(mm, &request).unwrap();
        space.fault(mm, at(0), Access::Write).unwrap();
        w.shift(mm, 0, SLOT, 4 * SLOT, HERE).unwrap();
        assert_eq!(relocations(&w, mm), [(why, 1)], "{kind:?}");
    }
}

/// Swapped-out pages have no owner; they get that of their new VMA when they come back.
#[test]
fn swapped_out_pages_come_back_relocated() {
    let system = System {
        swap: true,
        ..System::default()
    };
    let (mut w, mm) = World::of(Policy::RELOCATE, system);
    faulted(&mut w, mm, 0, 2);
    faulted(&mut w, mm, 6, 3);
    // The second page is swapped out and in the swap cache, because a child has used it.
    let child = w.fork(mm);
    let space = w.machine.space();
    for page in [7, 8] {
        space.swap_out(mm, at(page)).unwrap();
    }
    space.fault(child, at(8), Access::Read).unwrap();
    w.exit(child);
    w.shift(mm, 6, 3, 2, HERE).unwrap();
    assert_eq!(w.lines(mm), [0]);
    for page in [3, 4] {
        let space = w.machine.space();
        space.fault(mm, at(page), Access::Read).unwrap();
        w.check();
    }
}

/// A page that is being migrated belongs to its new VMA when the migration ends.
#[test]
fn a_page_in_migration_is_relocated() {
    let (mut w, mm) = two(Policy::RELOCATE);
    let frame = {
        let r = w.machine.space().mmap_read_lock(mm).unwrap();
        r.pages().get(at(7)).frame().unwrap()
    };
    let migrating = w.machine.space().migrate_begin(frame).unwrap();
    w.shift(mm, 6, 2, 2, HERE).unwrap();
    assert_eq!(w.lines(mm), [0]);
    w.machine.space().migrate_end(migrating).unwrap();
    w.check();
}

/// As under mainline, a move unmerges pages of KSM first; afterwards they are the VMA's own.
#[test]
fn pages_of_ksm_are_unmerged_and_relocated() {
    let (mut w, mm) = two(Policy::RELOCATE);
    let space = w.machine.space();
    let len = 2 * PAGE;
    for page in [0, 6] {
        space.madvise(mm, at(page), len, Advice::Mergeable).unwrap();
    }
    w.write_equal(mm, 7, 6);
    let space = w.machine.space();
    space.ksm_merge((mm, at(6)), (mm, at(7))).unwrap();
    w.check();
    w.shift(mm, 6, 2, 2, HERE).unwrap();
    assert_eq!(w.lines(mm), [0]);
    assert_eq!(relocations(&w, mm), [(Relocation::Done, 1)]);
}

/// A huge page moves whole between addresses of its alignment, and is split otherwise.
#[test]
fn huge_pages_stay_whole_if_they_can() {
    let system = System {
        huge_pages: HugePages::Always,
        ..System::default()
    };
    for (to, left) in [(4 * SLOT, 1), (4 * SLOT + 1, 0)] {
        let (mut w, mm) = World::of(Policy::RELOCATE, system);
        w.checks = false;
        w.map(mm, 0, SLOT, RW);
        w.write(mm, 0, 1);
        w.shift(mm, 0, SLOT, to, HERE).unwrap();
        w.check();
        assert_eq!(w.lines(mm), [0]);
        let r = w.machine.space().mmap_read_lock(mm).unwrap();
        assert_eq!(r.pages().huge_pages(), left);
    }
}

/// The pages of a locked mapping are relocated. With DONTUNMAP, the old mapping stays, empty.
#[test]
fn locked_mappings_and_those_that_stay_are_relocated() {
    ends_with([2, 1], &[Relocation::Done], |w, mm| {
        faulted(w, mm, 0, 2);
        faulted(w, mm, 6, 2);
        for page in [0, 6] {
            let space = w.machine.space();
            let locked = space.mlock(mm, at(page), 2 * PAGE, MlockFlags::empty());
            locked.unwrap();
        }
        w.shift(mm, 6, 2, 2, HERE).unwrap();
    });
    ends_with([3, 2], &[Relocation::Done], |w, mm| {
        faulted(w, mm, 0, 2);
        faulted(w, mm, 6, 2);
        w.shift(mm, 6, 2, 2, MremapFlags::DONTUNMAP).unwrap();
        assert_eq!(anon_vma(w, mm, 6), None);
    });
}

/// What a userfaultfd watched merges with no neighbour of its new place (7.3), but its pages are
/// relocated.
#[test]
fn a_watched_range_stays_apart() {
    ends_with([2, 2], &[Relocation::Done], |w, mm| {
        faulted(w, mm, 0, 2);
        faulted(w, mm, 6, 2);
        let context = NonZeroU32::new(1).unwrap();
        let range = (at(6), 2 * PAGE);
        let space = w.machine.space();
        let watched = space.userfaultfd_register(mm, context, range, WatchMode::MISSING);
        watched.unwrap();
        w.shift(mm, 6, 2, 2, HERE).unwrap();
    });
}
