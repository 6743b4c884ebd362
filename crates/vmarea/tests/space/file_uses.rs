//! The platform is told when the last mapping of a file has gone, and the last one that can write.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use vmarea::prelude::*;
use vmarea::types::{File, FileId, FileKind};

const INODE: u64 = 7;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Notice {
    Created(u64),
    Unwritable(u64),
    Released(u64),
}

use Notice::{Created, Released, Unwritable};

/// What an embedder does when a notice about a file arrives.
type Act = Box<dyn Fn(Notice) + Send + Sync>;

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Notice>>>, Arc<Mutex<Option<Act>>>);

impl Told {
    fn note(&self, notice: Notice) {
        self.0.lock().unwrap().push(notice);
        if let Some(act) = &*self.1.lock().unwrap() {
            act(notice);
        }
    }

    fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Platform for Told {
    fn zero(&self, _: FrameId) -> Result<(), Errno> {
        Ok(())
    }
    fn copy(&self, _: FrameId, _: FrameId) -> Result<(), Errno> {
        Ok(())
    }
    fn copy_file(&self, _: FrameId, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }
    fn free(&self, _: FrameId) {}
    fn shared_anon(&self, inode: u64, _: u64) -> Result<(), Errno> {
        self.note(Created(inode));
        Ok(())
    }
    fn file_unwritable(&self, inode: u64) {
        self.note(Unwritable(inode));
    }
    fn file_released(&self, inode: u64) {
        self.note(Released(inode));
    }
}

fn machine() -> (Arc<Space>, MmId, Told) {
    let told = Told::default();
    let platform = Box::new(told.clone());
    let space = Space::with_platform(Policy::LINUX, System::default(), platform);
    let mm = new_mm(&space);
    (Arc::new(space), mm, told)
}

fn new_mm(space: &Space) -> MmId {
    let layout = Layout {
        mmap_base: 0x7fff_0000_0000,
        ..Layout::default()
    };
    space.mm_create(layout, Limits::default()).unwrap()
}

fn shared(pages: u64) -> MmapRequest {
    MmapRequest {
        flags: MapFlags::SHARED | MapFlags::ANONYMOUS,
        ..MmapRequest::anonymous(pages * PAGE_SIZE)
    }
}

fn of_file(flags: MapFlags, pages: u64) -> MmapRequest {
    MmapRequest {
        flags,
        file: Some(File::read_write(FileId(1), INODE, FileKind::Regular)),
        ..MmapRequest::anonymous(pages * PAGE_SIZE)
    }
}

#[test]
fn shared_anonymous_memory_ends_with_its_last_part() {
    let (space, mm, told) = machine();
    let at = space.mmap(mm, &shared(3)).unwrap();
    let [Created(inode)] = told.take()[..] else {
        panic!("a file");
    };
    space.munmap(mm, at + PAGE_SIZE, PAGE_SIZE).unwrap();
    let child = space.fork(mm).unwrap();
    space.mm_exit(mm).unwrap();
    let mappings = space.file_mappings(inode);
    assert_eq!((mappings.all, mappings.writable), (2, 2));
    space.munmap(child, at, PAGE_SIZE).unwrap();
    assert_eq!(told.take(), []);
    // A mapping over the last part ends it, too.
    let over = MmapRequest {
        addr: at,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
        ..MmapRequest::anonymous(3 * PAGE_SIZE)
    };
    space.mmap(child, &over).unwrap();
    assert_eq!(told.take(), [Unwritable(inode), Released(inode)]);
    space.validate_all().unwrap();
}

#[test]
fn a_move_or_a_merge_ends_nothing() {
    let (space, mm, told) = machine();
    let at = space.mmap(mm, &of_file(MapFlags::PRIVATE, 4)).unwrap();
    space.mprotect(mm, at, PAGE_SIZE, Prot::READ, None).unwrap();
    let both = Prot::READ | Prot::WRITE;
    space.mprotect(mm, at, PAGE_SIZE, both, None).unwrap();
    assert_eq!(space.file_mappings(INODE).all, 1);
    let move_away = MremapRequest {
        addr: at,
        old_len: 4 * PAGE_SIZE,
        new_len: 4 * PAGE_SIZE,
        flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
        new_addr: at - 64 * PAGE_SIZE,
        ..MremapRequest::default()
    };
    space.mremap(mm, &move_away).unwrap();
    assert_eq!(told.take(), []);
    space.mm_exit(mm).unwrap();
    assert_eq!(told.take(), [Released(INODE)]);
}

#[test]
fn the_last_writer_is_told_before_the_last_mapping() {
    let (space, mm, told) = machine();
    let writer = space.mmap(mm, &of_file(MapFlags::SHARED, 1)).unwrap();
    let reader = space.mmap(mm, &of_file(MapFlags::PRIVATE, 1)).unwrap();
    space
        .mprotect(mm, writer, PAGE_SIZE, Prot::READ, None)
        .unwrap();
    assert_eq!(told.take(), [], "it can be made writable again");
    space.munmap(mm, writer, PAGE_SIZE).unwrap();
    assert_eq!(told.take(), [Unwritable(INODE)]);
    space.munmap(mm, reader, PAGE_SIZE).unwrap();
    assert_eq!(told.take(), [Released(INODE)]);
}

#[test]
fn a_reference_keeps_a_file() {
    let (space, mm, told) = machine();
    assert_eq!(space.file_put(INODE), Err(Errno::EINVAL));
    space.file_get(INODE).unwrap();
    let at = space.mmap(mm, &of_file(MapFlags::PRIVATE, 1)).unwrap();
    space.munmap(mm, at, PAGE_SIZE).unwrap();
    assert_eq!(told.take(), []);
    space.file_put(INODE).unwrap();
    assert_eq!(told.take(), [Released(INODE)]);
    assert_eq!(space.file_put(INODE), Err(Errno::EINVAL));
}

/// No lock is held, so the platform may do what any caller may.
#[test]
fn a_notice_may_call_back() {
    let (space, mm, told) = machine();
    let back: Weak<Space> = Arc::downgrade(&space);
    let act = move |notice| {
        if let Released(_) = notice {
            let space = back.upgrade().expect("the machine runs");
            let at = space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE)).unwrap();
            space.fault(mm, at, Access::Write).unwrap();
            let child = space.fork(mm).unwrap();
            space.mm_exit(child).unwrap();
        }
    };
    *told.1.lock().unwrap() = Some(Box::new(act));
    let at = space.mmap(mm, &shared(1)).unwrap();
    space.munmap(mm, at, PAGE_SIZE).unwrap();
    assert_eq!(space.maps(mm).count(), 1);
    *told.1.lock().unwrap() = None;
    space.validate_all().unwrap();
}

