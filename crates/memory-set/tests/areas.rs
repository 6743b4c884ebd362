//! Tests of the interface with a mock page table, and with random operations on both crates.

use memory_addr::{AddrRange, VirtAddr};
use vmarea_memory_set::{MappingBackend, MappingError, MemoryArea, MemorySet};
use vmarea_test_support::failing_allocator::{FailingAllocator, allocated_bytes};

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

const PAGE: usize = 4096;
const PAGES: usize = 64;

/// Flags of each page; 0 for an unmapped page.
type Table = [u8; PAGES];

/// A backend that sets flags in the table, and refuses to map a mapped page or change an unmapped
/// one.
#[derive(Clone)]
struct Direct;

/// Sets the entries of a range to `to` if `allows` returns true for all of them.
fn change(
    table: &mut Table,
    (start, size): (VirtAddr, usize),
    allows: fn(u8) -> bool,
    to: u8,
) -> bool {
    let first = start.as_usize() / PAGE;
    let entries = &mut table[first..first + size / PAGE];
    let allowed = entries.iter().all(|entry| allows(*entry));
    if allowed {
        entries.fill(to);
    }
    allowed
}

/// Implements the backend trait of one of the two crates.
macro_rules! implement {
    ($backend:path) => {
        impl $backend for Direct {
            type Addr = VirtAddr;
            type Flags = u8;
            type PageTable = Table;

            fn map(&self, start: VirtAddr, size: usize, flags: u8, table: &mut Table) -> bool {
                change(table, (start, size), |entry| entry == 0, flags)
            }
            fn unmap(&self, start: VirtAddr, size: usize, table: &mut Table) -> bool {
                change(table, (start, size), |entry| entry != 0, 0)
            }
            fn protect(&self, start: VirtAddr, size: usize, flags: u8, table: &mut Table) -> bool {
                change(table, (start, size), |entry| entry != 0, flags)
            }
        }
    };
}
implement!(MappingBackend);
implement!(memory_set::MappingBackend);

fn at(page: usize) -> VirtAddr {
    VirtAddr::from(page * PAGE)
}

fn area(page: usize, pages: usize, flags: u8) -> MemoryArea<Direct> {
    MemoryArea::new(at(page), pages * PAGE, flags, Direct)
}

/// Returns the first page, the number of pages and the flags of each area.
fn areas(set: &MemorySet<Direct>) -> Vec<(usize, usize, u8)> {
    let describe = |area: MemoryArea<Direct>| {
        let first = area.start().as_usize() / PAGE;
        (first, area.size() / PAGE, area.flags())
    };
    set.iter().map(describe).collect()
}

#[test]
fn a_set_without_areas_is_empty_and_needs_no_memory() {
    const EMPTY: MemorySet<Direct> = MemorySet::new();
    let (before, mut set, mut table) = (allocated_bytes(), EMPTY, [0; PAGES]);
    let all = AddrRange::new(at(0), at(PAGES));
    assert!(set.is_empty() && set.iter().next().is_none() && !set.overlaps(all));
    assert!(set.find(at(1)).is_none());
    assert_eq!(set.find_free_area(at(2), PAGE, all, PAGE), Some(at(2)));
    set.unmap(at(0), PAGE, &mut table).unwrap();
    set.protect(at(0), PAGE, Some, &mut table).unwrap();
    assert_eq!(allocated_bytes(), before);
    set.map(area(1, 4, 1), &mut table, false).unwrap();
    set.clear(&mut table).unwrap();
    let records = allocated_bytes() - before;
    assert!(records < 1024, "{records} bytes are left");
}

#[test]
fn unmapping_the_middle_leaves_two_areas() {
    let (mut set, mut table) = (MemorySet::new(), [0; PAGES]);
    set.map(area(1, 4, 1), &mut table, false).unwrap();
    set.unmap(at(2), 2 * PAGE, &mut table).unwrap();
    assert_eq!(areas(&set), [(1, 1, 1), (4, 1, 1)]);
    assert_eq!(table[..6], [0, 1, 0, 0, 1, 0]);
    assert!(set.find(at(2)).is_none());
    assert_eq!(set.find(at(4) + 5).unwrap().end(), at(5));
}

#[test]
fn areas_of_their_own_stay_apart() {
    let (mut set, mut table) = (MemorySet::new(), [0; PAGES]);
    for page in 0..PAGES {
        set.map(area(page, 1, 1), &mut table, false).unwrap();
    }
    assert_eq!(set.len(), PAGES);
    let again = set.map(area(7, 9, 3), &mut table, false);
    assert_eq!(again, Err(MappingError::AlreadyExists));
    set.map(area(7, 9, 3), &mut table, true).unwrap();
    assert_eq!(set.len(), PAGES - 8);
    assert_eq!(set.find(at(15)).unwrap().flags(), 3);
    set.clear(&mut table).unwrap();
    assert!(set.is_empty() && table == [0; PAGES]);
}

#[test]
fn protecting_splits_and_undoing_it_joins() {
    let (mut set, mut table) = (MemorySet::new(), [0; PAGES]);
    set.map(area(0, 8, 7), &mut table, false).unwrap();
    set.protect(at(2), 3 * PAGE, |_| Some(1), &mut table)
        .unwrap();
    assert_eq!(areas(&set), [(0, 2, 7), (2, 3, 1), (5, 3, 7)]);
    let none = set.protect(at(0), 8 * PAGE, |_| None, &mut table);
    assert_eq!((none, set.len()), (Ok(()), 3));
    set.protect(at(0), 8 * PAGE, |_| Some(7), &mut table)
        .unwrap();
    assert_eq!(areas(&set), [(0, 8, 7)]);
}

