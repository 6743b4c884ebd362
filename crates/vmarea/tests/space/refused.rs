//! VMAs that no policy may merge: sealed, registered with userfaultfd, hugetlb, or with pinned
//! pages.
//!
//! Each of these obstacles has its own refusal reason, and a refused merge changes nothing.

use crate::world::{BASE, PAGE, RW, World, at};
use core::num::NonZeroU32;
use vmarea::page::{PagePin, Pte};
use vmarea::policy::Policy;
use vmarea::syscall::merge_collector::Budget;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::userfaultfd::WatchMode;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{Errno, File, FileId, FileKind, MmId, PMD_SIZE, VmRange};
use vmarea::vma::merge::Refusal;
use vmarea::{HugePages, System};

const POLICIES: [Policy; 4] = [
    Policy::LINUX,
    Policy::LINUX_5_10,
    Policy::THESIS,
    Policy::VMAREA,
];
/// The policies that change pages in order to merge.
const BEYOND: [Policy; 2] = [Policy::THESIS, Policy::VMAREA];
const HERE: MremapFlags = MremapFlags::empty();
/// Number of base pages in a huge page.
const PAGES: u64 = PMD_SIZE / PAGE;

fn refused(world: &World, mm: MmId, reason: Refusal) -> u64 {
    let r = world.machine.space().mmap_read_lock(mm).unwrap();
    let (_, count) = r
        .state()
        .stats
        .refusals()
        .find(|(r, _)| *r == reason)
        .unwrap();
    count
}

fn ranges(world: &World, mm: MmId) -> Vec<VmRange> {
    world.vmas(mm).iter().map(|v| v.range).collect()
}

/// Checks that `obstacle` alone prevents two neighbours from merging.
fn stays_apart(policies: &[Policy], obstacle: impl Fn(&World, MmId), reason: Refusal) {
    for &policy in policies {
        let (mut world, mm) = World::new(policy);
        world.map(mm, 0, 2, RW);
        world.map(mm, 2, 2, Prot::READ);
        obstacle(&world, mm);
        let before = ranges(&world, mm);
        assert_eq!(refused(&world, mm, reason), 0);
        world.protect(mm, 2, 2, RW);
        assert_eq!(refused(&world, mm, reason), 1, "{}", policy.name);
        assert_eq!(ranges(&world, mm), before);
    }
}

#[test]
fn a_sealed_range() {
    let seal = |world: &World, mm| {
        let space = world.machine.space();
        space.mseal(mm, at(0), 2 * PAGE, 0).unwrap();
        let moved = space.mprotect(mm, at(0), 2 * PAGE, Prot::READ, None);
        assert_eq!(moved, Err(Errno::EPERM));
    };
    // 5.10, and therefore the thesis, does not have `mseal`.
    stays_apart(&[Policy::LINUX, Policy::VMAREA], seal, Refusal::Sealed);
}

#[test]
fn a_range_that_userfaultfd_watches() {
    let watch = |world: &World, mm| {
        let space = world.machine.space();
        let context = NonZeroU32::new(1).unwrap();
        space
            .userfaultfd_register(mm, context, (at(0), 2 * PAGE), WatchMode::MISSING)
            .unwrap();
    };
    stays_apart(&POLICIES, watch, Refusal::Userfaultfd);
}

#[test]
fn hugetlbfs() {
    for policy in POLICIES {
        let (world, mm) = World::new(policy);
        let file = File::read_write(FileId(1), 1, FileKind::Hugetlb);
        for n in 0..2 {
            let request = MmapRequest {
                addr: at(n * PAGES),
                len: PAGES * PAGE,
                prot: RW,
                flags: MapFlags::PRIVATE | MapFlags::FIXED,
                file: Some(file),
                offset: n * PAGES * PAGE,
                ..MmapRequest::default()
            };
            world.machine.space().mmap(mm, &request).unwrap();
        }
        assert_eq!(refused(&world, mm, Refusal::Hugetlb), 1, "{}", policy.name);
        assert_eq!(world.vmas(mm).len(), 2);
        world.check();
    }
}

