//! Random calls of every kind, most of which some check refuses.

use super::*;
use crate::rng::Rng;
use std::num::NonZeroU32;
use vmarea::Overcommit;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::process_madvise::Advised;
use vmarea::syscall::shm::{ShmFlags, ShmatRequest};
use vmarea::syscall::userfaultfd::WatchMode;
use vmarea::types::call_flags::{MbindFlags, MclFlags, MlockFlags, Pkey};
use vmarea::types::mempolicy::MpolMode;
use vmarea::types::prctl::PrctlOption;

/// Makes random calls on a machine with random limits, and reports those that fail.
pub fn run(policy: Policy, seed: u64, failed: &mut dyn FnMut(&Syscall, Errno, Option<Refused>)) {
    let mut process = Process::new(policy);
    let mut rng = Rng(seed);
    process.system(|system| {
        system.max_map_count = rng.pick(&[8, 16, 65_530]);
        system.overcommit = rng.pick(&[
            Overcommit::Always,
            Overcommit::Guess(4),
            Overcommit::Never(12),
        ]);
        system.protection_keys = rng.below(2) == 0;
    });
    process.limits(|limits| {
        limits.memlock = rng.pick(&[0, 8 * PAGE, 8 << 20]);
        limits.address_space = rng.pick(&[64 * PAGE, u64::MAX, u64::MAX]);
        limits.data = rng.pick(&[32 * PAGE, u64::MAX, u64::MAX]);
        limits.sys_resource = rng.below(2) == 0;
    });
    for _ in 0..400 {
        let call = call(&mut rng);
        if let (Err(errno), why) = process.attempt(&call) {
            failed(&call, errno, why);
        }
        let addr = at(rng.below(24));
        let _ = process.space.fault(process.mm, addr, Access::Write);
    }
}

/// Returns an address and a length: mostly of the test's pages, and sometimes odd ones.
fn range(rng: &mut Rng) -> (u64, u64) {
    let addr = match rng.below(16) {
        0 => rng.pick(&[0, PAGE, 1, !0 << 12, 0x7fff_ffff_f000]),
        _ => at(rng.below(24)),
    };
    let len = match rng.below(16) {
        0 => rng.pick(&[0, 1, 1 << 47, u64::MAX, !0 << 12]),
        _ => (1 + rng.below(6)) * PAGE,
    };
    (addr, len)
}

fn bits(rng: &mut Rng, known: u32) -> u32 {
    let odd = if rng.below(16) == 0 { 1 << 30 } else { 0 };
    rng.below(u64::from(known) + 1) as u32 & known | odd
}

fn prot(rng: &mut Rng) -> Prot {
    let odd = rng.pick(&[0, 0, 0, 0, 0x0100_0000, 0x0200_0000]);
    Prot::from_bits_retain(rng.pick(&[0, 1, 3, 3, 5, 7]) | odd)
}

fn a_file(rng: &mut Rng) -> File {
    use FileKind::*;
    let kind = rng.pick(&[
        Regular,
        RegularHugeAligned,
        Shmem,
        SysvShm,
        Hugetlb,
        DevZero,
        Device,
        Secret,
    ]);
    let mut opened = file(kind);
    opened.id = FileId(kind as u64);
    opened.inode = kind as u64;
    opened.readable = rng.below(12) > 0;
    opened.writable = rng.below(4) > 0;
    opened.noexec = rng.below(6) == 0;
    opened.append_only = rng.below(12) == 0;
    opened.write_sealed = rng.below(12) == 0;
    opened
}

fn mapping(rng: &mut Rng) -> Syscall {
    let (addr, len) = range(rng);
    let opened = (rng.below(2) == 0).then(|| a_file(rng));
    let mut flags = rng.pick(&[2u32, 2, 2, 1, 1, 3, 8, 0]);
    flags |= rng.pick(&[0x10, 0x10, 0x10, 0x40, 0x10_0000, 0]);
    flags |= rng.pick(&[0, 0, 0, 0x100, 0x2000, 0x4000, 0x8000, 0x4_0000, 0x8_0000]);
    Syscall::Mmap(MmapRequest {
        addr,
        len,
        prot: Prot::from_bits_retain(rng.pick(&[0, 1, 3, 3, 5, 7])),
        flags: MapFlags::from_bits_retain(flags | if opened.is_none() { 0x20 } else { 0 }),
        file: opened,
        offset: rng.pick(&[0, 0, PAGE, 1, !0 << 12]),
        ..MmapRequest::default()
    })
}

