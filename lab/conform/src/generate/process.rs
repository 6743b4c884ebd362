//! Generation of actions on the whole process: heap, limits, capabilities, forks, files, accesses.

use super::super::arena::{FILE_PAGES, HEAP, HEAP_END, SEGMENTS};
use super::super::model::Mapped;
use super::super::op::{Call, Op};
use super::Choice;
use super::calls::mmap;
use vmarea::types::PAGE_SIZE;
use vmarea_trace::sysno;

const MAP_NONBLOCK: u64 = 0x1_0000;

/// Moves the break.
pub(super) fn brk(c: &mut Choice<'_>) -> Op {
    let odd = c.rng.pick(&[0, 0, 1, 0x800]);
    let by = c.len();
    let to = match c.rng.below(8) {
        0 => 0,
        1..=4 => c.brk + by,
        5 | 6 => c.brk.saturating_sub(by).max(HEAP),
        _ => c.brk,
    };
    Op::Call(Call::new(sysno::BRK, [to.min(HEAP_END - PAGE_SIZE) + odd]))
}

pub(super) fn mseal(c: &mut Choice<'_>) -> Op {
    let (addr, len) = c.range();
    c.spoil(Call::new(sysno::MSEAL, [addr, len, 0]), &[0, 2], &[])
}

/// Allocates and frees protection keys, except key 0, which the process needs to continue.
pub(super) fn pkeys(c: &mut Choice<'_>) -> Op {
    let key = 1 + c.rng.below(4);
    Op::Call(match c.rng.below(8) {
        0 => Call::new(sysno::PKEY_ALLOC, [c.rng.below(2), c.rng.below(8)]),
        1..=3 => Call::new(sysno::PKEY_FREE, [c.rng.pick(&[key, key, 15, u64::MAX])]),
        _ => Call::new(sysno::PKEY_ALLOC, [0, c.rng.below(4)]),
    })
}

/// Changes process settings with `prctl`.
pub(super) fn prctl(c: &mut Choice<'_>) -> Op {
    const THP_DISABLE: u64 = 41;
    const SET_MM: u64 = 35;
    const MEMORY_MERGE: u64 = 67;
    const READ_IMPLIES_EXEC: u64 = 0x40_0000;
    const SET_MDWE: u64 = 65;
    let on = c.rng.below(2);
    Op::Call(match c.rng.below(7) {
        5 => Call::new(
            sysno::PRCTL,
            [SET_MDWE + 1, 0, 0, 0, c.rng.pick(&[0, 0, 1])],
        ),
        6 => Call::new(
            sysno::PRCTL,
            [SET_MDWE, c.rng.pick(&[0, 1, 1, 3, 2, 4]), 0, 0, 0],
        ),
        0 => Call::new(sysno::PRCTL, [THP_DISABLE, on, c.rng.below(3), 0, 0]),
        4 => Call::new(sysno::PRCTL, [SET_MM, c.rng.below(13), c.addr(), 0, 0]),
        1 => Call::new(sysno::PRCTL, [MEMORY_MERGE, on, 0, 0, 0]),
        2 => Call::new(sysno::PERSONALITY, [READ_IMPLIES_EXEC * on]),
        _ => Call::new(sysno::PRCTL, [MEMORY_MERGE, on, c.rng.below(2), 0, 0]),
    })
}

pub(super) fn truncate(c: &mut Choice<'_>) -> Op {
    let file = c.rng.pick(&[0, 0, 3]);
    let pages = c
        .rng
        .pick(&[0, FILE_PAGES, FILE_PAGES, FILE_PAGES + 4, 8, 16]);
    Op::Call(Call::new(sysno::FTRUNCATE, [file, pages * PAGE_SIZE]))
}

/// `MPOL_MF_STRICT` of `mbind`: fails if a page lies on a node that is not named.
const STRICT: u64 = 1;

