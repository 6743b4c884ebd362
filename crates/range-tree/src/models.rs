//! Loom models of a reader concurrent with a writer.
//!
//! Loom runs all interleavings up to a bound on preemptions (see `ci/run loom`).
//!
//! A leaf has three ranges and an inner node four rows, so that few changes split or merge nodes. The
//! comment on each model names the error that would make the model fail.

use crate::{Entry, RangeTree};
use loom::sync::Arc;
use loom::thread;

fn range(i: u64) -> Entry {
    Entry {
        start: i * 10,
        end: i * 10 + 5,
        value: i,
    }
}

/// Inserts `ranges` into a tree, and removes `gone` again, so that nodes are less full.
fn tree(ranges: impl IntoIterator<Item = u64>, gone: &[u64]) -> Arc<RangeTree> {
    let tree = RangeTree::new();
    let mut writer = tree.write();
    writer.reserve(4).expect("memory");
    ranges.into_iter().for_each(|i| writer.insert(range(i)));
    for i in gone {
        writer.remove(range(*i).start).expect("a range");
    }
    drop(writer);
    Arc::new(tree)
}

/// Runs a writer and a reader concurrently; afterwards the tree must be valid.
fn model(
    ranges: impl IntoIterator<Item = u64> + Clone + Send + Sync + 'static,
    change: impl Fn(&RangeTree) + Clone + Send + Sync + 'static,
    look: impl Fn(&RangeTree) + Send + Sync + 'static,
) {
    model_without(&[], ranges, change, look);
}

/// Like [`model`], with a tree from which `gone` was removed.
fn model_without(
    gone: &'static [u64],
    ranges: impl IntoIterator<Item = u64> + Clone + Send + Sync + 'static,
    change: impl Fn(&RangeTree) + Clone + Send + Sync + 'static,
    look: impl Fn(&RangeTree) + Send + Sync + 'static,
) {
    loom::model(move || {
        let tree = tree(ranges.clone(), gone);
        let (shared, change) = (tree.clone(), change.clone());
        let writer = thread::spawn(move || change(&shared));
        look(&tree);
        writer.join().expect("writer thread");
        tree.validate().expect("valid");
    });
}

/// Fails if a split hides a range from a reader.
///
/// The reader visits the parent before the split, looks for a range in the left leaf after that
/// range has moved to the right leaf, and finds nothing.
#[test]
fn a_split_loses_no_range() {
    model(
        0..3,
        |t| t.write().insert(range(3)),
        |t| assert_eq!(t.find(22), Some(range(2))),
    );
}

/// Fails if a merge hides ranges from a reader.
///
/// The reader has loaded the right leaf's version. The leaf's ranges move to the left leaf, and the
/// reader takes the empty leaf for the end of the map.
#[test]
fn a_merge_loses_no_range() {
    let merge = |t: &RangeTree| {
        t.write().remove(10);
    };
    model_without(&[2], 0..4, merge, |t| {
        assert_eq!(t.find(32), Some(range(3)));
    });
}

/// Fails if a reader combines the ends of one state with the order of another.
///
/// The insertion moves the ends of the ranges above it and shifts their slots in the order. With the
/// new ends and the old order, the reader would return the start of the next range.
#[test]
fn an_insertion_moves_no_range() {
    let insert = |t: &RangeTree| t.write().insert(range(1));
    model([0, 2], insert, |t| {
        let found = t.find(11);
        assert!(
            [Some(range(1)), Some(range(2))].contains(&found),
            "{found:?}"
        );
        assert_eq!(t.find(21), Some(range(2)));
    });
}

/// Fails if the range below an address is lost between two leaves.
///
/// The reader finds no range below the address in the right leaf, and goes to the left leaf by a
/// row of the parent. A merge meanwhile moves the right leaf's range to the left leaf.
#[test]
fn a_merge_hides_no_range_below() {
    let merge = |t: &RangeTree| {
        t.write().remove(0);
    };
    model_without(&[2], 0..4, merge, |t| {
        assert_eq!(t.prev(30), Some(range(1)));
    });
}

/// Fails if a search lowers a room that a writer raises.
///
/// The insertion of range 1 left the first leaf's room too large. The search is misled by it and
/// lowers it, while the writer shrinks a range in the same leaf. If the search did not exclude
/// writers, the room would be less than the new gap.
#[test]
fn a_lowered_room_is_large_enough() {
    let shrink = |t: &RangeTree| t.write().resize(10, 10, 11);
    model([0, 3, 2, 4, 1], shrink, |t| {
        let gap = t.gap_lowest(0, 36, 9);
        assert!([None, Some((11, 20))].contains(&gap), "{gap:?}");
        assert_eq!(t.gap_highest(0, 40, 20), None);
    });
}

/// Fails if a reader returns a range from a reused leaf.
///
/// The leaf that is being read is removed and reused for other ranges.
#[test]
fn a_reused_leaf_is_not_taken_for_the_old_one() {
    let reuse = |t: &RangeTree| {
        let mut writer = t.write();
        writer.remove(0);
        writer.insert(range(9));
    };
    model([0], reuse, |t| {
        let found = t.find(0);
        assert!(
            [Some(range(0)), None, Some(range(9))].contains(&found),
            "{found:?}"
        );
    });
}

/// Fails if a reader combines old and new bounds.
///
/// Without the version check, a reader could compare the address with a range's old end but return
/// its new end, or return the start of one range with the end of another.
#[test]
fn bounds_are_consistent() {
    model(
        0..2,
        |t| t.write().resize(10, 7, 18),
        |t| {
            let found = t.find(6).expect("a range above");
            assert!(
                found == range(1) || (found.start, found.end) == (7, 18),
                "{found:?}"
            );
        },
    );
}

/// Fails if the end of a child grows in the leaf before it grows in the parent.
///
/// If the leaf changed first, a reader that has seen the range's new end could look up an address
/// in the new part of the range, still find the old end in the parent, skip the child, and return
/// the next range.
#[test]
fn a_parent_changes_with_its_child() {
    let grow = |t: &RangeTree| t.write().resize(10, 10, 20);
    model(0..4, grow, |t| {
        let grown = t.find(12).is_some_and(|e| e.end == 20);
        let found = t.find(17).map(|e| (e.start, e.end));
        let possible = [Some((10, 20)), Some((20, 25))];
        assert!(
            possible[..if grown { 1 } else { 2 }].contains(&found),
            "{grown} {found:?}"
        );
    });
}

/// Fails if a gap search combines two states of the map.
///
/// A search that combined the new start of a moved range with its old end would return the gap
/// after the old end, which is never the lowest suitable gap.
#[test]
fn a_gap_is_consistent() {
    let change = |t: &RangeTree| {
        t.write().resize(10, 8, 18);
    };
    model(0..3, change, |t| {
        let gap = t.gap_lowest(0, 100, 5);
        assert!([Some((5, 10)), Some((25, 100))].contains(&gap), "{gap:?}");
    });
}
