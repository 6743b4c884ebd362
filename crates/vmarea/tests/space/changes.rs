//! A host that only follows the reported changes has the mappings and the bytes of a machine whose
//! pages come by faults.

use crate::rng::Rng;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use vmarea::changes::{Change, Observer};
use vmarea::prelude::*;
use vmarea::syscall::madvise::Advice;
use vmarea::types::call_flags::MlockFlags;
use vmarea::types::{File, FileId, FileKind};
use vmarea_soft_platform::Machine;

const ARENA: u64 = 0x10_0000_0000;
const HEAP: u64 = ARENA + (1 << 30);
const PAGES: u64 = 40;

/// Address, protection and file page of a mapped page.
type Mapped = (u64, VmFlags, Option<(u64, u64)>);

/// A page of the host.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Page {
    access: VmFlags,
    file: Option<(u64, u64)>,
    shared: bool,
    guard: bool,
    /// The byte of a private page that was written to.
    own: Option<u8>,
}

/// The mappings of one process in the host, and the bytes of files.
#[derive(Default, Debug)]
struct Host {
    pages: BTreeMap<u64, Page>,
    files: BTreeMap<(u64, u64), u8>,
    changes: Vec<Change>,
}

fn pages(range: VmRange) -> impl Iterator<Item = u64> {
    (range.start..range.end).step_by(PAGE_SIZE as usize)
}

impl Host {
    fn apply(&mut self, change: Change) {
        self.changes.push(change);
        match change {
            Change::Mapped { range, flags, file } => {
                for (at, addr) in pages(range).enumerate() {
                    let page = Page {
                        access: flags & VmFlags::ACCESS,
                        file: file.map(|(inode, first)| (inode, first.0 + at as u64)),
                        shared: flags.contains(VmFlags::MAYSHARE),
                        guard: false,
                        own: None,
                    };
                    assert_eq!(self.pages.insert(addr, page), None, "{change:x?}");
                }
            }
            Change::Unmapped { range } => pages(range).for_each(|addr| {
                assert!(self.pages.remove(&addr).is_some(), "{change:x?}");
            }),
            Change::Moved { from, to } => pages(from).for_each(|addr| {
                let page = self.pages.remove(&addr).expect("a mapping moves");
                let there = self.pages.insert(addr - from.start + to, page);
                assert_eq!(there, None, "{change:x?}");
            }),
            Change::Protected { range, flags } => {
                self.each(range, |page| page.access = flags & VmFlags::ACCESS);
            }
            Change::Emptied { range } => self.each(range, |page| page.own = None),
            Change::Guarded { range } => self.each(range, |page| {
                (page.own, page.guard) = (None, true);
            }),
            Change::Unguarded { range } => self.each(range, |page| page.guard = false),
        }
    }

    fn each(&mut self, range: VmRange, mut f: impl FnMut(&mut Page)) {
        pages(range).for_each(|addr| f(self.pages.get_mut(&addr).expect("mapped")));
    }

    /// Returns what a load reads; `None` for a signal.
    fn load(&self, addr: u64) -> Option<u8> {
        let page = self.pages.get(&addr)?;
        let stored = page.file.and_then(|at| self.files.get(&at).copied());
        (!page.access.is_empty() && !page.guard).then(|| page.own.or(stored).unwrap_or(0))
    }

    /// Stores a byte; false for a signal.
    fn store(&mut self, addr: u64, byte: u8) -> bool {
        let Some(page) = self.pages.get_mut(&addr) else {
            return false;
        };
        if !page.access.contains(VmFlags::WRITE) || page.guard {
            return false;
        }
        match page.file {
            Some(at) if page.shared => drop(self.files.insert(at, byte)),
            _ => page.own = Some(byte),
        }
        true
    }

    /// Returns the protection and the file page of each page, as `maps` should.
    fn mappings(&self) -> Vec<Mapped> {
        let page = |(&addr, page): (&u64, &Page)| (addr, page.access, page.file);
        self.pages.iter().map(page).collect()
    }
}

