//! Tests of memory use: bytes per range, reservations, and failed allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use vmarea_range_tree::{Entry, OutOfMemory, RangeTree};

/// Allocator that fails a thread's allocations after a given number of successful ones.
struct Refusing;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
}

// SAFETY: each method forwards to the system's allocator or returns null, which is allowed.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let left = LEFT.try_with(|left| {
            let now = left.get();
            left.set(now.saturating_sub(usize::from(now != usize::MAX)));
            now
        });
        if left == Ok(0) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller upholds the contract of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; every block was allocated by the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

fn refuse_after<T>(count: usize, run: impl FnOnce() -> T) -> T {
    LEFT.set(count);
    let result = run();
    LEFT.set(usize::MAX);
    result
}

fn nth(i: u64) -> Entry {
    Entry {
        start: i * 0x3000,
        end: i * 0x3000 + 0x2000,
        value: i,
    }
}

/// Iterates over `0..n` in a scattered order; `n` must not be a multiple of 40 009.
fn scattered(n: u64) -> impl Iterator<Item = u64> {
    (0..n).map(move |i| i * 40_009 % n)
}

#[test]
#[cfg_attr(miri, ignore = "too large")]
fn a_range_takes_at_most_36_bytes_at_65000() {
    const N: u64 = 65_000;
    let orders: [(&str, Vec<u64>); 3] = [
        ("ascending", (0..N).collect()),
        ("descending", (0..N).rev().collect()),
        ("scattered", scattered(N).collect()),
    ];
    for (name, order) in orders {
        let tree = RangeTree::new();
        for i in order {
            tree.write().insert(nth(i));
        }
        tree.validate().expect("valid");
        assert!(
            tree.bytes() as u64 <= 36 * N,
            "{name}: {} bytes a range",
            tree.bytes() as f64 / N as f64
        );
        assert!((0..N).all(|i| tree.find(i * 0x3000 + 0x1fff) == Some(nth(i))));
        assert_eq!(tree.gap_highest(0, nth(N - 1).end, 0x1001), None);
        for i in scattered(N).filter(|i| i % 16 != 0) {
            assert_eq!(tree.write().remove(nth(i).start), Some(nth(i)));
        }
        tree.validate().expect("valid after removals");
        assert_eq!(
            tree.gap_lowest(0, u64::MAX, 0x8000),
            Some((0x2000, 16 * 0x3000))
        );
    }
}

#[test]
fn reserved_inserts_allocate_nothing() {
    let tree = RangeTree::new();
    let count = if cfg!(miri) { 150 } else { 20_000 };
    let mut order = scattered(count);
    while let Some(i) = order.next() {
        let mut writer = tree.write();
        writer.reserve(3).expect("memory");
        refuse_after(0, || {
            [Some(i), order.next(), order.next()]
                .into_iter()
                .flatten()
                .for_each(|i| writer.insert(nth(i)))
        });
    }
    assert_eq!(tree.len() as u64, count);
    tree.validate().expect("valid");
}

#[test]
fn a_refused_reservation_changes_nothing() {
    let tree = RangeTree::new();
    let (ranges, more) = if cfg!(miri) { (70, 8) } else { (500, 200) };
    (0..ranges).for_each(|i| tree.write().insert(nth(i)));
    let mut refusals = 0;
    for count in 0.. {
        match refuse_after(count, || tree.write().reserve(more)) {
            Err(OutOfMemory) => refusals += 1,
            Ok(()) => break,
        }
        tree.validate().expect("valid");
        assert_eq!(tree.len() as u64, ranges);
    }
    assert!(refusals > more / 9, "{refusals} places to fail");
    tree.write().insert(nth(ranges));
}

#[test]
fn misuse_panics() {
    /// Fills two leaves.
    const RANGES: u64 = 100;
    let check = |change: fn(&RangeTree)| {
        let tree = RangeTree::new();
        (0..RANGES).for_each(|i| tree.write().insert(nth(i)));
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| change(&tree)));
        assert!(refused.is_err());
        assert_eq!(tree.len() as u64, RANGES);
        tree.validate().expect("valid");
        assert!(tree.gap_lowest(0, 0x3000, 0x1000).is_some());
    };
    check(|tree| {
        tree.write().insert(Entry {
            start: 5,
            end: 5,
            value: 0,
        })
    });
    check(|tree| {
        tree.write().insert(Entry {
            start: 0x2fff,
            end: 0x3001,
            value: 0,
        })
    });
    check(|tree| {
        tree.write().insert(Entry {
            start: 0x4fff,
            end: 0x5001,
            value: 0,
        })
    });
    check(|tree| tree.write().resize(7, 7, 8));
    check(|tree| tree.write().resize(0x3000, 0x3000, 0x6001));
    check(|tree| {
        tree.write()
            .resize(0x3000 * 63, 0x3000 * 62, 0x3000 * 63 + 1)
    });
    check(|tree| {
        tree.write()
            .resize(0x3000 * 64, 0x3000 * 62, 0x3000 * 64 + 1)
    });
}
