//! Reverse-map walks in some threads, while another thread merges and moves mappings.
//!
//! One thread moves pages and changes their protection, so that VMAs with different anon_vmas merge
//! and split in every way. Some pages are shared with a child, some have been shared, and others
//! never were. The other threads continuously walk the reverse map from each page. No page is ever
//! unmapped, so every walk must find as many mappings of a page as the first walk did.

use crate::rng::Rng;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vmarea::fault::Access;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{FrameId, MmId, VmRange};
use vmarea::vma::merge::MergeKind;
use vmarea::{Space, System};

const PAGE: u64 = vmarea::types::PAGE_SIZE;
const BASE: u64 = 0x10_0000_0000;
/// Number of pages in the arena.
const ARENA: u64 = 96;
/// Minimum number of steps before the test ends.
const STEPS: u64 = 40_000;
/// Minimum number of reverse-map walks before the test ends.
const WALKS: u64 = 200_000;
const WALKERS: usize = 2;

fn at(page: u64) -> u64 {
    BASE + page * PAGE
}

/// A process with several mappings under separate anon_vmas; a child shares some of their pages.
struct Stage {
    space: Space,
    mm: MmId,
    rng: Rng,
    /// For each page of the arena, whether it must remain mapped.
    live: Vec<bool>,
}

impl Stage {
    fn new(policy: Policy, seed: u64) -> Stage {
        let space: Space = Space::new(policy, System::default());
        let layout = Layout {
            mmap_base: 0x7f00_0000_0000,
            ..Layout::default()
        };
        let mm = space.mm_create(layout, Limits::default()).unwrap();
        let mut stage = Stage {
            space,
            mm,
            rng: Rng(seed),
            live: vec![false; ARENA as usize],
        };
        for piece in 0..5 {
            stage.piece(piece * 8);
        }
        stage.space.fork(mm).unwrap();
        // No longer shared: the parent has its own copies of these pages, under the old anon_vma.
        for page in 0..8 {
            stage.space.fault(mm, at(page), Access::Write).unwrap();
        }
        for piece in 6..11 {
            stage.piece(piece * 8);
        }
        stage
    }

    fn piece(&mut self, first: u64) {
        let request = MmapRequest {
            addr: at(first),
            len: 4 * PAGE,
            prot: Prot::READ | Prot::WRITE,
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
            ..MmapRequest::default()
        };
        self.space.mmap(self.mm, &request).unwrap();
        for page in first..first + 4 {
            self.space.fault(self.mm, at(page), Access::Write).unwrap();
            self.live[page as usize] = true;
        }
    }

    fn frames(&self) -> Vec<FrameId> {
        let r = self.space.mmap_read_lock(self.mm).unwrap();
        let mut frames = Vec::new();
        let all = VmRange::new(at(0), at(ARENA));
        r.pages()
            .for_each_ordered(all, |_, entry| frames.extend(entry.frame()));
        frames
    }
}

/// The state of the thread that changes the mappings.
struct Mover<'a> {
    space: &'a Space,
    mm: MmId,
    rng: Rng,
    live: Vec<bool>,
}

impl Mover<'_> {
    /// Changes the protection of a few pages in one VMA, or moves those pages to a range without
    /// live pages.
    fn step(&mut self) {
        let (from, len) = (self.rng.below(ARENA), 1 + self.rng.below(4));
        let to = self.rng.below(ARENA - len);
        let range = from as usize..(from + len) as usize;
        if from + len > ARENA || !self.live[range.clone()].iter().all(|live| *live) {
            return;
        }
        if self.rng.below(3) == 0 {
            let prot = Prot::from_bits_retain(if self.rng.below(3) == 0 { 1 } else { 3 });
            let changed = self
                .space
                .mprotect(self.mm, at(from), len * PAGE, prot, None);
            return changed.unwrap();
        }
        let place = to as usize..(to + len) as usize;
        if self.live[place.clone()].iter().any(|live| *live) {
            return;
        }
        let request = MremapRequest {
            addr: at(from),
            old_len: len * PAGE,
            new_len: len * PAGE,
            flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
            new_addr: at(to),
            ..MremapRequest::default()
        };
        // Older kernels cannot move several VMAs in one call.
        if self.space.mremap(self.mm, &request).is_ok() {
            self.live[range].fill(false);
            self.live[place].fill(true);
        }
    }
}

