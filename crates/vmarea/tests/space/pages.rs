//! Random calls, mixed with swap-outs, KSM merges, migrations and huge pages, on real bytes.
//!
//! A simple model stores the expected bytes of each page of each process. Every invariant is
//! checked after each step. After some steps, every page of every process is read and compared with
//! the model.

use crate::rng::Rng;
use std::collections::BTreeMap;
use vmarea::fault::Faulted;
use vmarea::mm::{Layout, Limits};
use vmarea::page::migrate::Migrating;
use vmarea::policy::Policy;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{Errno, FrameId, MmId, VmRange};
use vmarea::{HugePages, System};
use vmarea_soft_platform::Machine;

const PAGE: u64 = vmarea::types::PAGE_SIZE;
const HUGE: u64 = vmarea::types::PMD_SIZE;
const ARENA: u64 = 0x10_0000_0000;

/// The expected first eight bytes of each page that has been written to, by address.
type Bytes = BTreeMap<u64, u64>;

/// The size of the arena, and the granularity of the steps.
#[derive(Clone, Copy)]
struct Scale {
    /// Size of the arena in pages.
    arena: u64,
    /// Most addresses and lengths are multiples of this number of bytes.
    unit: u64,
}

struct World {
    machine: Machine,
    rng: Rng,
    scale: Scale,
    mms: Vec<(MmId, Bytes)>,
    migrating: Vec<Migrating>,
    written: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl World {
    fn new(policy: Policy, seed: u64, scale: Scale, huge_pages: HugePages) -> Self {
        let system = System {
            swap: true,
            huge_pages,
            ..System::default()
        };
        let machine = Machine::new(policy, system);
        let layout = Layout {
            mmap_base: 0x7f00_0000_0000,
            ..Layout::default()
        };
        let mm = machine
            .space()
            .mm_create(layout, Limits::default())
            .unwrap();
        Self {
            machine,
            rng: Rng(seed),
            scale,
            mms: vec![(mm, Bytes::new())],
            migrating: Vec::new(),
            written: 0,
            counts: BTreeMap::new(),
        }
    }

    fn addr(&mut self) -> u64 {
        let addr = ARENA + self.rng.below(self.scale.arena) * PAGE;
        if self.rng.below(4) == 0 {
            addr
        } else {
            addr / self.scale.unit * self.scale.unit
        }
    }

    fn len(&mut self) -> u64 {
        if self.rng.below(4) == 0 {
            (1 + self.rng.below(8)) * PAGE
        } else {
            (1 + self.rng.below(4)) * self.scale.unit
        }
    }

    fn count(&mut self, what: &'static str, done: bool) {
        if done {
            *self.counts.entry(what).or_default() += 1;
        }
    }

    fn forget(&mut self, at: usize, range: VmRange) {
        let bytes = &mut self.mms[at].1;
        let gone: Vec<u64> = bytes
            .range(range.start..range.end)
            .map(|(a, _)| *a)
            .collect();
        for addr in gone {
            bytes.remove(&addr);
        }
    }

    fn mapped(&self, at: usize, range: VmRange) -> bool {
        let r = self.machine.space().mmap_read_lock(self.mms[at].0).unwrap();
        let mut addr = range.start;
        while addr < range.end {
            match r.vma_lookup(addr) {
                Some(vma) => addr = vma.range.end,
                None => return false,
            }
        }
        true
    }

    /// Picks a random frame that a randomly chosen process maps.
    fn any_frame(&mut self) -> Option<FrameId> {
        let at = self.rng.below(self.mms.len() as u64) as usize;
        let r = self.machine.space().mmap_read_lock(self.mms[at].0).unwrap();
        let mut frames = Vec::new();
        let all = VmRange::new(0, u64::MAX);
        r.pages()
            .for_each_ordered(all, |_, entry| frames.extend(entry.frame()));
        if frames.is_empty() {
            return None;
        }
        Some(frames[self.rng.below(frames.len() as u64) as usize])
    }

    fn step(&mut self) {
        let at = self.rng.below(self.mms.len() as u64) as usize;
        match self.rng.below(32) {
            0..=2 => self.mmap(at),
            3 => self.munmap(at),
            4 | 5 => self.mprotect(at),
            6..=8 => self.mremap(at),
            9 => self.discard(at),
            10 | 11 => self.advise(at),
            12 if self.mms.len() < 4 => self.fork(at),
            13 if self.mms.len() > 1 && self.rng.below(3) == 0 => {
                let (mm, _) = self.mms.swap_remove(at);
                self.machine.space().mm_exit(mm).unwrap();
            }
            14..=16 => self.swap_out(),
            17 | 18 => self.merge_equal(),
            19 | 20 => self.migrate(),
            21..=24 => self.read(at),
            _ => self.write(at),
        }
    }

    fn mmap(&mut self, at: usize) {
        let (addr, len) = (self.addr(), self.len());
        let request = MmapRequest {
            addr,
            len,
            prot: Prot::from_bits_retain(self.rng.pick(&[1, 3, 3, 3])),
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
            ..MmapRequest::default()
        };
        let mm = self.mms[at].0;
        if self.machine.space().mmap(mm, &request).is_ok() {
            self.forget(at, VmRange::new(addr, addr + len));
            // Allow KSM and huge pages in most mappings.
            for advice in [Advice::Mergeable, Advice::HugePage] {
                if self.rng.below(3) != 0 {
                    let _ = self.machine.space().madvise(mm, addr, len, advice);
                }
            }
        }
    }

    fn munmap(&mut self, at: usize) {
        let (addr, len) = (self.addr(), self.len());
        let mm = self.mms[at].0;
        if self.machine.space().munmap(mm, addr, len).is_ok() {
            self.forget(at, VmRange::new(addr, addr + len));
        }
    }

    fn mprotect(&mut self, at: usize) {
        let (addr, len) = (self.addr(), self.len());
        let prot = Prot::from_bits_retain(self.rng.pick(&[0, 1, 3, 3, 3]));
        let _ = self
            .machine
            .space()
            .mprotect(self.mms[at].0, addr, len, prot, None);
    }

    fn mremap(&mut self, at: usize) {
        let (addr, len, new_addr) = (self.addr(), self.len(), self.addr());
        let keep = self.rng.below(4) == 0;
        let request = MremapRequest {
            addr,
            old_len: len,
            new_len: len,
            flags: MremapFlags::from_bits_retain(if keep { 7 } else { 3 }),
            new_addr,
            ..MremapRequest::default()
        };
        // The model does not know how much of a range a failed call has moved, so only moves of one
        // whole VMA are made.
        let mm = self.mms[at].0;
        let whole = {
            let r = self.machine.space().mmap_read_lock(mm).unwrap();
            r.vma_lookup(addr)
                .is_some_and(|vma| addr + len <= vma.range.end)
        };
        if !whole {
            return;
        }
        let moved = self.machine.space().mremap(mm, &request);
        if moved.is_ok() {
            let taken: Vec<(u64, u64)> = {
                let bytes = &self.mms[at].1;
                bytes
                    .range(addr..addr + len)
                    .map(|(a, v)| (*a, *v))
                    .collect()
            };
            self.forget(at, VmRange::new(addr, addr + len));
            self.forget(at, VmRange::new(new_addr, new_addr + len));
            self.mms[at]
                .1
                .extend(taken.into_iter().map(|(a, v)| (a - addr + new_addr, v)));
        } else if moved == Err(Errno::ENOMEM) || moved == Err(Errno::EAGAIN) {
            // `MREMAP_FIXED` unmapped the destination before the call failed.
            self.forget_unmapped(at);
        }
        self.count("mremap", moved.is_ok());
    }

    fn forget_unmapped(&mut self, at: usize) {
        let addrs: Vec<u64> = self.mms[at].1.keys().copied().collect();
        for addr in addrs {
            if !self.mapped(at, VmRange::new(addr, addr + PAGE)) {
                self.mms[at].1.remove(&addr);
            }
        }
    }

    fn discard(&mut self, at: usize) {
        let (addr, len) = (self.addr(), self.len());
        if self.mapped(at, VmRange::new(addr, addr + len)) {
            let done = self
                .machine
                .space()
                .madvise(self.mms[at].0, addr, len, Advice::DontNeed);
            assert_eq!(done, Ok(()));
            self.forget(at, VmRange::new(addr, addr + len));
        }
    }

    fn advise(&mut self, at: usize) {
        let (addr, len) = (self.addr(), self.len());
        let advice = self.rng.pick(&[10, 11, 12, 12, 13, 14, 14, 15, 21, 21, 25]);
        let done =
            self.machine
                .space()
                .madvise(self.mms[at].0, addr, len, Advice::from_number(advice));
        self.count("advise", done.is_ok());
    }

    fn fork(&mut self, at: usize) {
        let (mm, bytes) = self.mms[at].clone();
        let child = self.machine.space().fork(mm).unwrap();
        // Memory with `MADV_DONTFORK` does not exist in the child.
        self.mms.push((child, bytes));
        self.forget_unmapped(self.mms.len() - 1);
    }

    fn swap_out(&mut self) {
        if let Some(frame) = self.any_frame() {
            let out = self.machine.space().swap_out_frame(frame);
            self.count("swapped out", out.is_ok());
            assert!(
                matches!(out, Ok(_) | Err(Errno::EBUSY)),
                "nobody works with the page meanwhile: {out:?}"
            );
        }
    }

    /// Finds two pages with equal bytes, in any two processes, and lets KSM merge them.
    fn merge_equal(&mut self) {
        let mut of_value: BTreeMap<u64, (MmId, u64)> = BTreeMap::new();
        let mut pair = None;
        for (mm, bytes) in &self.mms {
            for (addr, value) in bytes {
                let here = (*mm, *addr);
                if let Some(other) = of_value.insert(*value, here)
                    && self.rng.below(3) == 0
                {
                    pair = Some((other, here));
                }
            }
        }
        if let Some((one, two)) = pair {
            let merged = self.machine.space().ksm_merge(one, two);
            self.count("merged", merged.is_ok());
        }
    }

    fn migrate(&mut self) {
        if self.migrating.len() < 2 && self.rng.below(2) == 0 {
            if let Some(frame) = self.any_frame() {
                match self.machine.space().migrate_begin(frame) {
                    Ok(migrating) => self.migrating.push(migrating),
                    Err(error) => assert_eq!(error, Errno::EBUSY),
                }
            }
        } else if let Some(migrating) = self.migrating.pop() {
            let arrived = self.machine.space().migrate_end(migrating).unwrap();
            self.count("migrated", arrived.is_some());
        }
    }

    fn read(&mut self, at: usize) {
        for _ in 0..4 {
            let addr = ARENA + self.rng.below(self.scale.arena) * PAGE;
            self.check_page(at, addr);
        }
    }

    /// Reads a page and compares it with the model; returns false if it could not be read.
    fn check_page(&mut self, at: usize, addr: u64) -> bool {
        let (mm, bytes) = &self.mms[at];
        let want = bytes.get(&addr).copied().unwrap_or(0);
        let mut got = [0; 8];
        match self.machine.load(*mm, addr, &mut got).unwrap() {
            Faulted::Done | Faulted::Spurious => {
                assert_eq!(u64::from_le_bytes(got), want, "at {addr:x} of {mm:?}");
                true
            }
            Faulted::NoMapping | Faulted::NoAccess | Faulted::Retry => false,
            other => panic!("{other:?} at {addr:x}"),
        }
    }

    fn write(&mut self, at: usize) {
        for _ in 0..3 {
            let addr = ARENA + self.rng.below(self.scale.arena) * PAGE;
            // A third of the values are small numbers, so that equal pages exist.
            self.written += 1;
            let value = if self.rng.below(3) == 0 {
                self.rng.below(4) + 1
            } else {
                self.written << 8
            };
            let mm = self.mms[at].0;
            match self.machine.store(mm, addr, &value.to_le_bytes()).unwrap() {
                Faulted::Done | Faulted::Spurious => {
                    self.mms[at].1.insert(addr, value);
                    self.count("written", true);
                }
                Faulted::NoMapping | Faulted::NoAccess | Faulted::Retry => {}
                other => panic!("{other:?} at {addr:x}"),
            }
        }
    }

    fn check_all(&mut self) {
        while let Some(migrating) = self.migrating.pop() {
            self.machine.space().migrate_end(migrating).unwrap();
        }
        for at in 0..self.mms.len() {
            let addrs: Vec<u64> = self.mms[at].1.keys().copied().collect();
            for addr in addrs {
                self.check_page(at, addr);
            }
        }
    }

    fn finish(mut self) -> BTreeMap<&'static str, u64> {
        self.check_all();
        for (mm, _) in std::mem::take(&mut self.mms) {
            self.machine.space().mm_exit(mm).unwrap();
        }
        let space = self.machine.space();
        let left = format!("{space:?}");
        assert!(
            left.contains("vmas: 0, anon_vmas: 0, frames: 0"),
            "left over: {left}"
        );
        assert_eq!(space.swap_slots_in_use(), 0);
        assert_eq!(self.machine.memory().frames(), 0);
        let huge = space.huge_counts();
        for (what, n) in [
            ("huge", huge.made),
            ("huge zero", huge.zero),
            ("collapsed", huge.collapsed),
            ("huge split", huge.splits),
            ("huge moved whole", huge.moved_whole),
        ] {
            *self.counts.entry(what).or_default() += n;
        }
        self.counts
    }
}

