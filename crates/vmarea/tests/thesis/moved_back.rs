//! Merges that change pages one by one: if a page cannot change, the earlier pages are changed
//! back, and the merge is abandoned.
//!
//! The page that cannot change is being migrated. Another thread starts the migration after the
//! merge has been decided on, so the check of the pages before the decision could not see it.

use crate::world::{PAGE, at};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use vmarea::fault::{Access, Faulted};
use vmarea::mm::{Layout, Limits};
use vmarea::policy::{Policy, SharingCheck};
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{FrameId, MmId};
use vmarea::vma::merge::{Attempt, CallKind, MergeOutcome, Observer, Relocation};
use vmarea::{Space, System};

const RW: Prot = Prot::READ.union(Prot::WRITE);
/// Pages that should change.
const PAGES: u64 = 6;

/// How far a merge has come that another thread has to disturb.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// No merge is to be disturbed.
    #[default]
    Off,
    /// The next merge that is decided on waits.
    Armed,
    /// A merge waits for the other thread.
    Decided,
}

/// Once armed, blocks the next merge attempt until the other thread has finished.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<Stage>, Condvar)>);

impl Gate {
    /// Sets the stage, and wakes the threads that wait for it.
    fn set(&self, stage: Stage) {
        let (now, changed) = &*self.0;
        *now.lock().unwrap() = stage;
        changed.notify_all();
    }

    /// Waits until the stage is not `stage` any more.
    fn passes(&self, stage: Stage) -> Stage {
        let (now, changed) = &*self.0;
        let now = now.lock().unwrap();
        *changed.wait_while(now, |now| *now == stage).unwrap()
    }

    fn is(&self, stage: Stage) -> bool {
        *self.0.0.lock().unwrap() == stage
    }
}

impl Observer for Gate {
    fn attempt(&self, attempt: &Attempt<'_>) {
        if attempt.verdict.plan.is_some() && self.is(Stage::Armed) {
            self.set(Stage::Decided);
            self.passes(Stage::Decided);
        }
    }
}

struct Scene {
    space: Space,
    mm: MmId,
    gate: Gate,
}

impl Scene {
    fn new() -> Scene {
        Scene::under(Policy::THESIS)
    }

    fn under(policy: Policy) -> Scene {
        let gate = Gate::default();
        let mut space = Space::new(policy, System::default());
        space.set_observer(Box::new(gate.clone()));
        let mm = space.mm_create(Layout::default(), Limits::default());
        let mm = mm.unwrap();
        Scene { space, mm, gate }
    }

    fn map(&self, page: u64, pages: u64) {
        let request = MmapRequest {
            addr: at(page),
            len: pages * PAGE,
            prot: RW,
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
            ..MmapRequest::default()
        };
        self.space.mmap(self.mm, &request).unwrap();
    }

    fn write(&self, page: u64, pages: u64) {
        for addr in (page..page + pages).map(at) {
            let faulted = self.space.fault(self.mm, addr, Access::Write);
            assert_eq!(faulted, Ok(Faulted::Done));
        }
    }

    /// Changes the protection of the [`PAGES`] that should change their owner.
    fn protect(&self, page: u64, prot: Prot) {
        let len = PAGES * PAGE;
        let done = self.space.mprotect(self.mm, at(page), len, prot, None);
        done.unwrap();
    }

    fn frame(&self, page: u64) -> FrameId {
        let r = self.space.mmap_read_lock(self.mm).unwrap();
        r.pages().get(at(page)).frame().unwrap()
    }

    fn vmas(&self) -> usize {
        self.space.mmap_read_lock(self.mm).unwrap().vmas().count()
    }

    /// Returns the number of merges, and how often merge attempts by `call` had this outcome.
    fn merges(&self, call: CallKind, outcome: MergeOutcome) -> (u64, u64) {
        let r = self.space.mmap_read_lock(self.mm).unwrap();
        let stats = &r.state().stats;
        let attempts = stats
            .attempts()
            .filter(|of| (of.0, of.1) == (call, outcome));
        (
            stats.merges().map(|(_, n)| n).sum(),
            attempts.map(|(.., n)| n).sum(),
        )
    }

    /// Runs `merge`; after its decision, another thread starts to migrate the page at `refuses`.
    fn refuse(&self, refuses: u64, merge: impl FnOnce()) {
        let frame = self.frame(refuses);
        self.gate.set(Stage::Armed);
        let migrating = thread::scope(|scope| {
            let other = scope.spawn(|| {
                let decided = self.gate.passes(Stage::Armed) == Stage::Decided;
                let migrating = decided.then(|| self.space.migrate_begin(frame));
                self.gate.set(Stage::Off);
                migrating
            });
            merge();
            // Without a decision to merge, nobody else would end the other thread's wait.
            if self.gate.is(Stage::Armed) {
                self.gate.set(Stage::Off);
            }
            other.join().unwrap()
        });
        let migrating = migrating.expect("the policy decides on the merge").unwrap();
        self.space.validate_all().unwrap();
        assert!(self.space.migrate_end(migrating).unwrap().is_some());
        self.space.validate_all().unwrap();
    }
}

