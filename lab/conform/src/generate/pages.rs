//! Generation of background work on pages: swap, KSM, migration, huge pages.

use super::super::arena::{END, HUGE, HUGE_SLOTS};
use super::super::model::Mapped;
use super::super::op::{Call, Op, Work};
use super::process::{read, touched};
use super::{Choice, Theme};
use vmarea::types::{PAGE_SIZE, PMD_SIZE};
use vmarea_trace::sysno;

const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MADV_DONTNEED: u64 = 4;
const MADV_MERGEABLE: u64 = 12;
const MADV_UNMERGEABLE: u64 = 13;
const MADV_HUGEPAGE: u64 = 14;
const MADV_NOHUGEPAGE: u64 = 15;
const MADV_PAGEOUT: u64 = 21;
const MADV_COLLAPSE: u64 = 25;

/// Generates background work that a kernel may do at any time.
pub(super) fn background(c: &mut Choice<'_>) -> Op {
    let page = touched(c, true) & !(PAGE_SIZE - 1);
    Op::Background(match c.rng.below(4) {
        // With huge pages nothing is swapped out, so Linux may discard pages freed with
        // `MADV_FREE`.
        0 | 1 if c.theme == Theme::Pages => Work::SwapOut(page),
        2 if c.theme == Theme::Pages || c.facts.merges_huge => Work::MergeEqual,
        _ => Work::Migrate(page),
    })
}

pub(super) fn mergeable(c: &mut Choice<'_>) -> Op {
    let (addr, len) = c.range();
    let advice = c
        .rng
        .pick(&[MADV_MERGEABLE, MADV_MERGEABLE, MADV_UNMERGEABLE]);
    Op::Call(Call::new(sysno::MADVISE, [addr, len, advice]))
}

/// Writes one of a few values at the start of a page, so that some pages have equal contents.
pub(super) fn write_equal(c: &mut Choice<'_>) -> Op {
    Op::Write {
        addr: touched(c, true) & !(PAGE_SIZE - 1),
        value: c.rng.below(3),
    }
}

pub(super) fn page_out(c: &mut Choice<'_>) -> Op {
    let (addr, len) = c.range();
    Op::Call(Call::new(sysno::MADVISE, [addr, len, MADV_PAGEOUT]))
}

/// Maps anonymous memory large enough for huge pages, sometimes one page shorter.
pub(super) fn mmap_huge(c: &mut Choice<'_>) -> Op {
    let slot = c.rng.below(HUGE_SLOTS);
    let slots = 1 + c.rng.below(HUGE_SLOTS - slot);
    let prot = c.prot();
    let flags = MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS;
    let addr = HUGE + slot * PMD_SIZE;
    let len = slots * PMD_SIZE - c.rng.pick(&[0, 0, 0, 0, 0, PAGE_SIZE]);
    Op::Call(Call::new(
        sysno::MMAP,
        [addr, len, prot, flags, u64::MAX, 0],
    ))
}

/// Maps huge pages from the machine's pool.
pub(super) fn mmap_pool(c: &mut Choice<'_>) -> Op {
    const MAP_SHARED: u64 = 1;
    const MAP_NORESERVE: u64 = 0x4000;
    const MAP_HUGETLB: u64 = 0x4_0000;
    let Op::Call(mut call) = mmap_huge(c) else {
        return read(c);
    };
    if c.facts.hugetlb && c.theme == Theme::Pool {
        let kind = c.rng.pick(&[MAP_PRIVATE, MAP_PRIVATE, MAP_SHARED]);
        let more = c.rng.pick(&[0, 0, 0, MAP_NORESERVE]);
        call.args[3] = kind | more | MAP_FIXED | MAP_ANONYMOUS | MAP_HUGETLB;
        call.args[0] += c.rng.pick(&[0, 0, 0, 0, 0, 0, 0, PAGE_SIZE]);
    }
    Op::Call(call)
}

/// Returns a VMA large enough for a huge page, its first huge-page slot and the number of slots.
fn roomy(c: &mut Choice<'_>) -> Option<(Mapped, u64, u64)> {
    let slots = |v: &Mapped| {
        let first = v.start.next_multiple_of(PMD_SIZE);
        (first, (v.end.saturating_sub(first)) / PMD_SIZE)
    };
    let all: Vec<Mapped> = c.vmas.iter().filter(|v| slots(v).1 > 0).copied().collect();
    if all.is_empty() {
        return None;
    }
    let v = c.rng.pick(&all);
    let (first, count) = slots(&v);
    Some((v, first, count))
}

