//! Comparison of the tree with an ordered map after each of many random changes.
//!
//! This module is compiled twice: within the crate, with nodes of three rows, so that every kind of
//! reshaping occurs; and as an integration test, with full-size nodes.

use crate::reference::Reference;
use crate::{Entry, RangeTree, Writer};
use proptest::prelude::*;
use std::vec::Vec;

/// Number of changes per test case; lower under Miri, which is a thousand times slower.
const CHANGES: usize = if cfg!(miri) { 60 } else { 400 };
/// The tree is validated after each change of so many, and searched from so many addresses.
const VALIDATED: usize = if cfg!(miri) { 8 } else { 1 };
const SEARCHES: u64 = if cfg!(miri) { 3 } else { 37 };

#[derive(Clone, Copy, Debug)]
enum Change {
    Insert {
        start: u64,
        len: u64,
    },
    /// Inserts several ranges of one address each, with one reservation for all of them.
    Several {
        start: u64,
        count: usize,
    },
    Remove {
        nth: usize,
    },
    /// Moves the bounds of a range within the space between its neighbours, in sixteenths of that
    /// space.
    Resize {
        nth: usize,
        from: u64,
        to: u64,
    },
    /// Removes `count` adjacent ranges, so that nodes merge.
    Clear {
        nth: usize,
        count: usize,
    },
    /// Lets a range take in some of the ranges below and above it.
    Absorb {
        nth: usize,
        below: usize,
        above: usize,
    },
    /// Cuts a range into parts, of which one keeps the value.
    Cut {
        nth: usize,
        parts: u64,
        keeps: u64,
    },
}

fn change(space: u64) -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0..space, 1..8u64).prop_map(|(start, len)| Change::Insert { start, len }),
        1 => (0..space, 2..9usize).prop_map(|(start, count)| Change::Several { start, count }),
        2 => any::<usize>().prop_map(|nth| Change::Remove { nth }),
        2 => (any::<usize>(), 0..16u64, 0..16u64).prop_map(|(nth, from, to)| Change::Resize { nth, from, to }),
        1 => (any::<usize>(), 1..40usize).prop_map(|(nth, count)| Change::Clear { nth, count }),
        1 => (any::<usize>(), 0..4usize, 0..4usize)
            .prop_map(|(nth, below, above)| Change::Absorb { nth, below, above }),
        3 => (any::<usize>(), 1..4u64, 0..4u64)
            .prop_map(|(nth, parts, keeps)| Change::Cut { nth, parts, keeps }),
    ]
}

fn nth(reference: &Reference, nth: usize) -> Option<Entry> {
    let len = reference.len();
    (len > 0)
        .then(|| reference.entries().nth(nth % len))
        .flatten()
}

/// Returns new bounds for `e`; `from` and `to` are sixteenths of the space between its neighbours.
fn new_bounds(reference: &Reference, e: Entry, from: u64, to: u64) -> (u64, u64) {
    let low = reference.prev(e.start).map_or(0, |p| p.end);
    let high = reference.find(e.end).map_or(e.end + 16, |x| x.start);
    let room = high - low;
    let start = low + room * from.min(to) / 16;
    let end = (low + room * (from.max(to) + 1) / 16).max(start + 1);
    (start, end)
}