#[derive(Clone, Default)]
struct Following(Arc<Mutex<Host>>);

impl Observer for Following {
    fn changed(&self, _mm: MmId, change: Change) {
        self.0.lock().unwrap().apply(change);
    }
}

fn machine(policy: Policy) -> (Machine, MmId, Arc<Mutex<Host>>) {
    let host = Following::default();
    let mut machine = Machine::new(policy, System::default());
    machine.set_change_observer(Box::new(host.clone()));
    let layout = Layout {
        mmap_base: 0x7f00_0000_0000,
        start_brk: HEAP,
        brk: HEAP,
        ..Layout::default()
    };
    let mm = machine.space().mm_create(layout, Limits::default());
    (machine, mm.unwrap(), host.0)
}

fn mapped(machine: &Machine, mm: MmId) -> Vec<Mapped> {
    let page = |vma: &VmaView, addr| {
        let file = vma.body.file.map(|file| (file.inode, vma.pgoff_at(addr).0));
        (addr, vma.body.flags & VmFlags::ACCESS, file)
    };
    let of = |vma: VmaView| pages(vma.range).map(move |addr| page(&vma, addr));
    machine.space().maps(mm).flat_map(of).collect()
}

fn map(machine: &Machine, mm: MmId, rng: &mut Rng, (addr, len, prot): (u64, u64, Prot)) {
    let (kind, named) = (rng.pick(&[1u32, 2, 2]), rng.below(3) == 0);
    let (file, anonymous) = match named {
        true => (Some(File::read_write(FileId(7), 7, FileKind::Regular)), 0),
        false => (None, 0x20),
    };
    let grows = if !named && kind == 2 {
        rng.pick(&[0, 0, 0, 0x100])
    } else {
        0
    };
    let request = MmapRequest {
        addr,
        len,
        prot,
        flags: MapFlags::from_bits_retain(kind | anonymous | grows | 0x10),
        file,
        offset: rng.below(8) * PAGE_SIZE,
        ..MmapRequest::default()
    };
    let _ = machine.space().mmap(mm, &request);
}

fn step(machine: &Machine, mm: MmId, rng: &mut Rng) {
    let space = machine.space();
    let addr = ARENA + rng.below(PAGES) * PAGE_SIZE;
    let len = (1 + rng.below(8)) * PAGE_SIZE;
    let prot = Prot::from_bits_retain(rng.pick(&[0, 1, 3, 3, 3, 5, 7]));
    match rng.below(16) {
        0..=4 => map(machine, mm, rng, (addr, len, prot)),
        5 => drop(space.munmap(mm, addr, len)),
        6..=8 => drop(space.mprotect(mm, addr, len, prot, None)),
        9..=11 => {
            let other = (1 + rng.below(8)) * PAGE_SIZE;
            let request = MremapRequest {
                addr,
                old_len: if rng.below(8) == 0 { 0 } else { len },
                new_len: rng.pick(&[len, other]),
                flags: MremapFlags::from_bits_retain(rng.pick(&[0u32, 1, 3, 3, 5, 7])),
                new_addr: ARENA + rng.below(PAGES) * PAGE_SIZE,
                ..MremapRequest::default()
            };
            let _ = space.mremap(mm, &request);
        }
        12 => drop(space.brk(mm, HEAP + rng.below(10) * PAGE_SIZE / 2)),
        13 => drop(space.mlock(mm, addr, len, MlockFlags::ONFAULT)),
        _ => {
            let advice = rng.pick(&[0, 4, 4, 8, 10, 14, 18, 24, 102, 102, 103, 103]);
            let _ = space.madvise(mm, addr, len, Advice::from_number(advice));
        }
    }
}

