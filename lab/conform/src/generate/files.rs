//! Generation of private file mappings that are written, moved, and given neighbours.
//!
//! Whether they merge depends on two page offsets: that of the file, and that of the pages that were
//! written. A mapping that was written keeps the latter when it moves.

use super::super::arena::{FILE_PAGES, PLAIN_KINDS};
use super::super::model::Mapped;
use super::super::op::{Call, Op};
use super::calls::move_whole;
use super::process::write;
use super::{Choice, PROT_READ, PROT_WRITE};
use vmarea::types::PAGE_SIZE;
use vmarea_trace::sysno;

const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;

/// Returns a private file mapping of the sequence, with the number of its file.
fn private(c: &mut Choice<'_>) -> Option<(Mapped, u64)> {
    let all = c.vmas.iter().filter(|v| !v.shared);
    let all: Vec<(Mapped, u64)> = all.filter_map(|v| Some((*v, v.number?))).collect();
    (!all.is_empty()).then(|| c.rng.pick(&all))
}

fn map(at: u64, pages: u64, file: u64, first: u64) -> Op {
    let prot = PROT_READ | PROT_WRITE;
    let args = [
        at,
        pages * PAGE_SIZE,
        prot,
        MAP_PRIVATE | MAP_FIXED,
        file,
        first * PAGE_SIZE,
    ];
    Op::Call(Call::new(sysno::MMAP, args))
}

/// Maps a file privately and writable: beside a mapping of the same file whose range it continues,
/// or anywhere.
pub(super) fn mmap_private(c: &mut Choice<'_>) -> Op {
    let pages = 1 + c.rng.below(3);
    match private(c) {
        Some((v, file)) if c.rng.chance(3, 4) => {
            if c.rng.chance(1, 2) && v.pgoff >= pages {
                map(v.start - pages * PAGE_SIZE, pages, file, v.pgoff - pages)
            } else {
                let after = v.pgoff + (v.end - v.start) / PAGE_SIZE;
                map(v.end, pages, file, after)
            }
        }
        _ => {
            let at = c.place(pages * PAGE_SIZE);
            let file = c.rng.below(PLAIN_KINDS);
            map(at, pages, file, c.rng.below(FILE_PAGES))
        }
    }
}

/// Moves a whole private file mapping.
pub(super) fn move_private(c: &mut Choice<'_>) -> Op {
    let Some((v, _)) = private(c) else {
        return mmap_private(c);
    };
    let to = c.place(v.end - v.start);
    move_whole(&v, to)
}

/// Seals a private file mapping, or makes it read-only first: discarding its pages needs the right to
/// write then.
pub(super) fn seal_private(c: &mut Choice<'_>) -> Op {
    let Some((v, _)) = private(c) else {
        return mmap_private(c);
    };
    let len = v.end - v.start;
    Op::Call(match v.writable {
        true => Call::new(sysno::MPROTECT, [v.start, len, PROT_READ]),
        false => Call::new(sysno::MSEAL, [v.start, len, 0]),
    })
}

/// Discards the pages of a private file mapping.
pub(super) fn discard_private(c: &mut Choice<'_>) -> Op {
    const MADV_DONTNEED: u64 = 4;
    match private(c) {
        Some((v, _)) => {
            let args = [v.start, v.end - v.start, MADV_DONTNEED];
            Op::Call(Call::new(sysno::MADVISE, args))
        }
        None => mmap_private(c),
    }
}

/// Writes into a private file mapping.
pub(super) fn write_private(c: &mut Choice<'_>) -> Op {
    match private(c) {
        Some((v, _)) if v.writable => {
            let page = c.rng.below((v.end - v.start) / PAGE_SIZE);
            let addr = v.start + page * PAGE_SIZE;
            Op::Write {
                addr,
                value: c.rng.next_u64(),
            }
        }
        _ => write(c),
    }
}

/// Marks all mappings of the process, and those to come, for KSM, or no longer.
pub(super) fn merge_equal_pages(c: &mut Choice<'_>) -> Op {
    const MEMORY_MERGE: u64 = 67;
    let on = c.rng.pick(&[0, 1, 1]);
    Op::Call(Call::new(sysno::PRCTL, [MEMORY_MERGE, on, 0, 0, 0]))
}
