//! Address spaces whose lookups use one kind of cache, and the threads that make the lookups.
//!
//! The cache's data is stored next to the address spaces and threads, as in an embedder. The core's
//! lookup observer notifies the cache of changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use vmarea::lookup::{Change, Observer, Vmas};
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::{MmId, VmaId};
use vmarea::{Space, System};
use vmarea_experiments::vma_cache::{Cache, Lookup, find_vma};

pub const PAGE: u64 = 4096;
pub const BASE: u64 = 0x10_0000_0000;
pub const NONE: Prot = Prot::empty();

pub fn at(page: u64) -> u64 {
    BASE + page * PAGE
}

/// Address spaces whose VMAs are looked up in the cache `C`, and the spaces' threads.
pub struct Fleet<C: Cache> {
    pub space: Space,
    pub shared: Arc<Shared<C>>,
    pub threads: Vec<Option<(MmId, C::Thread)>>,
}

/// Data that the cache stores per address space, which an observer updates after changes.
pub struct Shared<C: Cache>(pub Mutex<HashMap<MmId, C::Mm>>);

struct Telling<C: Cache>(Arc<Shared<C>>);

impl<C: Cache> Observer for Telling<C> {
    fn looked_up(&self, _: &dyn Vmas, _: u64, _: Option<VmaId>) {}

    fn changed(&self, vmas: &dyn Vmas, change: Change) {
        let all = self.0.0.lock().unwrap();
        let Some(shared) = all.get(&vmas.mm()) else {
            return;
        };
        match change {
            Change::Unlinked { vma, prev } => C::unlinked(shared, vma, prev),
            Change::Unmapped => C::unmapped(shared),
            Change::Linked(_) | Change::Resized { .. } => {}
        }
    }
}

impl<C: Cache + 'static> Fleet<C> {
    pub fn new() -> Self {
        let shared = Arc::new(Shared(Mutex::default()));
        let mut space = Space::new(Policy::LINUX, System::default());
        space.set_lookup_observer(Box::new(Telling::<C>(Arc::clone(&shared))));
        Fleet {
            space,
            shared,
            threads: Vec::new(),
        }
    }

    pub fn mm(&self) -> MmId {
        let mm = self
            .space
            .mm_create(Layout::default(), Limits::default())
            .unwrap();
        let new = self
            .shared
            .0
            .lock()
            .unwrap()
            .insert(mm, C::Mm::default())
            .is_none();
        assert!(new, "an id is used once");
        mm
    }

    pub fn end(&self, mm: MmId) {
        self.space.mm_exit(mm).unwrap();
        self.shared.0.lock().unwrap().remove(&mm);
    }

    /// Lets a thread run in the address space `mm`; the thread is new or has called `execve`.
    pub fn enter(&mut self, thread: usize, mm: MmId) {
        if self.threads.len() <= thread {
            self.threads.resize_with(thread + 1, || None);
        }
        let (now, own) = self.threads[thread].get_or_insert_with(|| (mm, C::Thread::default()));
        *now = mm;
        C::enter(&self.shared.0.lock().unwrap()[&mm], own, mm);
    }

    /// Looks up a page in the thread's own address space.
    pub fn own(&mut self, thread: usize, page: u64) -> Lookup {
        let mm = self.threads[thread].as_ref().unwrap().0;
        self.look(thread, mm, page)
    }

    /// Looks up a page of `mm` in `thread`, and compares the result with that of the index.
    pub fn look(&mut self, thread: usize, mm: MmId, page: u64) -> Lookup {
        let addr = at(page) + 7;
        let guard = self.space.mmap_read_lock(mm).unwrap();
        let all = self.shared.0.lock().unwrap();
        let (_, own) = self.threads[thread].as_mut().unwrap();
        let answer = find_vma::<C, _>(&all[&mm], own, &guard, addr);
        let found = answer.found().map(|(vma, _)| vma);
        assert_eq!(found, guard.find(addr), "{} at page {page}", C::NAME);
        if let Lookup::Hit(vma, range) = answer {
            assert_eq!(guard.range(vma), Some(range));
            assert!(range.contains(addr));
        }
        answer
    }

    pub fn hits(&mut self, thread: usize, page: u64) -> bool {
        matches!(self.own(thread, page), Lookup::Hit(..))
    }

    /// Maps pages; mappings with different protections do not merge.
    pub fn map(&self, mm: MmId, page: u64, pages: u64, prot: Prot) {
        let request = MmapRequest {
            addr: at(page),
            len: pages * PAGE,
            prot,
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
            ..MmapRequest::default()
        };
        self.space.mmap(mm, &request).unwrap();
    }

    pub fn protect(&self, mm: MmId, page: u64, pages: u64, prot: Prot) {
        let (addr, len) = (at(page), pages * PAGE);
        self.space.mprotect(mm, addr, len, prot, None).unwrap();
    }

    pub fn unmap(&self, mm: MmId, page: u64, pages: u64) {
        self.space.munmap(mm, at(page), pages * PAGE).unwrap();
    }
}

/// Creates an address space with one thread, and maps the first two of every four pages.
pub fn spaced<C: Cache + 'static>(mappings: u64) -> (Fleet<C>, MmId) {
    let mut fleet = Fleet::<C>::new();
    let mm = fleet.mm();
    fleet.enter(0, mm);
    for n in 0..mappings {
        fleet.map(mm, n * 4, 2, Prot::READ);
    }
    (fleet, mm)
}
