//! Policies with a rule written in Rust: what it refuses, and what flags a merged VMA gets.

use crate::world::{PAGE, RW, World, at};
use vmarea::policy::{MergePolicy, Policy};
use vmarea::syscall::madvise::Advice;
use vmarea::types::call_flags::Prot;
use vmarea::types::{MmId, VmFlags};
use vmarea::vma::VmaView;
use vmarea::vma::merge::{Proposal, Refusal};

/// Largest VMA that a merge under [`Mine`] makes, in pages.
const LARGEST: u64 = 8;

struct Mine;

impl MergePolicy for Mine {
    fn name(&self) -> &'static str {
        "mine"
    }

    fn sticky(&self) -> VmFlags {
        // That a mapping is writable or locked does not stick, whatever a rule says.
        VmFlags::DONTDUMP | VmFlags::WRITE | VmFlags::LOCKED
    }

    fn refuses(&self, range: &Proposal, neighbour: &VmaView) -> Option<Refusal> {
        let pages = range.range.pages() + neighbour.range.pages();
        (pages > LARGEST).then_some(Refusal::Special)
    }
}

fn lengths(world: &World, mm: MmId) -> Vec<u64> {
    world.vmas(mm).iter().map(|vma| vma.range.pages()).collect()
}

fn advise(world: &World, mm: MmId, page: u64, pages: u64, advice: Advice) {
    let space = world.machine.space();
    space.madvise(mm, at(page), pages * PAGE, advice).unwrap();
    world.check();
}

#[test]
fn a_merge_is_refused_and_counted() {
    let (mut world, mm) = World::new(Policy::of(&Mine));
    world.map(mm, 0, 4, RW);
    world.map(mm, 4, 4, RW);
    assert_eq!(lengths(&world, mm), [8]);
    world.map(mm, 8, 1, RW);
    assert_eq!(lengths(&world, mm), [8, 1]);
    world.map(mm, 12, 6, RW);
    world.map(mm, 9, 3, RW);
    assert_eq!(lengths(&world, mm), [8, 4, 6]);
    let r = world.machine.space().mmap_read_lock(mm).unwrap();
    let stats = &r.state().stats;
    let refused = stats.refusals().find(|(r, _)| *r == Refusal::Special);
    assert_eq!(refused.map(|(_, count)| count), Some(2));
}

#[test]
fn a_rule_is_asked_about_all_three_ranges_that_a_merge_joins() {
    let (mut world, mm) = World::new(Policy::of(&Mine));
    world.map(mm, 0, 3, RW);
    world.map(mm, 6, 3, RW);
    // The range fits together with each neighbour, but not with both.
    world.map(mm, 3, 3, RW);
    assert_eq!(lengths(&world, mm), [6, 3]);
}

#[test]
fn a_vma_that_grows_in_place_is_not_asked() {
    let (mut world, mm) = World::new(Policy::of(&Mine));
    world.map(mm, 0, 8, RW);
    world.grow(mm, 0, 8, 20);
    assert_eq!(lengths(&world, mm), [20]);
}

#[test]
fn a_merged_vma_gets_the_sticky_flags_of_all_parts() {
    for first in [0, 2] {
        let (mut world, mm) = World::new(Policy::of(&Mine));
        world.map(mm, first, 2, RW);
        world.write(mm, first, 1);
        advise(&world, mm, first, 2, Advice::DontDump);
        world.map(mm, 2 - first, 2, RW);
        let vmas = world.vmas(mm);
        assert_eq!(lengths(&world, mm), [4]);
        assert!(vmas[0].body.flags.contains(VmFlags::DONTDUMP));

        let (mut world, mm) = World::new(Policy::LINUX);
        world.map(mm, first, 2, RW);
        advise(&world, mm, first, 2, Advice::DontDump);
        world.map(mm, 2 - first, 2, RW);
        assert_eq!(lengths(&world, mm), [2, 2]);
    }
}

#[test]
fn flags_of_access_and_accounts_never_stick() {
    let (mut world, mm) = World::new(Policy::of(&Mine));
    world.map(mm, 0, 2, RW);
    world.map(mm, 2, 2, Prot::READ);
    assert_eq!(lengths(&world, mm), [2, 2]);
}

#[test]
fn neighbours_that_were_written_apart_share_an_anon_vma_across_sticky_flags() {
    let anon_vmas = |policy| {
        let (mut world, mm) = World::new(policy);
        world.map(mm, 0, 4, Prot::READ);
        world.protect(mm, 0, 2, RW);
        advise(&world, mm, 0, 2, Advice::DontDump);
        world.write(mm, 0, 1);
        world.protect(mm, 2, 2, RW);
        world.write(mm, 2, 1);
        let vmas = world.vmas(mm);
        let mut all: Vec<_> = vmas.iter().map(|vma| vma.anon_vma.unwrap()).collect();
        all.dedup();
        all.len()
    };
    assert_eq!(anon_vmas(Policy::LINUX), 2);
    assert_eq!(anon_vmas(Policy::of(&Mine)), 1);
}