/// An embedder's table of files in use: a file is in the table as long as it is used, although
/// notices and calls overtake each other.
#[test]
fn a_table_of_files_follows_the_notices() {
    let (space, first, told) = machine();
    let table: Arc<Mutex<BTreeSet<u64>>> = Arc::default();
    let release = {
        let table = Arc::clone(&table);
        let space = Arc::downgrade(&space);
        move |notice| {
            let Released(inode) = notice else { return };
            let mut table = table.lock().unwrap();
            if !space
                .upgrade()
                .expect("the machine runs")
                .file_is_used(inode)
            {
                table.remove(&inode);
            }
        }
    };
    *told.1.lock().unwrap() = Some(Box::new(release));
    let map_and_unmap = || {
        let mm = new_mm(&space);
        for _ in 0..2000 {
            space.file_get(INODE).unwrap();
            table.lock().unwrap().insert(INODE);
            let at = space.mmap(mm, &of_file(MapFlags::SHARED, 1)).unwrap();
            space.file_put(INODE).unwrap();
            assert!(table.lock().unwrap().contains(&INODE), "it is mapped");
            space.munmap(mm, at, PAGE_SIZE).unwrap();
        }
        space.mm_exit(mm).unwrap();
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(map_and_unmap);
        }
    });
    assert!(table.lock().unwrap().is_empty());
    *told.1.lock().unwrap() = None;
    space.mm_exit(first).unwrap();
    space.validate_all().unwrap();
}