/// Returns the range of a VMA large enough for huge pages, or of some of its huge-page slots.
fn whole_slots(c: &mut Choice<'_>) -> Option<(u64, u64)> {
    let (v, first, count) = roomy(c)?;
    if c.rng.chance(1, 2) {
        return Some((v.start, v.end - v.start));
    }
    let from = c.rng.below(count);
    let slots = 1 + c.rng.below(count - from);
    Some((first + from * PMD_SIZE, slots * PMD_SIZE))
}

/// Permits huge pages in a range (`MADV_HUGEPAGE`).
pub(super) fn advise_huge(c: &mut Choice<'_>) -> Op {
    let Some((addr, len)) = whole_slots(c) else {
        return mmap_huge(c);
    };
    Op::Call(Call::new(sysno::MADVISE, [addr, len, MADV_HUGEPAGE]))
}

/// Discards the pages of whole huge-page slots, and with them their page tables.
pub(super) fn discard_slots(c: &mut Choice<'_>) -> Op {
    let Some((addr, len)) = whole_slots(c) else {
        return mmap_huge(c);
    };
    Op::Call(Call::new(sysno::MADVISE, [addr, len, MADV_DONTNEED]))
}

/// Collapses existing pages to a huge page; rarely of a range that contains no whole one.
pub(super) fn collapse(c: &mut Choice<'_>) -> Op {
    let Some((v, first, count)) = roomy(c).filter(|(v, ..)| !v.file) else {
        return mmap_huge(c);
    };
    let from = c.rng.below(count);
    let slot = first + from * PMD_SIZE;
    let range = match c.rng.below(6) {
        0 | 1 => [v.start, v.end - v.start],
        2 => [slot + PAGE_SIZE, (1 + c.rng.below(500)) * PAGE_SIZE],
        _ => [slot, PMD_SIZE],
    };
    let [addr, len] = range;
    Op::Call(Call::new(sysno::MADVISE, [addr, len, MADV_COLLAPSE]))
}

/// Accesses an area large enough for a huge page; the first access may create the huge page.
pub(super) fn touch_huge(c: &mut Choice<'_>) -> Op {
    let Some((_, first, count)) = roomy(c) else {
        return mmap_huge(c);
    };
    let page = c.rng.pick(&[0, 0, 1, 511, 200]);
    let word = c.rng.below(PAGE_SIZE / 8);
    let addr = first + c.rng.below(count) * PMD_SIZE + page * PAGE_SIZE + word * 8;
    if c.rng.chance(1, 2) {
        Op::Read { addr }
    } else {
        let value = c.rng.next_u64();
        Op::Write { addr, value }
    }
}

/// Splits, discards or moves huge pages, at their boundaries or within them.
pub(super) fn cut_huge(c: &mut Choice<'_>) -> Op {
    const MAYMOVE_FIXED: u64 = 3;
    let Some((addr, len)) = whole_slots(c) else {
        return mmap_huge(c);
    };
    let odd = c.rng.pick(&[0, 0, 1, 200, 511]) * PAGE_SIZE;
    let (from, rest) = match c.rng.below(3) {
        0 => (addr, len - odd),
        1 => (addr + odd, len - odd),
        _ => (addr + odd, PAGE_SIZE),
    };
    Op::Call(match c.rng.below(6) {
        0 | 1 => Call::new(sysno::MPROTECT, [from, rest, c.prot()]),
        2 => Call::new(sysno::MUNMAP, [from, rest]),
        3 => Call::new(sysno::MADVISE, [from, rest, MADV_DONTNEED]),
        _ => {
            let shift = c.rng.pick(&[0, 0, 0, PAGE_SIZE]);
            let to = HUGE + c.rng.below(HUGE_SLOTS) * PMD_SIZE + shift;
            let most = (END - to) & !(PAGE_SIZE - 1);
            let moved = rest.min(most);
            Call::new(sysno::MREMAP, [from, moved, moved, MAYMOVE_FIXED, to])
        }
    })
}

/// Disables or enables huge pages for the process.
pub(super) fn thp_disable(c: &mut Choice<'_>) -> Op {
    const THP_DISABLE: u64 = 41;
    let on = c.rng.below(2);
    let how = on * c.rng.pick(&[0, 0, 2]);
    Op::Call(Call::new(sysno::PRCTL, [THP_DISABLE, on, how, 0, 0]))
}

pub(super) fn madvise_huge(c: &mut Choice<'_>) -> Op {
    let (addr, len) = c.range();
    // Whether the pages of a file collapse depends on all processes that have used the file.
    let files = c
        .vmas
        .iter()
        .any(|v| v.file && v.start < addr + len && addr < v.end);
    let advice = match c.rng.below(5) {
        0 if !files => MADV_COLLAPSE,
        1 => MADV_NOHUGEPAGE,
        _ => MADV_HUGEPAGE,
    };
    Op::Call(Call::new(sysno::MADVISE, [addr, len, advice]))
}