fn moving(rng: &mut Rng) -> Syscall {
    let (addr, old_len) = range(rng);
    let (new_addr, new_len) = range(rng);
    Syscall::Mremap(MremapRequest {
        addr,
        old_len,
        new_len: rng.pick(&[old_len, new_len]),
        flags: MremapFlags::from_bits_retain(rng.pick(&[0, 1, 1, 3, 3, 5, 7, 2, 64])),
        new_addr,
        ..MremapRequest::default()
    })
}

fn advising(rng: &mut Rng) -> Syscall {
    let (addr, len) = range(rng);
    let advice = Advice::from_number(rng.pick(&[
        0, 1, 3, 4, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 77, 102,
        103,
    ]));
    match rng.below(4) {
        0 => Syscall::ProcessMadvise {
            ranges: vec![(addr, len)],
            advice,
            advised: rng.pick(&[Advised::Own, Advised::Other]),
        },
        _ => Syscall::Madvise { addr, len, advice },
    }
}

fn locking(rng: &mut Rng) -> Syscall {
    let (addr, len) = range(rng);
    match rng.below(8) {
        0..4 => Syscall::Mlock {
            addr,
            len,
            flags: MlockFlags::from_bits_retain(bits(rng, 1)),
        },
        4..6 => Syscall::Munlock { addr, len },
        6 => Syscall::Mlockall {
            flags: MclFlags::from_bits_retain(bits(rng, 7)),
        },
        _ => Syscall::Munlockall,
    }
}

fn settings(rng: &mut Rng) -> Syscall {
    let (addr, _) = range(rng);
    match rng.below(6) {
        0 => Syscall::Brk {
            addr: at(995 + rng.below(10)),
        },
        1 => Syscall::PkeyAlloc {
            flags: rng.below(2),
            denied: rng.below(5),
        },
        2 => Syscall::PkeyFree {
            pkey: Pkey(rng.below(17) as i32 - 1),
        },
        3 => Syscall::Prctl {
            option: PrctlOption::SET_MM,
            args: [rng.below(15), addr, 0, 0],
        },
        4 => Syscall::Prctl {
            option: PrctlOption(rng.pick(&[41, 41, 66, 67, 67, 99])),
            args: [rng.below(3), rng.below(3), 0, 0],
        },
        _ => Syscall::SetMempolicy {
            mode: MpolMode(rng.below(9) as u32),
            nodes: rng.below(4),
        },
    }
}

fn rare(rng: &mut Rng) -> Syscall {
    let (addr, len) = range(rng);
    let context = NonZeroU32::new(1 + rng.below(2) as u32).unwrap();
    match rng.below(8) {
        0 => Syscall::Mseal {
            addr: at(20 + rng.below(4)),
            len,
            flags: rng.pick(&[0, 0, 0, 1]),
        },
        1 | 2 => Syscall::Mbind {
            addr,
            len,
            mode: MpolMode(rng.below(9) as u32),
            nodes: rng.below(4),
            flags: MbindFlags::from_bits_retain(bits(rng, 7)),
        },
        3 => Syscall::RemapFilePages {
            addr,
            len,
            prot: Prot::from_bits_retain(rng.pick(&[0, 0, 0, 1])),
            pgoff: rng.pick(&[0, 1, 1 << 52, u64::MAX]),
            flags: MapFlags::empty(),
        },
        4 => Syscall::Shmat(ShmatRequest {
            segment: file(FileKind::SysvShm),
            len,
            addr,
            flags: ShmFlags::from_bits_retain(rng.pick(&[0, 0o10000, 0o20000, 0o40000])),
            placement: Default::default(),
        }),
        5 => Syscall::Shmdt {
            addr,
            sizes: vec![(1, len)],
        },
        6 => Syscall::UserfaultfdRegister {
            context,
            addr,
            len,
            mode: WatchMode::from_bits_retain(rng.below(9)),
        },
        _ => Syscall::UserfaultfdUnregister { context, addr, len },
    }
}

fn call(rng: &mut Rng) -> Syscall {
    let (addr, len) = range(rng);
    match rng.below(20) {
        0..6 => mapping(rng),
        6 => Syscall::Munmap { addr, len },
        7..10 => Syscall::Mprotect {
            addr,
            len,
            prot: prot(rng),
            pkey: (rng.below(8) == 0).then_some(Pkey(rng.below(4) as i32)),
        },
        10..13 => moving(rng),
        13 | 14 => advising(rng),
        15 => locking(rng),
        16 | 17 => settings(rng),
        _ => rare(rng),
    }
}
