//! Extensions in policy `vmarea` that go beyond the thesis, compared with the kernel's rules.

use vmarea::fault::Access;
use vmarea::mm::{Layout, Limits};
use vmarea::page::Pte;
use vmarea::policy::Policy;
use vmarea::syscall::merge_collector::Budget;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{Errno, FrameId, MmId, PAGE_SIZE, VmRange};
use vmarea::{Overcommit, Space, System};

const BASE: u64 = 0x10_0000_0000;
const FIXED_PRIVATE_ANONYMOUS: MapFlags = MapFlags::FIXED
    .union(MapFlags::PRIVATE)
    .union(MapFlags::ANONYMOUS);
const RW: Prot = Prot::READ.union(Prot::WRITE);

struct World {
    space: Space,
    mm: MmId,
}

impl World {
    fn new(policy: Policy) -> World {
        World::on(policy, System::default())
    }

    fn on(policy: Policy, system: System) -> World {
        let space = Space::new(policy, system);
        let layout = Layout {
            mmap_base: 0x7f00_0000_0000,
            ..Layout::default()
        };
        let mm = space.mm_create(layout, Limits::default()).unwrap();
        World { space, mm }
    }

    fn map(&self, page: u64, pages: u64, prot: Prot) {
        let request = MmapRequest {
            addr: BASE + page * PAGE_SIZE,
            len: pages * PAGE_SIZE,
            prot,
            flags: FIXED_PRIVATE_ANONYMOUS,
            ..MmapRequest::default()
        };
        self.space.mmap(self.mm, &request).unwrap();
        self.check();
    }

    fn write(&self, mm: MmId, page: u64, pages: u64) {
        for p in page..page + pages {
            self.space
                .fault(mm, BASE + p * PAGE_SIZE, Access::Write)
                .unwrap();
        }
        self.check();
    }

    fn mremap(
        &self,
        page: u64,
        old: u64,
        new: u64,
        flags: MremapFlags,
        to: u64,
    ) -> Result<u64, Errno> {
        let request = MremapRequest {
            addr: BASE + page * PAGE_SIZE,
            old_len: old * PAGE_SIZE,
            new_len: new * PAGE_SIZE,
            flags,
            new_addr: BASE + to * PAGE_SIZE,
            ..MremapRequest::default()
        };
        let moved = self.space.mremap(self.mm, &request);
        self.check();
        moved
    }

    fn check(&self) {
        self.space.validate_all().unwrap();
    }

    fn ranges(&self) -> Vec<VmRange> {
        let r = self.space.mmap_read_lock(self.mm).unwrap();
        r.vmas().map(|vma| vma.range).collect()
    }

    fn vmas(&self) -> usize {
        self.ranges().len()
    }

    fn frame(&self, addr: u64) -> Option<FrameId> {
        match self
            .space
            .mmap_read_lock(self.mm)
            .unwrap()
            .pages()
            .get(addr)
        {
            Pte::Anon { frame, .. } => Some(frame),
            _ => None,
        }
    }
}

const MOVE_TO: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::FIXED);
const ALL: Budget = Budget {
    pages_at_once: u64::MAX,
    borders: usize::MAX,
};

/// Commits and faults a reservation piece by piece, in an order in which consecutive pieces are not
/// adjacent. Returns the number of VMAs afterwards.
fn commit_in_pieces(policy: Policy, commit: impl Fn(&World, u64)) -> usize {
    let world = World::new(policy);
    world.map(0, 64, Prot::empty());
    for i in 0..16 {
        let piece = i * 7 % 16 * 4;
        commit(&world, piece);
        world.write(world.mm, piece, 4);
    }
    world.vmas()
}

#[test]
fn a_reservation_committed_in_pieces_is_one_vma() {
    let by_mprotect = |world: &World, piece: u64| {
        world
            .space
            .mprotect(world.mm, BASE + piece * PAGE_SIZE, 4 * PAGE_SIZE, RW, None)
            .unwrap();
    };
    let by_mmap = |world: &World, piece: u64| world.map(piece, 4, RW);
    assert_eq!(commit_in_pieces(Policy::VMAREA, by_mprotect), 1);
    assert_eq!(commit_in_pieces(Policy::VMAREA, by_mmap), 1);
    assert!(
        commit_in_pieces(Policy::LINUX, by_mprotect) > 1,
        "the kernel's rules leave them apart"
    );
    assert!(commit_in_pieces(Policy::LINUX, by_mmap) > 1);
}

