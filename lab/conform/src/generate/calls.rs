//! Generation of calls that map, unmap, move, protect and advise memory.

use super::super::arena::{DEEP, FILE_PAGES, PLAIN_KINDS, START};
use super::super::model::Mapped;
use super::super::op::{Call, Op};
use super::Choice;
use super::theme::Theme;
use vmarea::types::{PAGE_SIZE, PMD_SIZE};
use vmarea_trace::sysno;

const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_SHARED_VALIDATE: u64 = 3;
const MAP_DROPPABLE: u64 = 8;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_GROWSDOWN: u64 = 0x100;
const MAP_LOCKED: u64 = 0x2000;
const MAP_NORESERVE: u64 = 0x4000;
const MAP_POPULATE: u64 = 0x8000;
const MAP_NONBLOCK: u64 = 0x1_0000;
const MAP_STACK: u64 = 0x2_0000;
const MAP_SYNC: u64 = 0x8_0000;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;

/// Maps anonymous memory at a fixed address.
pub(super) fn mmap(c: &mut Choice<'_>) -> Op {
    let len = c.len();
    let addr = c.place(len);
    let prot = c.prot();
    let kind = match c.rng.below(32) {
        0 | 1 => MAP_SHARED,
        2 if c.theme != Theme::Pages => MAP_DROPPABLE,
        _ => MAP_PRIVATE,
    };
    let mut flags = kind | MAP_FIXED | MAP_ANONYMOUS | extra_flags(c);
    if addr >= DEEP && kind == MAP_PRIVATE && c.rng.chance(1, 2) {
        flags |= MAP_GROWSDOWN;
    }
    c.spoil(
        Call::new(sysno::MMAP, [addr, len, prot, flags, u64::MAX, 0]),
        &[0],
        &[1],
    )
}

pub(super) fn extra_flags(c: &mut Choice<'_>) -> u64 {
    match c.rng.below(24) {
        0 | 1 => MAP_POPULATE,
        2 => MAP_LOCKED,
        3 | 4 => MAP_NORESERVE,
        5 => MAP_STACK,
        6 => MAP_POPULATE | MAP_NONBLOCK,
        _ => 0,
    }
}

/// Maps a file at a fixed address, often continuing the file range of a neighbour.
pub(super) fn mmap_file(c: &mut Choice<'_>) -> Op {
    let len = c.len();
    let addr = c.place(len);
    let prot = c.prot();
    let file = c.rng.below(PLAIN_KINDS);
    let kind = c
        .rng
        .pick(&[MAP_SHARED, MAP_PRIVATE, MAP_PRIVATE, MAP_SHARED_VALIDATE]);
    let page = match c.rng.below(3) {
        0 => c.rng.below(FILE_PAGES + 2),
        _ => (addr - START) / PAGE_SIZE % FILE_PAGES,
    };
    let flags = kind | MAP_FIXED | extra_flags(c);
    c.spoil(
        Call::new(
            sysno::MMAP,
            [addr, len, prot, flags, file, page * PAGE_SIZE],
        ),
        &[0, 5],
        &[1],
    )
}

/// Maps memory without a fixed address, or with invalid flags.
pub(super) fn mmap_odd(c: &mut Choice<'_>) -> Op {
    let len = c.len();
    let addr = c.place(len);
    let prot = c.prot();
    let kind = c.rng.pick(&[
        MAP_PRIVATE,
        MAP_PRIVATE,
        MAP_SHARED,
        MAP_SHARED_VALIDATE,
        0,
        5,
        MAP_DROPPABLE,
    ]);
    let fixed = c
        .rng
        .pick(&[0, 0, 0, MAP_FIXED_NOREPLACE, MAP_FIXED_NOREPLACE, MAP_FIXED]);
    let more = c.rng.pick(&[
        0,
        0,
        0,
        MAP_GROWSDOWN,
        MAP_SYNC,
        MAP_LOCKED,
        0x80,
        0x800,
        1 << 30,
    ]);
    let kind = match kind {
        MAP_DROPPABLE if c.theme == Theme::Pages => MAP_PRIVATE,
        kind => kind,
    };
    let anonymous = c.rng.pick(&[MAP_ANONYMOUS, MAP_ANONYMOUS, 0]);
    let file = c.rng.below(PLAIN_KINDS);
    let prot = prot | c.rng.pick(&[0, 0, 0, 8, 0x10, 0x0100_0000]);
    Op::Call(Call::new(
        sysno::MMAP,
        [addr, len, prot, kind | fixed | more | anonymous, file, 0],
    ))
}

