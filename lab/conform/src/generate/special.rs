//! Generation of calls outside of the arena and on special files.
//!
//! These calls use the kernel's special mappings (`[vvar]`, `[vdso]`), the lowest addresses, a
//! hugetlb file, and secret memory. Only secret memory is read and written.

use super::super::arena::{FILE_PAGES, HUGE_FILE, POOL, SECRET, SPECIAL_TO};
use super::super::model::Mapped;
use super::super::op::{Call, Op};
use super::Choice;
use super::calls::{extra_flags, mmap, munmap};
use vmarea::types::{FileKind, PAGE_SIZE, PMD_SIZE};
use vmarea_trace::sysno;

const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_NORESERVE: u64 = 0x4000;

/// Maps memory with a hint around the lowest address, or unmaps memory there.
pub(super) fn low_hint(c: &mut Choice<'_>) -> Op {
    let lowest = c.model.machine().space().system().lowest_addr();
    let len = (1 + c.rng.below(4)) * PAGE_SIZE;
    if c.rng.chance(1, 2) {
        let at = lowest + c.rng.below(4) * PAGE_SIZE;
        return Op::Call(Call::new(sysno::MUNMAP, [at, len]));
    }
    let hint = c.rng.pick(&[
        1,
        PAGE_SIZE - 1,
        PAGE_SIZE,
        PAGE_SIZE,
        4 * PAGE_SIZE,
        lowest - 1,
        lowest,
        lowest + 1,
        lowest + PAGE_SIZE,
    ]);
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    Op::Call(Call::new(sysno::MMAP, [hint, len, 0, flags, u64::MAX, 0]))
}

fn of_kind(c: &Choice<'_>, kind: FileKind) -> Vec<Mapped> {
    let mut all = c.model.others(c.process);
    all.retain(|v| v.kind == Some(kind));
    all
}

/// Generates a call on a special mapping of the kernel, mostly on a part of it.
pub(super) fn special(c: &mut Choice<'_>) -> Op {
    const ADVICE: [u64; 9] = [0, 1, 2, 4, 10, 11, 16, 17, 22];
    let all = of_kind(c, FileKind::Special);
    if all.is_empty() || !c.facts.special {
        return munmap(c);
    }
    let v = c.rng.pick(&all);
    let pages = (v.end - v.start) / PAGE_SIZE;
    let mut first = c.rng.below(pages);
    let mut count = 1 + c.rng.below(pages - first);
    let prot = c.prot();
    let mut call = match c.rng.below(12) {
        0..=2 => {
            // A special mapping cannot be restored, so usually one page is kept.
            if count == pages && c.rng.chance(7, 8) {
                (first, count) = (0, pages - 1);
            }
            Call::new(sysno::MUNMAP, [0, 0])
        }
        3 | 4 => Call::new(sysno::MPROTECT, [0, 0, prot]),
        5 | 6 => Call::new(sysno::MADVISE, [0, 0, c.rng.pick(&ADVICE)]),
        7 => Call::new(sysno::MLOCK, [0, 0]),
        8 if count < pages || c.rng.chance(1, 16) => Call::new(sysno::MSEAL, [0, 0, 0]),
        9 => Call::new(
            sysno::MREMAP,
            [0, 0, c.rng.below(pages + 2) * PAGE_SIZE, 1, 0],
        ),
        _ => {
            let to = SPECIAL_TO + c.rng.below(8) * 16 * PAGE_SIZE;
            if c.rng.chance(1, 3) {
                (first, count) = (0, pages);
            }
            let flags = c.rng.pick(&[3, 3, 3, 5, 7]);
            Call::new(sysno::MREMAP, [0, 0, count * PAGE_SIZE, flags, to])
        }
    };
    (call.args[0], call.args[1]) = (v.start + first * PAGE_SIZE, count * PAGE_SIZE);
    Op::Call(call)
}

/// Maps the hugetlb file in an area large enough for huge pages, or unmaps such a mapping.
pub(super) fn huge_file(c: &mut Choice<'_>) -> Op {
    if !c.facts.huge_file {
        return mmap(c);
    }
    let mapped = of_kind(c, FileKind::Hugetlb);
    let pages = c.rng.pick(&[0, 0, 0, 1, 511]) * PAGE_SIZE;
    if mapped.len() > 2 || !mapped.is_empty() && c.rng.chance(1, 3) {
        let v = c.rng.pick(&mapped);
        let from = v.start + c.rng.pick(&[0, 0, 0, PAGE_SIZE, PMD_SIZE]);
        let from = from.min(v.end - PAGE_SIZE);
        let len = (PMD_SIZE + pages).min(v.end - from);
        return Op::Call(Call::new(sysno::MUNMAP, [from, len]));
    }
    let len = c.rng.pick(&[1, 1, 2]) * PMD_SIZE - pages;
    let hint = match c.rng.below(2) {
        0 => 0,
        _ => POOL + c.rng.below(4) * PMD_SIZE + c.rng.pick(&[0, PAGE_SIZE, PMD_SIZE / 2, 1]),
    };
    let offset = c.rng.pick(&[0, 0, 0, PMD_SIZE, PAGE_SIZE]);
    let prot = c.prot();
    // Without `MAP_NORESERVE` the pool would need free pages. With `MAP_PRIVATE`, `mlockall` would
    // create an anon_vma if the pool has free pages.
    let flags = MAP_SHARED | MAP_NORESERVE;
    let args = [hint, len, prot, flags, HUGE_FILE, offset];
    Op::Call(Call::new(sysno::MMAP, args))
}

/// Maps secret memory, which only the process itself can access.
pub(super) fn secret(c: &mut Choice<'_>) -> Op {
    if !c.facts.secret {
        return mmap(c);
    }
    let len = c.len();
    let addr = c.place(len);
    let prot = c.prot();
    let kind = c
        .rng
        .pick(&[MAP_SHARED, MAP_SHARED, MAP_SHARED, 3, MAP_PRIVATE]);
    let page = c.rng.below(FILE_PAGES);
    let flags = kind | MAP_FIXED | extra_flags(c);
    let args = [addr, len, prot, flags, SECRET, page * PAGE_SIZE];
    c.spoil(Call::new(sysno::MMAP, args), &[0, 5], &[1])
}
