//! Generation of arguments close to a limit of address spaces, registers or sums.
//!
//! One or two arguments of an ordinary call are replaced by numbers close to 0, to the page size,
//! to the end of the address space, or to the powers of two at which a value wraps or changes sign.
//! Calls that would remove memory that the process itself needs are not generated.

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

/// Type of an argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Is {
    /// An address.
    Address,
    /// A length in bytes, either small or larger than the available space.
    ///
    /// Lengths in between are not used, because creating such large mappings would take too long.
    Length,
    /// An offset in a file.
    Offset,
    /// Flags, or an enumerated value.
    Word,
}

use Is::{Address, Length, Offset, Word};

/// Returns which arguments of a call may be replaced, with their types.
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

/// Generates a call with arguments close to a limit.
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
    match call.nr {
        sysno::MMAP => tame(&mut call),
        sysno::MBIND => process::spare_other_nodes(&mut call),
        _ => {}
    }
    if spares_the_process(c, &call) {
        Op::Call(call)
    } else {
        process::read(c)
    }
}

/// Removes flags and replaces addresses whose effects cannot be compared.
///
/// With `MAP_32BIT` and no fixed address, Linux begins its search at a random address; with
/// `MAP_HUGETLB`, the machine may have no free huge page. Linux treats a result in the last page of
/// the address range as an error number, and the core does not know all error numbers.
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

/// Returns a number close to a limit.
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
        // This length and an arena address add up to a sum that wraps, or to the end of the address
        // space.
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

/// Returns an offset at which a mapping of `len` bytes starts or ends at or close to a limit.
///
/// In most cases the limit is the maximum offset of files or devices. Most offsets are multiples of
/// the page size.
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

/// Returns `old` with one of its bits inverted, or a number close to a limit.
fn word(c: &mut Choice<'_>, old: u64) -> u64 {
    match c.rng.below(4) {
        0 => number(c, Word),
        _ => old ^ 1 << c.rng.below(64),
    }
}

/// Returns true if the call affects no mapping outside of the arena.
fn spares_the_process(c: &Choice<'_>, call: &Call) -> bool {
    const BENIGN_ADVICE: Range<u64> = 0..3;
    let others = c.model.others(c.process);
    let [a, b, new_len, flags, to, _] = call.args;
    let apart = |range: Option<VmRange>| range.is_none_or(|range| is_apart(&others, range));
    // A call that fails at a hole affects nothing after the hole.
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
            // A shrinking `mremap` may unmap beyond the end of the mapping.
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

/// Returns the address of the first hole at or after `start`.
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
