//! Arguments at the edges: where an address space, a register or a sum ends.
//!
//! An ordinary call has one or two arguments replaced by numbers next to 0, a page, the end of the address
//! space, and the powers of two at which something wraps or changes its sign. What would take away memory
//! that the process itself lives in is not asked for.

use super::super::model::Mapped;
use super::super::op::{Call, Op};
use super::{Choice, calls, process};
use std::ops::Range;
use vmarea::types::{PAGE_SIZE, PMD_SIZE, VmRange};
use vmarea_trace::sysno;

const TASK_SIZE: u64 = 0x7fff_ffff_f000;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_BIT32: u64 = 0x40;
const MAP_HUGETLB: u64 = 0x4_0000;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MREMAP_PLACED: u64 = 6;

/// What an argument is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Is {
    /// An address.
    Address,
    /// Bytes, of which more than a few are more than there is room for: a mapping that is really large would
    /// take as long.
    Length,
    /// An offset in a file.
    Offset,
    /// Flags, or a number that stands for something.
    Word,
}

use Is::{Address, Length, Offset, Word};

/// The arguments of a call that may be replaced.
fn replaceable(nr: u32) -> &'static [(usize, Is)] {
    match nr {
        sysno::MMAP => &[(0, Address), (1, Length), (2, Word), (3, Word), (5, Offset)],
        sysno::MUNMAP => &[(0, Address), (1, Length)],
        sysno::MPROTECT => &[(0, Address), (1, Length), (2, Word)],
        sysno::PKEY_MPROTECT => &[(0, Address), (1, Length), (2, Word), (3, Word)],
        sysno::MREMAP => &[
            (0, Address),
            (1, Length),
            (2, Length),
            (3, Word),
            (4, Address),
        ],
        sysno::MADVISE => &[(0, Address), (1, Length), (2, Word)],
        sysno::MLOCK | sysno::MUNLOCK => &[(0, Address), (1, Length)],
        sysno::MLOCK2 => &[(0, Address), (1, Length), (2, Word)],
        sysno::MSEAL => &[(0, Address), (1, Length), (2, Word)],
        sysno::MLOCKALL => &[(0, Word)],
        sysno::BRK => &[(0, Address)],
        sysno::MBIND => &[(0, Address), (1, Length), (5, Word)],
        sysno::REMAP_FILE_PAGES => &[(0, Address), (1, Length), (2, Word), (3, Offset)],
        sysno::SHMAT => &[(1, Address)],
        sysno::SHMDT => &[(0, Address)],
        sysno::PKEY_ALLOC => &[(0, Word), (1, Word)],
        _ => &[],
    }
}

/// A call at an edge.
pub(super) fn edge(c: &mut Choice<'_>) -> Op {
    const MAKERS: [fn(&mut Choice<'_>) -> Op; 19] = [
        calls::mmap,
        calls::mmap_file,
        calls::mmap_file,
        calls::mmap_file,
        calls::mmap_odd,
        calls::munmap,
        calls::mprotect,
        calls::mremap,
        calls::mremap,
        calls::madvise_flags,
        calls::madvise_pages,
        calls::mlock,
        calls::mlockall,
        process::brk,
        process::brk,
        process::mseal,
        process::mbind,
        process::remap_file_pages,
        process::shm,
    ];
    let op = c.rng.pick(&MAKERS)(c);
    let Op::Call(mut call) = op else {
        return op;
    };
    let places = replaceable(call.nr);
    if places.is_empty() {
        return Op::Call(call);
    }
    for _ in 0..=c.rng.below(2) {
        let (at, is) = c.rng.pick(places);
        call.args[at] = match is {
            Word => word(c, call.args[at]),
            Offset => offset(c, call.args[1]),
            Address | Length => number(c, is),
        };
    }
    if call.nr == sysno::MMAP {
        tame(&mut call);
    }
    if spares_the_process(c, &call) {
        Op::Call(call)
    } else {
        process::read(c)
    }
}

/// Linux begins at random below 4 GiB, and huge pages may not be there. A fixed address in the last page it
/// takes for an error number, and not all of those are errors of ours.
fn tame(call: &mut Call) {
    if call.args[0] > u64::MAX - PAGE_SIZE + 1 {
        call.args[0] = u64::MAX;
    }
    let flags = &mut call.args[3];
    if *flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) == 0 {
        *flags &= !MAP_BIT32;
    }
    if *flags & MAP_ANONYMOUS != 0 {
        *flags &= !MAP_HUGETLB;
    }
}

