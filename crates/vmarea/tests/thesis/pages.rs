//! Sections 2.2, 2.4.1 and 2.7: results of the page checks, and page changes other than a new
//! anon_vma.
//!
//! ```text
//! AA..BB   written separately: two anon_vmas   mremap of B   AABB   one VMA if B may change
//! ```

use crate::world::{PAGE, RW, World, at};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;
use vmarea::fault::{Access, Faulted};
use vmarea::mm::{Layout, Limits};
use vmarea::page::Why;
use vmarea::page::migrate::Migrating;
use vmarea::policy::{Policy, SharingCheck};
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{Errno, FrameId, MmId, Platform, VmRange};
use vmarea::{HugePages, Space, System};

const NOTHING: MremapFlags = MremapFlags::empty();

fn swapping(policy: Policy) -> (World, MmId) {
    World::of(
        policy,
        System {
            swap: true,
            ..System::default()
        },
    )
}

/// Returns why the page at `at(page)` is considered shared by `check`.
fn why(w: &World, mm: MmId, page: u64, check: SharingCheck) -> Option<Why> {
    let space = w.machine.space();
    let r = space.mmap_read_lock(mm).unwrap();
    let vma = r.vma_lookup(at(page)).unwrap();
    let range = VmRange::new(at(page), at(page + 1));
    let found = r.page_tables().shared_pages(vma.anon_vma, range, check);
    found.first.map(|page| page.why)
}

#[test]
fn t2_2_a_page_is_shared_by_its_map_count_and_its_swap_count() {
    use SharingCheck::{Thesis, Truth};
    let (mut w, mm) = swapping(Policy::THESIS);
    w.map(mm, 0, 2, RW);
    w.write(mm, 0, 2);
    let of = |w: &World, check| [why(w, mm, 0, check), why(w, mm, 1, check)];
    assert_eq!([of(&w, Thesis), of(&w, Truth)], [[None; 2]; 2]);
    let child = w.fork(mm);
    assert_eq!(of(&w, Thesis), [Some(Why::Mapped); 2], "mapped twice");
    assert_eq!(of(&w, Truth), [Some(Why::Mapped); 2]);
    w.machine.space().swap_out(mm, at(1)).unwrap();
    assert_eq!(of(&w, Thesis)[1], Some(Why::Swapped), "two swap entries");
    assert_eq!(of(&w, Truth)[1], None, "no page that could change");
    w.machine.space().fault(mm, at(1), Access::Read).unwrap();
    assert_eq!(
        of(&w, Thesis)[1],
        Some(Why::Swapped),
        "mapped once, and once in swap"
    );
    w.write(child, 0, 2);
    assert_eq!(of(&w, Thesis), [None; 2], "each has its own pages");
}

/// A page in the swap cache: swapped out here, then faulted in by a child that has exited since.
///
/// The thesis considers the page shared although no other process maps it.
#[test]
fn t2_2_the_swap_cache_counts_as_sharing() {
    let vmas = [Policy::THESIS, Policy::VMAREA].map(|policy| {
        let (mut w, mm) = swapping(policy);
        w.map(mm, 0, 2, RW);
        w.write(mm, 0, 2);
        w.map(mm, 6, 2, RW);
        w.write(mm, 6, 2);
        let child = w.fork(mm);
        let space = w.machine.space();
        space.swap_out(mm, at(6)).unwrap();
        space.fault(child, at(6), Access::Read).unwrap();
        let in_cache = why(&w, mm, 6, SharingCheck::Thesis);
        assert_eq!(in_cache, Some(Why::Swapped));
        w.exit(child);
        w.shift(mm, 6, 2, 2, NOTHING).unwrap();
        (w.vmas(mm).len(), why(&w, mm, 2, SharingCheck::Thesis))
    });
    assert_eq!(vmas, [(2, Some(Why::Swapped)), (1, Some(Why::Swapped))]);
}

/// Huge pages whose page offset changes are split under the thesis, and stay whole under `vmarea`.
#[test]
fn t2_7_huge_pages_are_split_before_their_offset_changes() {
    const SLOT: u64 = vmarea::types::PMD_SIZE / PAGE;
    let huge = [Policy::LINUX, Policy::THESIS, Policy::VMAREA].map(|policy| {
        let (mut w, mm) = World::of(
            policy,
            System {
                huge_pages: HugePages::Always,
                ..System::default()
            },
        );
        w.checks = false;
        w.map(mm, 0, SLOT, RW);
        w.write(mm, 0, 1);
        w.shift(mm, 0, SLOT, 4 * SLOT, NOTHING).unwrap();
        w.check();
        let space = w.machine.space();
        let r = space.mmap_read_lock(mm).unwrap();
        r.pages().huge_pages()
    });
    assert_eq!(huge, [1, 0, 1], "under linux, thesis and vmarea");
}