fn run(
    policy: Policy,
    seed: u64,
    steps: u32,
    scale: Scale,
    huge_pages: HugePages,
    total: &mut BTreeMap<&'static str, u64>,
) {
    let mut world = World::new(policy, seed, scale, huge_pages);
    for n in 0..steps {
        world.step();
        if scale.unit == PAGE || n % 8 == 0 {
            let valid = world.machine.space().validate_all();
            if let Err(v) = valid {
                panic!("{} seed {seed} step {n}: {}", policy.name, v.0);
            }
        }
        if n % 100 == 99 {
            world.check_all();
        }
    }
    for (what, n) in world.finish() {
        *total.entry(what).or_default() += n;
    }
}

fn happened(total: &BTreeMap<&'static str, u64>, what: &[&str]) {
    for what in what {
        let n = total.get(what).copied().unwrap_or(0);
        assert!(n > 10, "{what} happened {n} times: {total:?}");
    }
}

#[test]
fn small_pages_keep_their_bytes_in_every_state() {
    let scale = Scale {
        arena: 40,
        unit: PAGE,
    };
    let mut total = BTreeMap::new();
    for policy in Policy::PRESETS {
        for seed in 0..12 {
            run(
                policy,
                seed * 91 + 3,
                1500,
                scale,
                HugePages::Never,
                &mut total,
            );
        }
    }
    happened(
        &total,
        &["written", "swapped out", "merged", "migrated", "mremap"],
    );
}

#[test]
#[cfg_attr(
    any(feature = "aarch64-16k", feature = "aarch64-64k"),
    ignore = "compares gigabytes after each step"
)]
fn huge_pages_keep_their_bytes() {
    let scale = Scale {
        arena: 5 * HUGE / PAGE,
        unit: HUGE,
    };
    let mut total = BTreeMap::new();
    for policy in Policy::PRESETS {
        for seed in 0..3 {
            run(
                policy,
                seed * 57 + 1,
                400,
                scale,
                HugePages::Madvise,
                &mut total,
            );
        }
    }
    happened(
        &total,
        &[
            "written",
            "swapped out",
            "migrated",
            "huge",
            "huge zero",
            "huge split",
            "huge moved whole",
        ],
    );
}