/// Creates two faulted mappings with a gap between them.
fn two_faulted(policy: Policy) -> (World, MmId) {
    let (mut world, mm) = World::new(policy);
    for page in [0, 6] {
        world.map(mm, page, 2, RW);
        world.write(mm, page, 2);
    }
    (world, mm)
}

fn pin(world: &World, mm: MmId, page: u64) -> PagePin {
    world.machine.space().pin_page(mm, at(page)).unwrap()
}

fn entry(world: &World, mm: MmId, page: u64) -> Pte {
    let r = world.machine.space().mmap_read_lock(mm).unwrap();
    r.pages().get(at(page))
}

#[test]
fn pinned_pages_keep_anon_vma_and_page_offset() {
    for policy in BEYOND {
        let (mut world, mm) = two_faulted(policy);
        // One side would have to change, regardless of which anon_vma survives.
        let [other, pin] = [1, 7].map(|page| pin(&world, mm, page));
        world.shift(mm, 6, 2, 2, HERE).unwrap();
        assert_eq!(world.lines(mm), [0, 4], "it has moved, as it was");
        assert_eq!(refused(&world, mm, Refusal::Pinned), 1, "{}", policy.name);
        assert_eq!(entry(&world, mm, 3).frame(), Some(pin.frame()));

        world.machine.space().unpin_page(pin);
        world.machine.space().unpin_page(other);
        world.shift(mm, 2, 2, 10, HERE).unwrap();
        world.shift(mm, 10, 2, 2, HERE).unwrap();
        assert_eq!(world.lines(mm), [0], "{}", policy.name);
    }
}

/// Under a policy that never changes pages, no merge is refused because of a pin.
#[test]
fn a_policy_that_changes_no_page_does_not_ask_for_pins() {
    let (mut world, mm) = two_faulted(Policy::LINUX);
    let pin = pin(&world, mm, 7);
    world.shift(mm, 6, 2, 2, HERE).unwrap();
    assert_eq!(refused(&world, mm, Refusal::Pinned), 0);
    assert_eq!(refused(&world, mm, Refusal::AnonVma), 1);
    world.machine.space().unpin_page(pin);
}

#[test]
fn only_pages_that_would_change_must_not_be_pinned() {
    for policy in BEYOND {
        let (mut world, mm) = two_faulted(policy);
        let pin = pin(&world, mm, 1);
        world.shift(mm, 6, 2, 2, HERE).unwrap();
        assert_eq!(world.lines(mm), [0], "{}", policy.name);
        assert_eq!(entry(&world, mm, 1).frame(), Some(pin.frame()));
        world.machine.space().unpin_page(pin);
    }
}

/// A pinned range that is moved away keeps its page offset. When it is then moved next to a
/// neighbour, the merge is refused for another reason, and is not counted as refused because of the
/// pin.
#[test]
fn a_pin_is_the_reason_only_where_it_alone_is() {
    let (mut world, mm) = two_faulted(Policy::THESIS);
    let child = world.fork(mm);
    let pin = pin(&world, mm, 7);
    world.shift(mm, 6, 2, 10, HERE).unwrap();
    assert_eq!(world.lines(mm), [0, -4]);
    world.shift(mm, 10, 2, 2, HERE).unwrap();
    assert_eq!(refused(&world, mm, Refusal::Pinned), 0, "shared as well");
    assert_eq!(world.vmas(mm).len(), 2);
    world.exit(child);
    world.machine.space().unpin_page(pin);
}