/// Maps memory that is large enough for huge pages where the kernel wants to.
pub(super) fn mmap_anywhere(c: &mut Choice<'_>) -> Op {
    let pages = c.rng.pick(&[0, 0, 0, 1]) * PAGE_SIZE;
    let len = c.rng.pick(&[1, 2]) * PMD_SIZE + pages;
    let kind = c.rng.pick(&[MAP_PRIVATE, MAP_PRIVATE, MAP_SHARED]);
    let anonymous = c.rng.pick(&[MAP_ANONYMOUS, 0]);
    let file = c.rng.below(PLAIN_KINDS);
    let flags = kind | anonymous | MAP_NORESERVE;
    Op::Call(Call::new(sysno::MMAP, [0, len, 0, flags, file, 0]))
}

pub(super) fn munmap(c: &mut Choice<'_>) -> Op {
    let (addr, len) = c.range();
    c.spoil(Call::new(sysno::MUNMAP, [addr, len]), &[0], &[1])
}

pub(super) fn mprotect(c: &mut Choice<'_>) -> Op {
    let (addr, len) = c.range();
    let mut prot = c.prot();
    if c.rng.chance(1, 40) {
        prot |= c
            .rng
            .pick(&[8, 0x10, 0x0100_0000, 0x0100_0000, 0x0200_0000, 0x0300_0000]);
    }
    if c.rng.chance(1, 40) {
        let key = c.rng.pick(&[u64::MAX, 0, 1, 1, 2, 2, 3, 15, 16]);
        return Op::Call(Call::new(sysno::PKEY_MPROTECT, [addr, len, prot, key]));
    }
    c.spoil(Call::new(sysno::MPROTECT, [addr, len, prot]), &[0], &[1])
}

pub(super) fn mremap(c: &mut Choice<'_>) -> Op {
    const MAYMOVE: u64 = 1;
    const FIXED: u64 = 2;
    const DONTUNMAP: u64 = 4;
    let (addr, len) = c.range();
    let fixed = MAYMOVE | FIXED;
    let mut flags = c
        .rng
        .pick(&[0, 0, fixed, fixed, fixed, fixed, fixed | DONTUNMAP]);
    if c.rng.chance(1, 16) {
        flags = c.rng.below(9);
    }
    let new_len = if flags & DONTUNMAP != 0 || c.rng.chance(2, 3) && flags & FIXED != 0 {
        len
    } else {
        c.len()
    };
    let old_len = if c.rng.chance(1, 32) { 0 } else { len };
    let to = c.place(new_len);
    c.spoil(
        Call::new(sysno::MREMAP, [addr, old_len, new_len, flags, to]),
        &[0, 4],
        &[1, 2],
    )
}

/// Moves a whole mapping to `to`.
pub(super) fn move_whole(v: &Mapped, to: u64) -> Op {
    const MAYMOVE_FIXED: u64 = 3;
    let len = v.end - v.start;
    let args = [v.start, len, len, MAYMOVE_FIXED, to];
    Op::Call(Call::new(sysno::MREMAP, args))
}

pub(super) fn madvise_flags(c: &mut Choice<'_>) -> Op {
    let (addr, len) = c.range();
    let advice = c
        .rng
        .pick(&[0, 0, 1, 2, 10, 11, 11, 12, 13, 14, 15, 16, 17, 18, 19, 19]);
    c.spoil(Call::new(sysno::MADVISE, [addr, len, advice]), &[0], &[])
}

/// `MADV_FREE`: if pages can be swapped out, Linux may free them immediately or never.
const FREE: u64 = 8;
const PAGEOUT: u64 = 21;

pub(super) fn madvise_pages(c: &mut Choice<'_>) -> Op {
    let (addr, len) = c.range();
    let mut advice = c
        .rng
        .pick(&[3, 4, 4, 4, 4, FREE, 9, 20, 22, 23, 24, 102, 103, 5, 26, 104]);
    if advice == FREE && c.theme == Theme::Pages {
        advice = PAGEOUT;
    }
    c.spoil(Call::new(sysno::MADVISE, [addr, len, advice]), &[0], &[])
}

pub(super) fn mlock(c: &mut Choice<'_>) -> Op {
    let (addr, len) = c.range();
    let call = match c.rng.below(6) {
        0 | 1 => Call::new(sysno::MLOCK, [addr, len]),
        2 => Call::new(sysno::MLOCK2, [addr, len, 1]),
        3 => Call::new(sysno::MLOCK2, [addr, len, c.rng.pick(&[0, 2, 3])]),
        _ => Call::new(sysno::MUNLOCK, [addr, len]),
    };
    c.spoil(call, &[0], &[])
}

pub(super) fn mlockall(c: &mut Choice<'_>) -> Op {
    Op::Call(if c.rng.chance(1, 2) {
        let flags = c.rng.pick(&[1, 2, 3, 5, 6, 7, 4, 0, 8]);
        Call::new(sysno::MLOCKALL, [flags])
    } else {
        Call::new(sysno::MUNLOCKALL, [])
    })
}