/// A number at an edge.
fn number(c: &mut Choice<'_>, is: Is) -> u64 {
    let edges: &[u64] = match is {
        Length => &[
            0,
            PAGE_SIZE,
            TASK_SIZE,
            1 << 47,
            1 << 52,
            1 << 62,
            1 << 63,
            0,
        ],
        Offset => &[0, 1 << 31, 1 << 32, 1 << 44, 1 << 62, 1 << 63, 1 << 63],
        Address | Word => &[0, 1 << 31, 1 << 32, 1 << 46, TASK_SIZE, 1 << 47, 1 << 63, 0],
    };
    let base = match (is, c.rng.below(4)) {
        // What makes a sum with an address of the arena wrap, or end where the address space does.
        (Length, 0) => c.rng.pick(&[0, TASK_SIZE]).wrapping_sub(c.range().0),
        _ => c.rng.pick(edges),
    };
    let by = [
        0,
        1,
        PAGE_SIZE - 1,
        PAGE_SIZE,
        PAGE_SIZE + 1,
        2 * PAGE_SIZE,
        PMD_SIZE,
    ];
    let by = c.rng.pick(&by);
    if c.rng.chance(1, 2) {
        base.wrapping_add(by)
    } else {
        base.wrapping_sub(by)
    }
}

/// An offset at an edge, or one with which a mapping of `len` bytes ends at one, most often where the
/// offsets of files or of devices end; mostly of whole pages.
fn offset(c: &mut Choice<'_>, len: u64) -> u64 {
    const BESIDE: [u64; 4] = [0, 0, PAGE_SIZE, PAGE_SIZE.wrapping_neg()];
    let offset = match c.rng.below(3) {
        0 => {
            let end: u64 = c.rng.pick(&[1 << 63, 1 << 63, 0]);
            end.wrapping_add(c.rng.pick(&BESIDE)).wrapping_sub(len)
        }
        _ => number(c, Offset).wrapping_sub(c.rng.pick(&[0, len])),
    };
    offset & c.rng.pick(&[u64::MAX, !(PAGE_SIZE - 1), !(PAGE_SIZE - 1)])
}

/// The word with one of all its bits turned, or a number.
fn word(c: &mut Choice<'_>, old: u64) -> u64 {
    match c.rng.below(4) {
        0 => number(c, Word),
        _ => old ^ 1 << c.rng.below(64),
    }
}

/// True where nothing that lies outside of the arena is changed, and nothing huge is brought.
fn spares_the_process(c: &Choice<'_>, call: &Call) -> bool {
    const BENIGN_ADVICE: Range<u64> = 0..3;
    let others = c.model.others(c.process);
    let [a, b, new_len, flags, to, _] = call.args;
    let apart = |range: Option<VmRange>| range.is_none_or(|range| is_apart(&others, range));
    // What ends at a hole goes no further.
    let until_hole = |start: u64, len: u64| {
        let start = start & !(PAGE_SIZE - 1);
        let run = end_of_run(c, &others, start);
        let end = start
            .saturating_add(len)
            .saturating_add(2 * PAGE_SIZE)
            .min(run);
        VmRange::of_len(start, end.saturating_sub(start))
    };
    let all = |start: u64, len: u64| VmRange::of_pages(start & !(PAGE_SIZE - 1), len);
    match call.nr {
        sysno::MMAP => {
            let fixed = call.args[3] & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
            !fixed || apart(all(a, b.saturating_add(PMD_SIZE)))
        }
        sysno::MUNMAP => apart(all(a, b)),
        sysno::SHMAT => apart(all(b, PMD_SIZE)),
        sysno::BRK => {
            let places = c.model.places();
            let (a, brk) = (places.placed(a), places.placed(c.brk));
            a >= brk || apart(VmRange::of_len(a, brk - a))
        }
        sysno::MADVISE => BENIGN_ADVICE.contains(&(call.args[2] as u32).into()) || apart(all(a, b)),
        sysno::MBIND => apart(all(a, b)),
        sysno::MREMAP => {
            let placed = flags & MREMAP_PLACED != 0;
            // What is cut off at the end may reach beyond what is mapped.
            let source = match new_len < b {
                true => all(a, b),
                false => until_hole(a, b),
            };
            apart(source) && (!placed || apart(all(to, new_len)))
        }
        sysno::PKEY_ALLOC | sysno::MLOCKALL => true,
        _ => apart(until_hole(a, b)),
    }
}

fn is_apart(others: &[Mapped], range: VmRange) -> bool {
    let touches = |v: &Mapped| v.start < range.end && range.start < v.end;
    !others.iter().any(touches)
}

/// The first hole from `start` on.
fn end_of_run(c: &Choice<'_>, others: &[Mapped], start: u64) -> u64 {
    let mut end = start;
    loop {
        let next = c
            .vmas
            .iter()
            .chain(others)
            .find(|v| v.start <= end && end < v.end);
        match next {
            Some(v) => end = v.end,
            None => return end,
        }
    }
}
