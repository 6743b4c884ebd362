//! Page faults on file pages that are not in memory: the platform starts to read the page, the
//! fault ends, and is resumed once the page is in the page cache.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread;
use vmarea::prelude::*;
use vmarea::syscall::madvise::Advice;
use vmarea::types::{File, FileId, FileKind};

const BASE: u64 = 0x10_0000_0000;
const LEN: u64 = 8 * PAGE_SIZE;

/// The file pages that are in memory, each as its inode and index.
#[derive(Debug, Default)]
struct Cache(Mutex<BTreeSet<(u64, u64)>>);

impl Cache {
    fn bring(&self, page: NeedPage) {
        self.0.lock().unwrap().insert((page.inode, page.index));
    }

    fn drop_all(&self) {
        self.0.lock().unwrap().clear();
    }

    fn need(&self, inode: u64, index: u64) -> Result<(), Errno> {
        match self.0.lock().unwrap().contains(&(inode, index)) {
            true => Ok(()),
            false => Err(Errno::EAGAIN),
        }
    }
}

struct Reading(Arc<Cache>);

impl Platform for Reading {
    fn zero(&self, _: FrameId) -> Result<(), Errno> {
        Ok(())
    }
    fn copy(&self, _: FrameId, _: FrameId) -> Result<(), Errno> {
        Ok(())
    }
    fn copy_file(&self, _: FrameId, inode: u64, index: u64) -> Result<(), Errno> {
        self.0.need(inode, index)
    }
    fn free(&self, _: FrameId) {}
    fn file_bring(&self, inode: u64, index: u64) -> Result<(), Errno> {
        self.0.need(inode, index)
    }
}

struct World {
    space: Space,
    cache: Arc<Cache>,
    mm: MmId,
}

impl World {
    fn new() -> World {
        let cache = Arc::new(Cache::default());
        let platform = Box::new(Reading(cache.clone()));
        let mut space = Space::with_platform(Policy::LINUX, System::default(), platform);
        space.count_lookups();
        let mm = space.mm_create(Layout::default(), Limits::default());
        let mm = mm.unwrap();
        World { space, cache, mm }
    }

    /// Creates a machine with a mapping of file 1 at `BASE`.
    fn with(kind: MapFlags) -> World {
        let world = World::new();
        world.map(1, kind);
        world
    }

    fn map(&self, inode: u64, kind: MapFlags) {
        let file = File::read_write(FileId(inode), inode, FileKind::Shmem);
        let request = MmapRequest {
            addr: BASE,
            len: LEN,
            prot: Prot::READ | Prot::WRITE,
            flags: kind | MapFlags::FIXED,
            file: Some(file),
            ..MmapRequest::default()
        };
        assert_eq!(self.space.mmap(self.mm, &request), Ok(BASE));
    }

    fn fault(&self, addr: u64, access: Access) -> Faulted {
        self.space.fault(self.mm, addr, access).unwrap()
    }

    /// Faults on page `index` of the mapping, which must not be in the page cache.
    fn need(&self, index: u64, access: Access) -> NeedPage {
        let addr = BASE + index * PAGE_SIZE;
        assert_eq!(self.fault(addr, access), Faulted::NeedPage);
        self.space.needed_page(self.mm, addr).unwrap()
    }

    fn again(&self, addr: u64, access: Access, page: NeedPage) -> Faulted {
        let faulted = self.space.fault_again(self.mm, addr, access, page.ticket);
        self.space.validate_all().unwrap();
        faulted.unwrap()
    }

    /// Returns the number of times that faults have searched for a VMA.
    fn lookups(&self) -> u64 {
        self.space.lookup_counts(self.mm).0
    }
}

#[test]
fn a_fault_goes_on_without_a_search() {
    for (kind, access) in [
        (MapFlags::SHARED, Access::Read),
        (MapFlags::SHARED, Access::Write),
        (MapFlags::PRIVATE, Access::Read),
        (MapFlags::PRIVATE, Access::Write),
    ] {
        let world = World::with(kind);
        let page = world.need(3, access);
        assert_eq!((page.inode, page.index), (1, 3));
        let frames = world.space.frames_in_use();
        assert_eq!(frames, 0, "a fault that ends without a page keeps no frame");
        world.cache.bring(page);
        let before = world.lookups();
        let addr = BASE + 3 * PAGE_SIZE;
        assert_eq!(world.again(addr, access, page), Faulted::Done);
        assert_eq!(world.lookups(), before);
        assert_eq!(world.fault(addr, access), Faulted::Spurious);
    }
}