#[test]
fn a_move_onto_itself_takes_every_page_along() {
    let world = World::new(Policy::VMAREA);
    world.map(0, 8, RW);
    world.write(world.mm, 0, 8);
    let before: Vec<_> = (0..8).map(|p| world.frame(BASE + p * PAGE_SIZE)).collect();
    assert_eq!(world.mremap(0, 8, 8, MOVE_TO, 3), Ok(BASE + 3 * PAGE_SIZE));
    let after: Vec<_> = (3..11).map(|p| world.frame(BASE + p * PAGE_SIZE)).collect();
    assert_eq!(before, after);
    assert_eq!(world.frame(BASE), None);
    assert_eq!(world.vmas(), 1);

    let linux = World::new(Policy::LINUX);
    linux.map(0, 8, RW);
    assert_eq!(linux.mremap(0, 8, 8, MOVE_TO, 3), Err(Errno::EINVAL));
}

#[test]
fn several_vmas_with_a_hole_grow_together() {
    let world = World::new(Policy::VMAREA);
    for (page, prot) in [(0, RW), (2, Prot::READ), (6, RW)] {
        world.map(page, 2, prot);
    }
    world.write(world.mm, 0, 2);
    // This mapping blocks growth in place, so that the whole range must move.
    world.map(8, 1, Prot::empty());
    let to = world.mremap(0, 8, 12, MremapFlags::MAYMOVE, 0).unwrap();
    assert_ne!(to, BASE);
    let r = world.space.mmap_read_lock(world.mm).unwrap();
    let moved: Vec<_> = r.vmas().filter(|v| v.range.start >= to).collect();
    let shape: Vec<_> = moved
        .iter()
        .map(|v| ((v.range.start - to) / PAGE_SIZE, v.range.pages()))
        .collect();
    assert_eq!(
        shape,
        [(0, 2), (2, 2), (6, 6)],
        "gaps are kept, the last one grew"
    );
    drop(r);

    let linux = World::new(Policy::LINUX);
    linux.map(0, 2, RW);
    linux.map(2, 2, Prot::READ);
    assert_eq!(
        linux.mremap(0, 4, 6, MremapFlags::MAYMOVE, 0),
        Err(Errno::EFAULT)
    );
}

/// If limits prevent a range from growing, `mremap` fails before it moves anything, even if the
/// destination overlaps the source or the range contains several VMAs.
#[test]
fn what_may_not_grow_stays_where_it_is() {
    let world = World::new(Policy::VMAREA);
    world.map(0, 2, RW);
    world.map(2, 2, Prot::READ);
    world.write(world.mm, 0, 2);
    let frame = world.frame(BASE);
    let set = |limits: fn(&mut Limits)| world.space.set_limits(world.mm, limits).unwrap();
    for (flags, to) in [(MOVE_TO, 1), (MremapFlags::MAYMOVE, 0)] {
        set(|limits| limits.address_space = 5 * PAGE_SIZE);
        assert_eq!(world.mremap(0, 4, 8, flags, to), Err(Errno::ENOMEM));
        set(|limits| limits.address_space = u64::MAX);
        assert_eq!((world.vmas(), world.frame(BASE)), (2, frame));
    }
    // The range ends in a hole, which cannot grow.
    let hole = world.mremap(0, 6, 8, MOVE_TO, 1);
    assert_eq!(hole, Err(Errno::EFAULT));
    assert_eq!((world.vmas(), world.frame(BASE)), (2, frame));
    world.mremap(0, 4, 8, MOVE_TO, 1).unwrap();
    assert_eq!(world.frame(BASE + PAGE_SIZE), frame);
    world.check();
}

/// Linux refuses to resize or move a range whose first VMA is sealed, even if only the last VMA
/// would grow.
#[test]
fn a_range_with_a_sealed_vma_neither_grows_nor_moves() {
    for sealed in [0, 2, 4] {
        for (flags, to) in [
            (MremapFlags::empty(), 0),
            (MremapFlags::MAYMOVE, 0),
            (MOVE_TO, 1),
        ] {
            let world = World::new(Policy::VMAREA);
            for (page, prot) in [(0, RW), (2, Prot::READ), (4, RW)] {
                world.map(page, 2, prot);
            }
            let seal = BASE + sealed * PAGE_SIZE;
            world.space.mseal(world.mm, seal, PAGE_SIZE, 0).unwrap();
            let before = world.ranges();
            let result = world.mremap(0, 6, 8, flags, to);
            assert_eq!(result, Err(Errno::EPERM), "page {sealed}, {flags:?}");
            assert_eq!(world.ranges(), before);
        }
    }
}

/// Creates two adjacent VMAs with separate anon_vmas; a child shares the pages of both.
fn apart_for_their_pages(world: &World) -> MmId {
    world.map(0, 2, RW);
    world.map(4, 2, RW);
    world.write(world.mm, 0, 2);
    world.write(world.mm, 4, 2);
    let child = world.space.fork(world.mm).unwrap();
    assert_eq!(world.mremap(4, 2, 2, MOVE_TO, 2), Ok(BASE + 2 * PAGE_SIZE));
    assert_eq!(world.vmas(), 2, "both sides are shared with the child");
    child
}