pub(super) fn mbind(c: &mut Choice<'_>) -> Op {
    const STATIC: u64 = 1 << 15;
    const RELATIVE: u64 = 1 << 14;
    const BALANCING: u64 = 1 << 13;
    let (addr, len) = c.range();
    let odd = [
        3,
        4,
        5,
        6,
        7,
        2 | STATIC,
        1 | RELATIVE,
        STATIC | RELATIVE,
        2 | BALANCING,
    ];
    let mode = if c.rng.chance(1, 4) {
        c.rng.pick(&odd)
    } else {
        c.rng.pick(&[0, 1, 2])
    };
    let nodes = match mode {
        0 | 4 => c.rng.pick(&[0, 0, 0, 1]),
        _ => c.rng.pick(&[1, 1, 1, 0, 3, 2]),
    };
    let flags = c.rng.pick(&[0, 0, 0, 0, STRICT, 2, 4, 8]);
    if c.rng.chance(1, 16) {
        let mut call = Call::new(sysno::SET_MEMPOLICY, [mode, 0, 64]);
        call.data = vec![nodes];
        return Op::Call(call);
    }
    let mut call = Call::new(sysno::MBIND, [addr, len, mode, 0, 64, flags]);
    call.data = vec![nodes];
    spare_other_nodes(&mut call);
    c.spoil(call, &[0], &[1])
}

/// Removes `MPOL_MF_STRICT` where node 0 is not named: the core does not know the nodes of pages.
pub(super) fn spare_other_nodes(mbind: &mut Call) {
    if mbind.data.first().is_none_or(|nodes| nodes & 1 == 0) {
        mbind.args[5] &= !STRICT;
    }
}

pub(super) fn remap_file_pages(c: &mut Choice<'_>) -> Op {
    let (mut addr, mut len) = c.range();
    let shared: Vec<Mapped> = c.vmas.iter().filter(|v| v.shared).copied().collect();
    if !shared.is_empty() && c.rng.chance(7, 8) {
        let v = c.rng.pick(&shared);
        (addr, len) = (v.start, (v.end - v.start).min(len));
    }
    let prot = c.rng.pick(&[0, 0, 0, 1]);
    let page = c.rng.below(FILE_PAGES);
    let flags = c.rng.pick(&[0, MAP_NONBLOCK]);
    let call = Call::new(sysno::REMAP_FILE_PAGES, [addr, len, prot, page, flags]);
    c.spoil(call, &[0], &[1])
}

/// Calls `process_madvise` on the calling process, for which Linux permits any advice.
pub(super) fn process_madvise(c: &mut Choice<'_>) -> Op {
    const PIDFD_SELF: u64 = -10001_i64 as u64;
    let ranges = 1 + c.rng.below(4);
    let advice = c
        .rng
        .pick(&[0, 2, 3, 3, 4, 10, 11, 14, 15, 18, 19, 20, 102, 103, 5, 99]);
    let mut call = Call::new(sysno::PROCESS_MADVISE, [PIDFD_SELF, 0, ranges, advice, 0]);
    for _ in 0..ranges {
        let (addr, len) = c.range();
        call.data.extend([addr, len]);
    }
    if c.rng.chance(1, 8) {
        let lengths = call.data.iter_mut().skip(1).step_by(2);
        lengths.for_each(|len| *len = 0);
    }
    if c.rng.chance(1, 16) {
        const TASK_SIZE: u64 = 0x7fff_ffff_f000;
        let at = c.rng.below(ranges) as usize * 2;
        let base = c.rng.pick(&[0, TASK_SIZE, u64::MAX, u64::MAX << 12]);
        let len = c.rng.pick(&[0, 0, u64::MAX, 1 << 63]);
        let (which, edge) = c.rng.pick(&[(at, base), (at + 1, len), (at + 1, len)]);
        call.data[which] = edge;
    }
    Op::Call(call)
}

/// Sets a soft limit slightly above the current usage, to the hard limit, or (`RLIMIT_DATA`) to 0.
pub(super) fn limit(c: &mut Choice<'_>) -> Op {
    const DATA: u64 = 2;
    const STACK: u64 = 3;
    const MEMLOCK: u64 = 8;
    const AS: u64 = 9;
    let [total, data, locked] = c.counts;
    let resources = [(DATA, data), (STACK, 0), (MEMLOCK, locked), (AS, total)];
    let which = c.rng.below(4) as usize;
    let ((resource, used), hard) = (resources[which], c.facts.hard[which]);
    let counts_secrets = resource == MEMLOCK && c.facts.secret && c.facts.secret_counts;
    let soft = match c.rng.below(4) {
        _ if counts_secrets => hard,
        0 => (used + c.rng.below(24)) * PAGE_SIZE + c.rng.pick(&[0, 0, 100]),
        1 if resource == DATA => 0,
        _ => hard,
    };
    let mut call = Call::new(sysno::PRLIMIT64, [0, resource, 0, 0]);
    call.data = vec![soft.min(hard), hard];
    Op::Call(call)
}