/// Loads or stores one byte, in the machine and in its host.
fn touch(machine: &Machine, mm: MmId, host: &Mutex<Host>, rng: &mut Rng) {
    let at = rng.below(PAGES + 5);
    let addr = if at < PAGES {
        ARENA
    } else {
        HEAP - PAGES * PAGE_SIZE
    } + at * PAGE_SIZE;
    let mut byte = [1 + rng.below(255) as u8];
    let stores = rng.below(2) == 0;
    // The access may grow a stack, so the machine comes first.
    let faulted = match stores {
        true => machine.store(mm, addr, &byte),
        false => machine.load(mm, addr, &mut byte),
    };
    let faulted = faulted.unwrap();
    let works = matches!(faulted, Faulted::Done | Faulted::Spurious);
    let mut host = host.lock().unwrap();
    match stores {
        // Beyond the end of a file, SIGBUS: the host knows how long its files are.
        _ if faulted == Faulted::NoPage => {}
        true => assert_eq!(host.store(addr, byte[0]), works, "store to {addr:x}"),
        false => assert_eq!(
            host.load(addr),
            works.then_some(byte[0]),
            "load of {addr:x}"
        ),
    }
}

fn run(policy: Policy, seed: u64) {
    let (machine, mm, host) = machine(policy);
    let mut rng = Rng(seed);
    for n in 0..1500 {
        host.lock().unwrap().changes.clear();
        step(&machine, mm, &mut rng);
        let (found, wanted) = (host.lock().unwrap().mappings(), mapped(&machine, mm));
        if found != wanted {
            let changes = &host.lock().unwrap().changes;
            panic!(
                "{} seed {seed} step {n}: {changes:x?}\n{found:x?}\n{wanted:x?}",
                policy.name
            );
        }
        for _ in 0..4 {
            touch(&machine, mm, &host, &mut rng);
        }
    }
    machine.space().mm_exit(mm).unwrap();
    assert!(host.lock().unwrap().pages.is_empty());
}

#[test]
fn a_host_that_follows_the_changes_is_as_the_machine() {
    for policy in Policy::PRESETS {
        for seed in 0..8 {
            run(policy, seed * 91 + 3);
        }
    }
}

/// The calls of an embedder whose host brings all pages: the core never sees a fault.
#[test]
fn calls_on_untouched_pages_are_reported() {
    let (machine, mm, host) = machine(Policy::LINUX);
    let space = machine.space();
    let changes = || std::mem::take(&mut host.lock().unwrap().changes);
    let pages = |start: u64, count| VmRange::new(start, start + count * PAGE_SIZE);
    let at = space
        .mmap(mm, &MmapRequest::anonymous(8 * PAGE_SIZE))
        .unwrap();
    assert!(matches!(changes()[..], [Change::Mapped { range, .. }] if range == pages(at, 8)));

    space.munmap(mm, at, 4 * PAGE_SIZE).unwrap();
    let unmapped = |start, count| Change::Unmapped {
        range: pages(start, count),
    };
    assert_eq!(changes(), [unmapped(at, 4)]);

    let middle = at + 4 * PAGE_SIZE;
    let over = MmapRequest {
        addr: middle,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
        ..MmapRequest::anonymous(2 * PAGE_SIZE)
    };
    space.mmap(mm, &over).unwrap();
    let seen = changes();
    assert_eq!(seen[0], unmapped(middle, 2));
    assert!(matches!(seen[1..], [Change::Mapped { range, .. }] if range == pages(middle, 2)));

    let grow = MremapRequest {
        addr: middle,
        old_len: 2 * PAGE_SIZE,
        new_len: 20 * PAGE_SIZE,
        flags: MremapFlags::MAYMOVE,
        ..MremapRequest::default()
    };
    let to = space.mremap(mm, &grow).unwrap();
    assert_ne!(to, middle);
    let seen = changes();
    let from = pages(middle, 2);
    assert_eq!(seen[0], Change::Moved { from, to });
    let added = pages(to + 2 * PAGE_SIZE, 18);
    assert!(matches!(seen[1..], [Change::Mapped { range, .. }] if range == added));

    space.mprotect(mm, to, PAGE_SIZE, Prot::READ, None).unwrap();
    space.mprotect(mm, to, PAGE_SIZE, Prot::READ, None).unwrap();
    assert!(matches!(changes()[..], [Change::Protected { range, .. }] if range == pages(to, 1)));
}