fn places(space: &Space, frame: FrameId) -> BTreeSet<(MmId, u64)> {
    let mut places = BTreeSet::new();
    space.rmap_walk(frame, |mapping| {
        places.insert((mapping.mm, mapping.addr));
    });
    places
}

/// Walks the reverse map until `done`; returns an error message if a walk misses a mapping.
fn walk(
    space: &Space,
    expected: &[(FrameId, usize)],
    done: &AtomicBool,
    walks: &AtomicU64,
) -> Result<(), String> {
    loop {
        // One more round after the end, so that there is at least one.
        let last = done.load(Ordering::Acquire);
        for &(frame, count) in expected {
            let found = places(space, frame);
            if found.len() != count {
                done.store(true, Ordering::Release);
                return Err(format!(
                    "{frame:?} is mapped {count} times, a walk found {found:x?}"
                ));
            }
        }
        walks.fetch_add(expected.len() as u64, Ordering::Relaxed);
        if last {
            return Ok(());
        }
    }
}

/// Walks the reverse map in several threads while the mover changes the mappings. Returns the
/// message of the first walk that missed a mapping, if any, and the number of walks.
fn walk_while_moving(mut mover: Mover<'_>, expected: &[(FrameId, usize)]) -> (Option<String>, u64) {
    let (done, walks) = (AtomicBool::new(false), AtomicU64::new(0));
    let space = mover.space;
    let wrong = std::thread::scope(|scope| {
        let walker = || walk(space, expected, &done, &walks);
        let walkers: Vec<_> = (0..WALKERS).map(|_| scope.spawn(walker)).collect();
        let mut steps = 0;
        while !done.load(Ordering::Acquire)
            && (steps < STEPS || walks.load(Ordering::Relaxed) < WALKS)
        {
            mover.step();
            steps += 1;
        }
        done.store(true, Ordering::Release);
        let mut walkers = walkers.into_iter();
        walkers.find_map(|walker| walker.join().unwrap().err())
    });
    (wrong, walks.into_inner())
}

#[test]
fn walks_find_every_mapping_at_any_moment() {
    let mut kinds = BTreeSet::new();
    for (n, policy) in [Policy::LINUX, Policy::THESIS, Policy::VMAREA]
        .into_iter()
        .enumerate()
    {
        let stage = Stage::new(policy, n as u64 + 1);
        let expected: Vec<_> = stage
            .frames()
            .into_iter()
            .map(|frame| (frame, places(&stage.space, frame).len()))
            .collect();
        assert!(
            expected.iter().any(|(_, count)| *count == 2),
            "some are the child's as well"
        );
        let Stage {
            space,
            mm,
            rng,
            live,
        } = stage;
        let mover = Mover {
            space: &space,
            mm,
            rng,
            live,
        };
        let (wrong, walks) = walk_while_moving(mover, &expected);
        assert_eq!(wrong, None, "{}", policy.name);
        space.validate_all().unwrap();
        let r = space.mmap_read_lock(mm).unwrap();
        let stats = &r.state().stats;
        println!(
            "{}: {walks} walks, {:?}",
            policy.name,
            stats.merges().collect::<Vec<_>>()
        );
        kinds.extend(stats.merges().filter(|(_, n)| *n > 0).map(|(kind, _)| kind));
        if policy.merging.update_pgoff {
            assert!(stats.pgoff_updates > 0);
        }
    }
    assert_eq!(
        kinds.len(),
        MergeKind::ALL.len(),
        "every kind of merge happened: {kinds:?}"
    );
}