#[test]
fn a_page_that_has_left_the_cache_is_needed_again() {
    let world = World::with(MapFlags::PRIVATE);
    let page = world.need(0, Access::Read);
    assert_eq!(world.again(BASE, Access::Read, page), Faulted::NeedPage);
    world.cache.bring(page);
    assert_eq!(world.again(BASE, Access::Read, page), Faulted::Done);
    // The write copies the page that is mapped.
    world.cache.drop_all();
    assert_eq!(world.need(0, Access::Write), page);
    world.cache.bring(page);
    assert_eq!(world.again(BASE, Access::Write, page), Faulted::Done);
}

#[test]
fn a_read_may_go_on_as_a_write() {
    let world = World::with(MapFlags::PRIVATE);
    let page = world.need(0, Access::Read);
    world.cache.bring(page);
    assert_eq!(world.again(BASE, Access::Write, page), Faulted::Done);
}

/// An action of another thread before the page is in memory, and the resumed fault's outcome.
type Between = (fn(&World), Faulted);

#[test]
fn a_changed_mapping_decides_anew() {
    let cases: [Between; 5] = [
        (
            |world| world.space.munmap(world.mm, BASE, LEN).unwrap(),
            Faulted::NoMapping,
        ),
        (
            |world| {
                let none = Prot::empty();
                let done = world.space.mprotect(world.mm, BASE, LEN, none, None);
                done.unwrap();
            },
            Faulted::NoAccess,
        ),
        (
            |world| {
                let read = Prot::READ;
                let half = world.space.mprotect(world.mm, BASE, LEN / 2, read, None);
                half.unwrap();
            },
            Faulted::Done,
        ),
        (
            |world| {
                let request = MremapRequest {
                    addr: BASE,
                    old_len: LEN,
                    new_len: LEN,
                    flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
                    new_addr: BASE + 4 * LEN,
                    ..MremapRequest::default()
                };
                world.space.mremap(world.mm, &request).unwrap();
            },
            Faulted::NoMapping,
        ),
        // The file is mapped again in the same place, by another VMA.
        (|world| world.map(1, MapFlags::SHARED), Faulted::Done),
    ];
    for (number, (between, answer)) in cases.into_iter().enumerate() {
        let world = World::with(MapFlags::SHARED);
        let page = world.need(0, Access::Read);
        world.cache.bring(page);
        between(&world);
        let answered = world.again(BASE, Access::Read, page);
        assert_eq!(answered, answer, "case {number}");
    }
}

#[test]
fn another_file_in_its_place_needs_its_own_page() {
    let world = World::with(MapFlags::SHARED);
    let page = world.need(0, Access::Read);
    world.cache.bring(page);
    world.map(2, MapFlags::SHARED);
    let before = world.lookups();
    let again = world.again(BASE, Access::Read, page);
    assert_eq!(again, Faulted::NeedPage, "file 1 is not file 2");
    assert_ne!(world.lookups(), before, "the fault started again");
    let other = world.space.needed_page(world.mm, BASE).unwrap();
    assert_eq!((other.inode, other.index), (2, 0));
    assert_ne!(other.ticket, page.ticket);
    world.cache.bring(other);
    assert_eq!(world.again(BASE, Access::Read, other), Faulted::Done);
}

#[test]
fn a_call_that_populates_cannot_wait() {
    let world = World::with(MapFlags::PRIVATE);
    let populate = || {
        let advice = Advice::PopulateWrite;
        world.space.madvise(world.mm, BASE, PAGE_SIZE, advice)
    };
    assert_eq!(populate(), Err(Errno::EAGAIN));
    world.space.validate_all().unwrap();
    let page = world.need(0, Access::Write);
    world.cache.bring(page);
    assert_eq!(populate(), Ok(()));
}

/// Threads start and resume faults while another thread replaces the mapping and drops pages.
#[test]
fn mappings_change_while_pages_are_read() {
    let world = World::with(MapFlags::PRIVATE);
    thread::scope(|scope| {
        for access in [Access::Read, Access::Write] {
            let world = &world;
            scope.spawn(move || {
                for round in 0..400 {
                    let addr = BASE + round % 8 * PAGE_SIZE;
                    let mut faulted = world.fault(addr, access);
                    while faulted == Faulted::NeedPage {
                        let Some(page) = world.space.needed_page(world.mm, addr) else {
                            faulted = world.fault(addr, access);
                            continue;
                        };
                        world.cache.bring(page);
                        let again = world.space.fault_again(world.mm, addr, access, page.ticket);
                        faulted = again.unwrap();
                    }
                    assert!(
                        matches!(
                            faulted,
                            Faulted::Done | Faulted::Spurious | Faulted::NoMapping
                        ),
                        "{faulted:?}"
                    );
                }
            });
        }
        for round in 0..200 {
            world.space.munmap(world.mm, BASE, LEN).unwrap();
            world.cache.drop_all();
            world.map(1 + round % 2, MapFlags::PRIVATE);
        }
    });
    world.space.validate_all().unwrap();
    world.space.mm_exit(world.mm).unwrap();
    assert_eq!(world.space.frames_in_use(), 0);
}