#[test]
fn the_lowest_free_range_is_found() {
    let (mut set, mut table) = (MemorySet::new(), [0; PAGES]);
    for page in (0..16).step_by(2) {
        set.map(area(page, 1, 1), &mut table, false).unwrap();
    }
    let limit = AddrRange::new(at(0), at(20));
    let find = |hint, pages, align| set.find_free_area(at(hint), pages * PAGE, limit, align * PAGE);
    assert_eq!(find(0, 1, 1), Some(at(1)));
    assert_eq!(find(2, 1, 1), Some(at(3)));
    assert_eq!(find(0, 2, 1), Some(at(15)));
    assert_eq!(find(0, 4, 4), Some(at(16)));
    assert_eq!(find(0, 3, 2), None, "not a multiple of the alignment");
    assert_eq!(find(0, 6, 1), None, "beyond the limit");
}

#[test]
fn what_is_wrong_is_refused_and_changes_nothing() {
    let (mut set, mut table) = (MemorySet::new(), [0; PAGES]);
    let invalid = Err(MappingError::InvalidParam);
    assert_eq!(set.map(area(1, 0, 1), &mut table, false), invalid);
    let half = MemoryArea::new(at(1), PAGE / 2, 1, Direct);
    assert_eq!(set.map(half, &mut table, false), invalid);
    assert_eq!(set.unmap(at(1) + 1, PAGE, &mut table), invalid);
    let wraps = set.protect(at(1), usize::MAX - PAGE + 1, |_| Some(1), &mut table);
    assert_eq!(wraps, invalid);
    assert_eq!(set.unmap(at(1), 0, &mut table), Ok(()));
    table[3] = 1;
    let refused = set.map(area(2, 4, 1), &mut table, false);
    assert_eq!(refused, Err(MappingError::BadState));
    assert!(set.is_empty());
    set.map(area(8, 2, 1), &mut table, false).unwrap();
    table[9] = 0;
    let refused = set.protect(at(8), 2 * PAGE, |_| Some(2), &mut table);
    assert_eq!(refused, Err(MappingError::BadState));
    assert_eq!(areas(&set), [(8, 2, 1)]);
}

/// A backend that accepts any address, including those for which the test has no page table.
#[derive(Clone)]
struct Anything;

impl MappingBackend for Anything {
    type Addr = VirtAddr;
    type Flags = u8;
    type PageTable = ();

    fn map(&self, _: VirtAddr, _: usize, _: u8, (): &mut ()) -> bool {
        true
    }
    fn unmap(&self, _: VirtAddr, _: usize, (): &mut ()) -> bool {
        true
    }
    fn protect(&self, _: VirtAddr, _: usize, _: u8, (): &mut ()) -> bool {
        true
    }
}

#[test]
fn the_upper_half_has_areas_too() {
    let mut set = MemorySet::new();
    let start = VirtAddr::from(0xffff_8000_0000_0000);
    let area = MemoryArea::new(start, 1 << 40, 1, Anything);
    set.map(area, &mut (), false).unwrap();
    set.protect(start + PAGE, PAGE, |_| Some(2), &mut ())
        .unwrap();
    assert_eq!(set.len(), 3);
    set.clear(&mut ()).unwrap();
    assert!(set.is_empty());
}

/// Returns the next number of a pseudo-random sequence (xorshift).
fn next(seed: &mut u64) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed >> 16) as usize
}

#[test]
fn random_operations_end_as_in_memory_set() {
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..200 {
        let (mut ours, mut table) = (MemorySet::new(), [0; PAGES]);
        let (mut theirs, mut expected) = (memory_set::MemorySet::new(), [0; PAGES]);
        for step in 0..60 {
            let page = next(&mut seed) % PAGES;
            let pages = 1 + next(&mut seed) % (PAGES - page).min(12);
            let flags = 1 + (next(&mut seed) % 3) as u8;
            let (start, size) = (at(page), pages * PAGE);
            let (worked, should) = match next(&mut seed) % 4 {
                0 | 1 => {
                    let overlaps = flags == 1;
                    let other = memory_set::MemoryArea::new(start, size, flags, Direct);
                    let area = area(page, pages, flags);
                    (
                        ours.map(area, &mut table, overlaps).is_ok(),
                        theirs.map(other, &mut expected, overlaps).is_ok(),
                    )
                }
                2 => (
                    ours.unmap(start, size, &mut table).is_ok(),
                    theirs.unmap(start, size, &mut expected).is_ok(),
                ),
                _ => {
                    let update = |old: u8| (old != 2).then_some(flags);
                    (
                        ours.protect(start, size, update, &mut table).is_ok(),
                        theirs.protect(start, size, update, &mut expected).is_ok(),
                    )
                }
            };
            assert_eq!((worked, table), (should, expected), "step {step}");
            assert!(ours.len() <= theirs.len());
            for (page, expected) in table.into_iter().enumerate() {
                let flags = ours.find(at(page)).map_or(0, |area| area.flags());
                assert_eq!(flags, expected, "page {page} after step {step}");
            }
            let limit = AddrRange::new(at(0), at(PAGES));
            assert_eq!(
                ours.find_free_area(start, size, limit, PAGE),
                theirs.find_free_area(start, size, limit, PAGE)
            );
        }
    }
}