fn apply(tree: &RangeTree, reference: &mut Reference, change: Change, value: u64) {
    let mut writer = tree.write();
    match change {
        Change::Insert { start, len } => {
            let end = start + len;
            if !reference.overlaps(start, end) {
                let e = Entry { start, end, value };
                writer.reserve(1).expect("memory");
                writer.insert(e);
                reference.insert(e);
            } else if reference.find(start).is_some_and(|e| e.start != start) {
                assert_eq!(writer.remove(start), None);
            }
        }
        Change::Several { start, count } => several(&mut writer, reference, start, count, value),
        Change::Remove { nth: n } => {
            if let Some(e) = nth(reference, n) {
                assert_eq!(writer.remove(e.start), Some(e));
                reference.remove(e.start);
            }
        }
        Change::Resize { nth: n, from, to } => {
            let Some(e) = nth(reference, n) else { return };
            let (start, end) = new_bounds(reference, e, from, to);
            writer.resize(e.start, start, end);
            reference.resize(e.start, start, end);
        }
        Change::Clear { nth: n, count } => {
            let Some(first) = nth(reference, n) else {
                return;
            };
            let gone: Vec<_> = reference
                .entries()
                .skip_while(|e| e.start < first.start)
                .take(count)
                .collect();
            for e in gone {
                assert_eq!(writer.remove(e.start), Some(e));
                reference.remove(e.start);
            }
        }
        Change::Absorb {
            nth: n,
            below,
            above,
        } => absorb(&mut writer, reference, n, (below, above)),
        Change::Cut {
            nth: n,
            parts,
            keeps,
        } => cut(&mut writer, reference, n, (parts, keeps, value)),
    }
}

fn several(
    writer: &mut Writer<'_>,
    reference: &mut Reference,
    start: u64,
    count: usize,
    value: u64,
) {
    writer.reserve(count).expect("memory");
    let places = (0..count as u64).map(|i| start + i * i * 7);
    for start in places
        .filter(|&start| !reference.overlaps(start, start + 1))
        .collect::<Vec<_>>()
    {
        let e = Entry {
            start,
            end: start + 1,
            value,
        };
        writer.insert(e);
        reference.insert(e);
    }
}

fn absorb(
    writer: &mut Writer<'_>,
    reference: &mut Reference,
    n: usize,
    (below, above): (usize, usize),
) {
    let Some(e) = nth(reference, n) else { return };
    let all: Vec<_> = reference.entries().collect();
    let at = n % all.len();
    let taken = at.saturating_sub(below)..(at + above + 1).min(all.len());
    let (start, end) = (all[taken.start].start, all[taken.end - 1].end);
    writer.absorb(e.start, start, end);
    for other in all[taken].iter().filter(|other| **other != e) {
        reference.remove(other.start);
    }
    reference.resize(e.start, start, end);
}

fn cut(
    writer: &mut Writer<'_>,
    reference: &mut Reference,
    n: usize,
    (parts, keeps, value): (u64, u64, u64),
) {
    let Some(e) = nth(reference, n) else { return };
    let parts = parts.min(e.end - e.start);
    let bound = |part| e.start + (e.end - e.start) * part / parts;
    let parts: Vec<_> = (0..parts)
        .map(|part| Entry {
            start: bound(part),
            end: bound(part + 1),
            value: match part == keeps % parts {
                true => e.value,
                false => (value << 8) + (1 << 40) + part,
            },
        })
        .collect();
    writer.reserve(parts.len() - 1).expect("memory");
    writer.cut(e.start, &parts);
    reference.remove(e.start);
    parts.into_iter().for_each(|part| reference.insert(part));
}

fn compare(tree: &RangeTree, reference: &Reference, addrs: impl Iterator<Item = u64>) {
    assert_eq!(tree.len(), reference.len());
    let all: Vec<_> = reference.entries().collect();
    assert_eq!(tree.ranges(0, u64::MAX).collect::<Vec<_>>(), all);
    for addr in addrs {
        assert_eq!(tree.find(addr), reference.find(addr), "find {addr}");
        assert_eq!(tree.prev(addr), reference.prev(addr), "prev {addr}");
        assert_eq!(
            tree.get(addr),
            reference.find(addr).filter(|e| e.start <= addr),
            "get {addr}"
        );
        for end in [addr + 1, addr + 7, addr + 60] {
            let below = reference.prev(addr).filter(|e| e.end == addr);
            let above = reference.find(end).filter(|e| e.start == end);
            assert_eq!(tree.touching(addr, end), [below, above], "{addr}..{end}");
        }
        for (span, len) in [(3, 1), (20, 2), (100, 7), (1 << 20, 9), (1 << 20, 0)] {
            let (low, high) = (addr.saturating_sub(span), addr + span);
            let args = (low, high, len);
            assert_eq!(
                tree.gap_lowest(low, high, len),
                reference.gap_lowest(low, high, len),
                "lowest {args:?}"
            );
            assert_eq!(
                tree.gap_highest(low, high, len),
                reference.gap_highest(low, high, len),
                "highest {args:?}"
            );
            let window: Vec<_> = reference
                .entries()
                .filter(|e| e.end > low && e.start < high)
                .take(9)
                .collect();
            assert_eq!(
                tree.ranges(low, high).take(9).collect::<Vec<_>>(),
                window,
                "ranges {args:?}"
            );
        }
    }
    assert_eq!(tree.gap_lowest(9, 3, 1), None);
    assert_eq!(tree.gap_highest(9, 3, 1), None);
}