/// Drops all capabilities of the process.
pub(super) fn drop_rights(_: &mut Choice<'_>) -> Op {
    const VERSION_3: u64 = 0x2008_0522;
    let mut call = Call::new(sysno::CAPSET, [0, 0]);
    call.data = vec![VERSION_3, 0, 0, 0];
    Op::Call(call)
}

pub(super) fn read(c: &mut Choice<'_>) -> Op {
    Op::Read {
        addr: touched(c, false),
    }
}

pub(super) fn write(c: &mut Choice<'_>) -> Op {
    Op::Write {
        addr: touched(c, true),
        value: c.rng.next_u64(),
    }
}

pub(super) fn touched(c: &mut Choice<'_>, write: bool) -> u64 {
    let page = if c.vmas.is_empty() || c.rng.chance(1, 6) {
        c.addr()
    } else if c.rng.chance(1, 16) {
        let v = c.vma();
        v.start - (1 + c.rng.below(4)) * PAGE_SIZE
    } else if write && c.rng.chance(3, 4) && c.vmas.iter().any(|v| v.writable) {
        let n = c.rng.below(c.vmas.len() as u64) as usize;
        let all = c.vmas[n..].iter().chain(&c.vmas);
        let v = all.copied().find(|v| v.writable).unwrap_or(c.vmas[0]);
        v.start + c.rng.below((v.end - v.start) / PAGE_SIZE) * PAGE_SIZE
    } else {
        c.part().0
    };
    page + c.rng.below(PAGE_SIZE / 8) * 8
}

pub(super) fn fork(c: &mut Choice<'_>) -> Op {
    match c.alive.iter().position(|alive| !alive) {
        Some(child) => Op::Fork { child: child as u8 },
        None => write(c),
    }
}

pub(super) fn exit(c: &mut Choice<'_>) -> Op {
    if c.alive.iter().filter(|alive| **alive).count() > 1 {
        Op::Exit
    } else {
        read(c)
    }
}

pub(super) fn shmat(c: &mut Choice<'_>) -> Op {
    const RDONLY: u64 = 0o10000;
    const RND: u64 = 0o20000;
    const REMAP: u64 = 0o40000;
    const EXEC: u64 = 0o100000;
    if !c.facts.segments {
        return mmap(c);
    }
    let wrong = u64::from(c.rng.chance(1, 40));
    let number = c.rng.below(SEGMENTS.len() as u64 + wrong);
    let addr = c.place(SEGMENTS[0]);
    let odd = c.rng.pick(&[0, 0, 0, 8]);
    let flags = [
        0,
        REMAP,
        REMAP,
        RDONLY,
        REMAP | RDONLY,
        RND,
        EXEC,
        REMAP | RND,
    ];
    Op::Call(Call::new(
        sysno::SHMAT,
        [number, addr + odd, c.rng.pick(&flags)],
    ))
}

/// Attaches or detaches a shared memory segment.
pub(super) fn shm(c: &mut Choice<'_>) -> Op {
    if c.rng.chance(1, 2) {
        shmat(c)
    } else {
        shmdt(c)
    }
}

/// Detaches a segment, mostly at an address where one may be attached.
pub(super) fn shmdt(c: &mut Choice<'_>) -> Op {
    let shared: Vec<Mapped> = c.vmas.iter().filter(|v| v.shared).copied().collect();
    let addr = if shared.is_empty() || c.rng.chance(1, 8) {
        c.addr() + c.rng.pick(&[0, 0, 8])
    } else {
        let v = c.rng.pick(&shared);
        v.start.saturating_sub(v.pgoff.min(8) * PAGE_SIZE)
    };
    Op::Call(Call::new(sysno::SHMDT, [addr]))
}