/// The pages at page 600 move directly behind those at page 506, across a page-table boundary.
#[test]
fn t2_7_pages_that_have_moved_move_back() {
    moved_back(Policy::THESIS);
}

/// The same under the successor of the thesis, with the thesis's check of the pages.
#[test]
fn pages_that_have_been_relocated_move_back() {
    let mut policy = Policy::RELOCATE;
    policy.merging.sharing = SharingCheck::Thesis;
    moved_back(policy);
}

fn moved_back(policy: Policy) {
    let scene = || {
        let scene = Scene::under(policy);
        scene.map(506, 3);
        scene.write(506, 3);
        scene.map(600, PAGES);
        scene.write(600, PAGES);
        scene
    };
    let shift = |scene: &Scene| {
        let request = MremapRequest {
            addr: at(600),
            old_len: PAGES * PAGE,
            new_len: PAGES * PAGE,
            flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
            new_addr: at(509),
            ..MremapRequest::default()
        };
        assert_eq!(scene.space.mremap(scene.mm, &request), Ok(at(509)));
    };
    let (call, different) = (CallKind::MremapMove, MergeOutcome::AvDifferent);
    for page in 0..PAGES {
        let scene = scene();
        let (before, _) = scene.merges(call, different);
        scene.refuse(600 + page, || shift(&scene));
        assert_eq!(scene.merges(call, different), (before, 0), "page {page}");
        assert_eq!(scene.merges(call, MergeOutcome::AvFailed).1, 1);
        let r = scene.space.mmap_read_lock(scene.mm).unwrap();
        let [first, moved] = [506, 509].map(|page| r.vma_lookup(at(page)).unwrap());
        assert_ne!(first.id, moved.id, "page {page}: the merge is given up");
        assert_ne!(first.anon_vma, moved.anon_vma);
        assert_eq!(moved.pgoff().0, at(600) / PAGE, "page {page}");
        assert_eq!(r.pages().len(), 3 + PAGES);
        let given_up = |(what, n)| what == Relocation::GivenUp && n == 1;
        let relocations = &mut r.state().stats.relocations();
        assert_eq!(relocations.any(given_up), policy.merging.relocate);
    }
    let scene = scene();
    let (before, _) = scene.merges(call, different);
    shift(&scene);
    assert_eq!(scene.vmas(), 1, "all pages can change");
    assert_eq!(scene.merges(call, different), (before + 1, 1));
}

/// The pages from page 3 on become writable, and thereby get the anon_vma of those at page 0.
#[test]
fn t2_8_pages_that_have_changed_change_back() {
    let scene = || {
        let scene = Scene::new();
        scene.map(3, PAGES);
        scene.write(3, PAGES);
        scene.map(0, 2);
        scene.write(0, 2);
        scene.protect(3, Prot::READ);
        scene.map(2, 1);
        assert_eq!(scene.vmas(), 2);
        scene
    };
    let (call, different) = (CallKind::Mprotect, MergeOutcome::AvDifferent);
    for page in 0..PAGES {
        let scene = scene();
        let (before, failed) = scene.merges(call, MergeOutcome::AvFailed);
        scene.refuse(3 + page, || scene.protect(3, RW));
        assert_eq!(scene.vmas(), 2, "page {page}: the merge is given up");
        assert_eq!(scene.merges(call, different), (before, 0));
        assert_eq!(scene.merges(call, MergeOutcome::AvFailed).1, failed + 1);
    }
    let scene = scene();
    let (before, _) = scene.merges(call, different);
    scene.protect(3, RW);
    assert_eq!(scene.vmas(), 1, "all pages can change");
    assert_eq!(scene.merges(call, different), (before + 1, 1));
}

/// Three mappings become one: the pages of two change. If a page of the second cannot change, those
/// of the first change back as well.
#[test]
fn t2_8_the_pages_of_all_ranges_change_back() {
    let last = 3 + PAGES + 1;
    let scene = || {
        let scene = Scene::new();
        for (page, pages) in [(0, 2), (3, PAGES), (last, 2)] {
            scene.map(page, pages);
            scene.write(page, pages);
        }
        scene.protect(3, Prot::READ);
        scene.map(2, 1);
        scene.map(last - 1, 1);
        assert_eq!(scene.vmas(), 3);
        scene
    };
    for page in [3, 3 + PAGES - 1, last, last + 1] {
        let scene = scene();
        let owners = |scene: &Scene| {
            let r = scene.space.mmap_read_lock(scene.mm).unwrap();
            r.vmas().map(|vma| vma.anon_vma).collect::<Vec<_>>()
        };
        let before = owners(&scene);
        scene.refuse(page, || scene.protect(3, RW));
        assert_eq!(owners(&scene), before, "page {page}: the merge is given up");
    }
    let scene = scene();
    scene.protect(3, RW);
    assert_eq!(scene.vmas(), 1, "all pages can change");
}
