//! Pages whose anon_vma changes in a merge while other threads walk the reverse map or lock the
//! pages' frames.
//!
//! The lower VMA has many pages, and the upper VMA has a page that a child shares. When the VMAs
//! merge, the upper VMA's anon_vma becomes the owner of the lower VMA's pages, and the lower VMA's
//! old anon_vma is freed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vmarea::fault::Access;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{AnonVmaId, FrameId, MmId};
use vmarea::{Space, System};

const PAGE: u64 = vmarea::types::PAGE_SIZE;
/// Number of pages whose anon_vma changes in the merge.
const MANY: u64 = 4096;
/// Number of pages that belong to an unrelated anon_vma.
const OTHERS: u64 = 64;
const START: u64 = 0x10_0000_0000;
const END: u64 = START + MANY * PAGE;
const AWAY: u64 = 0x20_0000_0000;
const ELSEWHERE: u64 = 0x30_0000_0000;

/// Two neighbouring VMAs that merge as soon as the upper one becomes writable.
struct Neighbours {
    space: Space,
    mm: MmId,
}

impl Neighbours {
    fn new() -> Neighbours {
        let space: Space = Space::new(Policy::VMAREA, System::default());
        let mm = space.mm_create(Layout::default(), Limits::default());
        let mm = mm.unwrap();
        let both = Neighbours { space, mm };
        both.map(END, 1);
        both.space.fork(mm).unwrap();
        both.map(ELSEWHERE, OTHERS);
        both.protect(Prot::READ);
        both.map(AWAY, MANY);
        let request = MremapRequest {
            addr: AWAY,
            old_len: MANY * PAGE,
            new_len: MANY * PAGE,
            flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
            new_addr: START,
            ..MremapRequest::default()
        };
        both.space.mremap(mm, &request).unwrap();
        both
    }

    fn map(&self, addr: u64, pages: u64) {
        let request = MmapRequest {
            addr,
            len: pages * PAGE,
            prot: Prot::READ | Prot::WRITE,
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
            ..MmapRequest::default()
        };
        self.space.mmap(self.mm, &request).unwrap();
        for page in 0..pages {
            let faulted = self.space.fault(self.mm, addr + page * PAGE, Access::Write);
            faulted.unwrap();
        }
    }

    fn protect(&self, prot: Prot) {
        let done = self.space.mprotect(self.mm, END, PAGE, prot, None);
        done.unwrap();
    }

    /// Merges the two VMAs; the anon_vma of the upper one survives.
    fn join(&self) {
        let survives = self.anon_vma(END);
        assert_ne!(self.anon_vma(START), survives);
        self.protect(Prot::READ | Prot::WRITE);
        assert_eq!(self.anon_vma(START), survives);
    }

    fn anon_vma(&self, addr: u64) -> Option<AnonVmaId> {
        let r = self.space.mmap_read_lock(self.mm).unwrap();
        r.find_vma(addr).unwrap().anon_vma
    }

    fn frame(&self, addr: u64) -> FrameId {
        let r = self.space.mmap_read_lock(self.mm).unwrap();
        r.pages().get(addr).frame().unwrap()
    }

    fn mappings(&self, frame: FrameId) -> usize {
        let mut found = 0;
        self.space.rmap_walk(frame, |_| found += 1);
        found
    }
}

#[test]
fn a_walk_finds_them_meanwhile() {
    for _ in 0..10 {
        let both = Neighbours::new();
        // Walks of pages with an unrelated anon_vma do not wait for the merge, and reach the last
        // page while it runs.
        let mut frames: Vec<_> = (0..OTHERS)
            .map(|n| both.frame(ELSEWHERE + n * PAGE))
            .collect();
        frames.push(both.frame(END - PAGE));
        let (done, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let walker = scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    let missed = frames.iter().find(|frame| both.mappings(**frame) != 1);
                    assert_eq!(missed, None, "mapped, and not found");
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            while rounds.load(Ordering::Relaxed) == 0 && !walker.is_finished() {
                std::hint::spin_loop();
            }
            both.join();
            done.store(true, Ordering::Release);
        });
        both.space.validate_all().unwrap();
    }
}

#[test]
fn one_that_others_hold_for_a_moment_takes_it_as_well() {
    for _ in 0..60 {
        let both = Neighbours::new();
        let (done, held) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                // Both threads try to migrate the page. While one migrates it, the other repeatedly
                // locks the frame for a moment.
                scope.spawn(|| {
                    while !done.load(Ordering::Acquire) {
                        let frame = both.frame(END - PAGE);
                        for _ in 0..1000 {
                            if let Ok(migrating) = both.space.migrate_begin(frame) {
                                both.space.migrate_end(migrating).unwrap();
                            }
                        }
                        held.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while held.load(Ordering::Relaxed) < 4 {
                std::hint::spin_loop();
            }
            both.join();
            done.store(true, Ordering::Release);
        });
        both.space.validate_all().unwrap();
        assert_eq!(both.mappings(both.frame(END - PAGE)), 1);
    }
}