#[test]
fn the_collector_waits_for_the_last_pin() {
    const ALL: Budget = Budget {
        pages_at_once: 16,
        borders: 16,
    };
    let (mut world, mm) = two_faulted(Policy::VMAREA);
    let other = pin(&world, mm, 1);
    let pins = [pin(&world, mm, 6), pin(&world, mm, 6)];
    world.shift(mm, 6, 2, 2, HERE).unwrap();
    assert_eq!(refused(&world, mm, Refusal::Pinned), 1);
    for pin in pins {
        let done = world.machine.space().collect(mm, ALL).unwrap();
        assert_eq!((done.merged, done.kept), (0, 1));
        world.machine.space().unpin_page(pin);
        world.check();
    }
    // The pages of one side may change now.
    assert_eq!(world.machine.space().collect(mm, ALL).unwrap().merged, 1);
    assert_eq!(world.vmas(mm).len(), 1);
    world.check();
    world.machine.space().unpin_page(other);
}

#[test]
fn pinned_pages_stay_in_their_frames() {
    let system = System {
        swap: true,
        ..System::default()
    };
    let (mut world, mm) = World::of(Policy::VMAREA, system);
    world.map(mm, 0, 2, RW);
    world.write(mm, 0, 2);
    let pin = pin(&world, mm, 0);
    let frame = pin.frame();
    let space = world.machine.space();
    assert_eq!(space.swap_out_frame(frame), Err(Errno::EBUSY));
    assert_eq!(space.migrate_begin(frame).err(), Some(Errno::EBUSY));
    world.check();

    // The child has a copy, and the parent's writes go to the frame that the device reads.
    let child = world.fork(mm);
    assert_ne!(entry(&world, child, 0).frame(), Some(frame));
    assert_eq!(
        entry(&world, child, 1).frame(),
        entry(&world, mm, 1).frame()
    );
    world.write(mm, 0, 2);
    world.write(child, 0, 2);
    assert_eq!(entry(&world, mm, 0).frame(), Some(frame));
    world.machine.space().unpin_page(pin);
    world.machine.space().swap_out_frame(frame).unwrap();
    world.check();
}

#[test]
fn a_pinned_part_of_a_huge_page() {
    let system = System {
        huge_pages: HugePages::Always,
        ..System::default()
    };
    assert!(BASE.is_multiple_of(PAGES * PAGE));
    let (mut world, mm) = World::of(Policy::VMAREA, system);
    world.checks = false;
    world.map(mm, 0, PAGES, RW);
    world.map(mm, 2 * PAGES, PAGES, RW);
    world.write(mm, 0, 1);
    world.write(mm, 2 * PAGES, 3);
    let pin = pin(&world, mm, 2 * PAGES + 1);
    let child = world.fork(mm);
    assert_ne!(
        entry(&world, child, 2 * PAGES + 1).frame(),
        Some(pin.frame())
    );
    world.check();
    world.exit(child);
    world.shift(mm, 2 * PAGES, PAGES, PAGES, HERE).unwrap();
    assert_eq!(refused(&world, mm, Refusal::Pinned), 1);
    assert_eq!(entry(&world, mm, PAGES + 1).frame(), Some(pin.frame()));
    world.check();
    world.machine.space().unpin_page(pin);
}

#[test]
fn a_pin_outlives_the_mapping() {
    let (mut world, mm) = World::new(Policy::VMAREA);
    world.map(mm, 0, 2, RW);
    world.write(mm, 0, 2);
    let pins = [pin(&world, mm, 0), pin(&world, mm, 0), pin(&world, mm, 1)];
    world.unmap(mm, 0, 1);
    world.exit(mm);
    for (pin, left) in pins.into_iter().zip([2, 1, 0]) {
        world.check();
        world.machine.space().unpin_page(pin);
        assert_eq!(world.machine.space().frames_in_use(), left);
    }
    assert_eq!(world.machine.memory().frames(), 0);
}

#[test]
fn what_cannot_be_pinned() {
    let (mut world, mm) = World::new(Policy::VMAREA);
    world.map(mm, 0, 1, Prot::READ);
    let space = world.machine.space();
    assert_eq!(space.pin_page(mm, at(0)), Err(Errno::EFAULT));
    assert_eq!(space.pin_page(mm, at(1)), Err(Errno::EFAULT));
    world.exit(mm);
    let space = world.machine.space();
    assert_eq!(space.pin_page(mm, at(0)), Err(Errno::ESRCH));
}