/// The walk visits a huge page again after the check has split it: the pages of the child count.
#[test]
fn t2_7_a_split_huge_page_is_checked_page_by_page() {
    const SLOT: u64 = vmarea::types::PMD_SIZE / PAGE;
    let system = System {
        huge_pages: HugePages::Always,
        ..System::default()
    };
    let (mut w, mm) = World::of(Policy::THESIS, system);
    w.checks = false;
    w.map(mm, 0, SLOT, RW);
    w.write(mm, 0, 1);
    w.fork(mm);
    let space = w.machine.space();
    let r = space.mmap_read_lock(mm).unwrap();
    assert_eq!(r.pages().huge_pages(), 1);
    let vma = r.vma_lookup(at(0)).unwrap();
    let check = SharingCheck::Thesis;
    let found = r.page_tables().shared_pages(vma.anon_vma, vma.range, check);
    assert_eq!(found.first.map(|page| page.why), Some(Why::Mapped));
    assert_eq!(r.pages().huge_pages(), 0);
}

/// A platform that can wait for a migration to end.
#[derive(Default)]
struct Migrations {
    waits: Mutex<(bool, u64)>,
    ended: Condvar,
}

impl Migrations {
    fn end(&self) {
        self.waits.lock().unwrap().0 = true;
        self.ended.notify_all();
    }

    fn waits(&self) -> u64 {
        self.waits.lock().unwrap().1
    }
}

struct Waiting(Arc<Migrations>);

impl Platform for Waiting {
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
    fn wait_on_migration(&self, _: FrameId) -> bool {
        let mut waits = self.0.waits.lock().unwrap();
        waits.1 += 1;
        let done = self.0.ended.wait_while(waits, |(ended, _)| !*ended);
        drop(done.unwrap());
        true
    }
}

/// Creates two faulted mappings with a gap between them; starts to migrate a page of the second
/// mapping.
fn migrating(space: &Space) -> (MmId, Migrating) {
    let layout = Layout {
        mmap_base: 0x7f00_0000_0000,
        ..Layout::default()
    };
    let mm = space.mm_create(layout, Limits::default()).unwrap();
    for page in [0, 6] {
        let request = MmapRequest {
            addr: at(page),
            len: 2 * PAGE,
            prot: Prot::READ | Prot::WRITE,
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
            ..MmapRequest::default()
        };
        space.mmap(mm, &request).unwrap();
        for addr in [at(page), at(page + 1)] {
            assert_eq!(space.fault(mm, addr, Access::Write), Ok(Faulted::Done));
        }
    }
    let r = space.mmap_read_lock(mm).unwrap();
    let frame = r.pages().get(at(7)).frame().unwrap();
    drop(r);
    (mm, space.migrate_begin(frame).unwrap())
}

fn move_together(space: &Space, mm: MmId) -> usize {
    let request = MremapRequest {
        addr: at(6),
        old_len: 2 * PAGE,
        new_len: 2 * PAGE,
        flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
        new_addr: at(2),
        ..MremapRequest::default()
    };
    space.mremap(mm, &request).unwrap();
    space.mmap_read_lock(mm).unwrap().vmas().count()
}

#[test]
fn t2_4_1_the_walk_waits_for_a_migration() {
    for policy in [Policy::THESIS, Policy::VMAREA] {
        let migrations = Arc::new(Migrations::default());
        let platform = Box::new(Waiting(Arc::clone(&migrations)));
        let space = Space::with_platform(policy, System::default(), platform);
        let (mm, page) = migrating(&space);
        let vmas = thread::scope(|scope| {
            let moved = scope.spawn(|| move_together(&space, mm));
            while policy == Policy::THESIS && migrations.waits() == 0 && !moved.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(space.migrate_end(page).unwrap().is_some());
            migrations.end();
            moved.join().unwrap()
        });
        assert_eq!(vmas, 1, "{}: nothing is shared", policy.name);
        space.validate_all().unwrap();
    }
}

/// If the platform cannot wait for a migration, the migrating page is considered shared.
#[test]
fn t2_4_1_without_waiting_a_migrating_page_keeps_its_owner() {
    let space = Space::new(Policy::THESIS, System::default());
    let (mm, page) = migrating(&space);
    assert_eq!(move_together(&space, mm), 2);
    space.migrate_end(page).unwrap();
    space.validate_all().unwrap();
}
