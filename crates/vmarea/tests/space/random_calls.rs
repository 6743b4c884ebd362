//! Random calls on several related address spaces; every invariant is checked after each call.

use crate::rng::Rng;
use vmarea::System;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::{MergePolicy, Own, Policy};
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MlockFlags, MremapFlags, Prot};
use vmarea::types::{File, FileId, FileKind, MmId, PAGE_SIZE, VmFlags};
use vmarea::vma::VmaView;
use vmarea::vma::merge::{Proposal, Refusal};
use vmarea_soft_platform::{CPUS, Machine};

const ARENA: u64 = 0x10_0000_0000;
const PAGES: u64 = 48;

fn file(id: u64) -> File {
    File::read_write(FileId(id), id, FileKind::Regular)
}

/// Loads or stores one byte on a random processor.
fn touch(machine: &Machine, rng: &mut Rng, mm: MmId, addr: u64) {
    let cpu = rng.below(CPUS as u64) as usize;
    match rng.below(2) {
        0 => machine.load_on(cpu, mm, addr, &mut [0]).unwrap(),
        _ => machine.store_on(cpu, mm, addr, &[1]).unwrap(),
    };
}

fn step(machine: &Machine, rng: &mut Rng, mms: &mut Vec<MmId>) {
    let space = machine.space();
    let at = rng.below(mms.len() as u64) as usize;
    let mm = mms[at];
    let addr = ARENA + rng.below(PAGES) * PAGE_SIZE;
    let len = (1 + rng.below(8)) * PAGE_SIZE;
    let prot = Prot::from_bits_retain(rng.pick(&[0, 1, 3, 3, 3, 5, 7]));
    match rng.below(20) {
        0..=4 => {
            let kind = rng.pick(&[2u32, 2, 2, 1]);
            let f = file(1 + rng.below(2));
            let with_file = rng.below(3) == 0;
            let request = MmapRequest {
                addr,
                len,
                prot,
                flags: MapFlags::from_bits_retain(kind | 0x10 | if with_file { 0 } else { 0x20 }),
                file: with_file.then_some(f),
                offset: addr - ARENA,
                ..MmapRequest::default()
            };
            let _ = space.mmap(mm, &request);
        }
        5 | 6 => drop(space.munmap(mm, addr, len)),
        7..=9 => drop(space.mprotect(mm, addr, len, prot, None)),
        10 | 11 => {
            let request = MremapRequest {
                addr,
                old_len: len,
                new_len: if rng.below(2) == 0 {
                    len
                } else {
                    (1 + rng.below(8)) * PAGE_SIZE
                },
                flags: MremapFlags::from_bits_retain(rng.pick(&[0u32, 1, 3, 3, 5, 7])),
                new_addr: ARENA + rng.below(PAGES) * PAGE_SIZE,
                ..MremapRequest::default()
            };
            let _ = space.mremap(mm, &request);
        }
        12 => drop(space.madvise(
            mm,
            addr,
            len,
            Advice::from_number(rng.pick(&[0, 1, 4, 10, 11, 14, 15, 18, 19, 22, 23, 102, 103])),
        )),
        13 => drop(space.mlock(mm, addr, len, MlockFlags::empty())),
        14 => drop(space.munlock(mm, addr, len)),
        15 if mms.len() < 4 => mms.push(space.fork(mm).unwrap()),
        16 if mms.len() > 1 && rng.below(4) == 0 => space.mm_exit(mms.swap_remove(at)).unwrap(),
        _ => {
            for _ in 0..4 {
                let addr = ARENA + rng.below(PAGES * PAGE_SIZE);
                touch(machine, rng, mm, addr);
            }
        }
    }
}

fn run(policy: Policy, seed: u64, steps: u32) {
    let machine = Machine::new(policy, System::default());
    let space = machine.space();
    let layout = Layout {
        mmap_base: 0x7f00_0000_0000,
        ..Layout::default()
    };
    let mut rng = Rng(seed);
    let mut mms = vec![
        space
            .mm_create(
                layout,
                Limits {
                    ipc_lock: true,
                    ..Limits::default()
                },
            )
            .unwrap(),
    ];
    for n in 0..steps {
        step(&machine, &mut rng, &mut mms);
        if let Err(violation) = machine.validate() {
            panic!("{} seed {seed} step {n}: {violation}", policy.name);
        }
    }
    for mm in mms {
        space.mm_exit(mm).unwrap();
    }
    let left = format!("{space:?}");
    assert!(
        left.contains("vmas: 0, anon_vmas: 0, frames: 0"),
        "left over: {left}"
    );
}

/// Refuses merges for no reason that the core could know, and ignores all flags that a rule may.
struct Capricious;

impl MergePolicy for Capricious {
    fn name(&self) -> &'static str {
        "capricious"
    }

    fn base(&self) -> Policy {
        Policy::VMAREA
    }

    fn sticky(&self) -> VmFlags {
        Own::MAY_STICK
    }

    fn refuses(&self, range: &Proposal, neighbour: &VmaView) -> Option<Refusal> {
        let number = (range.range.start ^ neighbour.range.end) / PAGE_SIZE;
        number.is_multiple_of(3).then_some(Refusal::Opaque)
    }
}

#[test]
fn every_invariant_holds_after_every_call() {
    let mut generous = Policy::VMAREA;
    generous.merging.copy_budget = 3;
    let others = [generous, Policy::of(&Capricious)];
    for policy in Policy::PRESETS.into_iter().chain(others) {
        for seed in 0..12 {
            run(policy, seed * 77 + 5, 1500);
        }
    }
}