fn run(changes: &[Change], space: u64) {
    let mut tree = RangeTree::new();
    let empty = tree.bytes();
    let mut reference = Reference::default();
    for (i, &change) in changes.iter().enumerate() {
        apply(&tree, &mut reference, change, i as u64);
        if i.is_multiple_of(11) {
            tree.shrink();
        }
        if !i.is_multiple_of(VALIDATED) {
            continue;
        }
        tree.validate()
            .unwrap_or_else(|v| panic!("{v:?} after {change:?}, change {i}"));
        if (i % 16 == 0 && !cfg!(miri)) || i + 1 == changes.len() {
            compare(
                &tree,
                &reference,
                (0..space).step_by((1 + space / SEARCHES) as usize),
            );
            tree.validate().expect("valid after the searches");
        }
    }
    let left: Vec<_> = reference.entries().collect();
    for e in left {
        tree.write().remove(e.start);
        if !cfg!(miri) {
            tree.validate().expect("valid while it is emptied");
        }
    }
    tree.validate().expect("valid when empty");
    assert!(tree.is_empty() && tree.find(0).is_none());
    tree.shrink();
    assert_eq!(tree.bytes(), empty, "an empty tree needs no nodes");
}

/// Builds a map from gaps and lengths, compares it with the reference, and changes it.
fn build_and_run(sizes: &[(u64, u64)], changes: &[Change]) {
    let mut end = 0;
    let ranges: Vec<_> = (0..)
        .zip(sizes)
        .map(|(value, (gap, len))| {
            let start = end + gap;
            end = start + len;
            Entry { start, end, value }
        })
        .collect();
    let (tree, mut reference) = (RangeTree::new(), Reference::default());
    for round in 0..2 {
        let mut writer = tree.write();
        writer.reserve_build(ranges.len()).expect("memory");
        writer.build(&ranges);
        drop(writer);
        ranges.iter().for_each(|range| reference.insert(*range));
        tree.validate().expect("valid after it was built");
        compare(
            &tree,
            &reference,
            (0..end + 9).step_by((1 + end / SEARCHES) as usize),
        );
        for (i, &change) in changes.iter().enumerate() {
            apply(&tree, &mut reference, change, (1 << 30) + i as u64);
            if i.is_multiple_of(VALIDATED) {
                tree.validate()
                    .unwrap_or_else(|v| panic!("{v:?} after {change:?}, round {round}"));
            }
        }
        let left: Vec<_> = reference.entries().collect();
        for e in left {
            tree.write().remove(e.start);
            reference.remove(e.start);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 128 }, ..ProptestConfig::default() })]

    #[test]
    fn equals_an_ordered_map(changes in proptest::collection::vec(change(4000), 1..CHANGES)) {
        run(&changes, 4000);
    }

    #[test]
    fn a_built_map_equals_an_ordered_map(
        sizes in proptest::collection::vec((0..4u64, 1..5u64), 0..CHANGES),
        changes in proptest::collection::vec(change(1500), 0..60),
    ) {
        build_and_run(&sizes, &changes);
    }

    #[test]
    fn equals_an_ordered_map_when_crowded(changes in proptest::collection::vec(change(300), 1..CHANGES / 2)) {
        run(&changes, 300);
    }
}