#[test]
fn the_collector_joins_what_had_to_wait() {
    let world = World::new(Policy::VMAREA);
    let child = apart_for_their_pages(&world);
    let none = Budget {
        pages_at_once: 0,
        borders: 0,
    };
    assert_eq!(world.space.collect(world.mm, none), Err(Errno::EINVAL));
    let no_pages = Budget {
        borders: 16,
        ..none
    };
    assert_eq!(world.space.collect(world.mm, no_pages), Err(Errno::EINVAL));
    assert_eq!(world.vmas(), 2, "a budget of nothing changes nothing");
    let kept = world.space.collect(world.mm, ALL).unwrap();
    assert_eq!(
        (kept.merged, world.vmas()),
        (0, 2),
        "the child still has the pages"
    );
    world.check();

    world.space.mm_exit(child).unwrap();
    let small = Budget {
        pages_at_once: 1,
        borders: 16,
    };
    assert_eq!(
        world.space.collect(world.mm, small).unwrap().merged,
        0,
        "two pages are more than one"
    );
    let done = world.space.collect(world.mm, ALL).unwrap();
    assert_eq!((done.merged, world.vmas()), (1, 1));
    world.check();
    assert_eq!(world.space.borders_noted(world.mm), 0);
}

#[test]
fn a_collector_that_comes_too_late_is_told_so() {
    let world = World::new(Policy::VMAREA);
    apart_for_their_pages(&world);
    world.space.mm_exit(world.mm).unwrap();
    assert_eq!(world.space.collect(world.mm, ALL), Err(Errno::ESRCH));
}

/// The collector runs in a separate thread until the address space is destroyed.
#[test]
fn a_collector_may_run_while_the_address_space_goes() {
    for _ in 0..50 {
        let world = World::new(Policy::VMAREA);
        let child = apart_for_their_pages(&world);
        world.space.mm_exit(child).unwrap();
        std::thread::scope(|scope| {
            let collector = scope.spawn(|| {
                loop {
                    if let Err(error) = world.space.collect(world.mm, ALL) {
                        return error;
                    }
                }
            });
            world.space.mm_exit(world.mm).unwrap();
            assert_eq!(collector.join().unwrap(), Errno::ESRCH);
        });
        world.check();
    }
}

#[test]
fn shared_pages_are_copied_within_the_budget_and_not_beyond() {
    let with_budget = |copy_budget| {
        let merging = vmarea::policy::Merging {
            copy_budget,
            ..Policy::VMAREA.merging
        };
        let world = World::new(Policy {
            merging,
            ..Policy::VMAREA
        });
        world.map(0, 2, RW);
        world.map(4, 2, RW);
        world.write(world.mm, 0, 2);
        world.write(world.mm, 4, 2);
        let child = world.space.fork(world.mm).unwrap();
        let frames = world.space.frames_in_use();
        world.mremap(4, 2, 2, MOVE_TO, 2).unwrap();
        let copied = world.space.frames_in_use() - frames;
        world.space.mm_exit(child).unwrap();
        world.check();
        (world.vmas(), copied)
    };
    assert_eq!(with_budget(1), (2, 0), "two pages are more than one");
    assert_eq!(with_budget(2), (1, 2));
}

#[test]
fn what_is_charged_joins_what_is_not_where_charges_are_free() {
    let tried = |policy, overcommit| {
        let system = System {
            overcommit,
            ..System::default()
        };
        let world = World::on(policy, system);
        let committed = |world: &World| {
            let r = world.space.mmap_read_lock(world.mm).unwrap();
            r.state().committed
        };
        world.map(0, 4, Prot::READ);
        assert_eq!(committed(&world), 0, "nobody can write there");
        world.map(4, 4, RW);
        world.write(world.mm, 4, 1);
        let start = BASE + 4 * PAGE_SIZE;
        world
            .space
            .mprotect(world.mm, start, 4 * PAGE_SIZE, Prot::READ, None)
            .unwrap();
        world.check();
        let (vmas, charged) = (world.vmas(), committed(&world));
        world.space.munmap(world.mm, BASE, 8 * PAGE_SIZE).unwrap();
        assert_eq!(committed(&world), 0, "all is given back");
        (vmas, charged)
    };
    let (free, strict) = (Overcommit::Always, Overcommit::Never(1 << 20));
    assert_eq!(tried(Policy::VMAREA, free), (1, 8));
    assert_eq!(tried(Policy::VMAREA, strict), (2, 4));
    assert_eq!(tried(Policy::LINUX, free), (2, 4));
}
