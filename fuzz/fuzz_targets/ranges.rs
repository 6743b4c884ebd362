//! Checks that after any sequence of changes the range tree is valid and equals an ordered map.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vmarea_range_tree::{Entry, RangeTree};

#[path = "../../crates/range-tree/src/reference.rs"]
mod reference;
use reference::Reference;

fn change(tree: &RangeTree, reference: &mut Reference, bytes: &[u8; 5], value: u64) {
    let [what, low, high, len, part] = bytes.map(u64::from);
    let start = high << 8 | low;
    let mut writer = tree.write();
    match what % 4 {
        0 | 1 => {
            // Insert up to 64 adjacent ranges, so that few bytes of input fill a leaf.
            for i in 0..1 + part % 64 {
                let start = start + i * (len + 2);
                let e = Entry { start, end: start + 1 + len, value: value << 8 | i };
                if !reference.overlaps(e.start, e.end) {
                    writer.insert(e);
                    reference.insert(e);
                }
            }
        }
        2 => {
            for _ in 0..1 + part % 64 {
                let Some(e) = reference.find(start) else { return };
                assert_eq!(writer.remove(e.start), Some(e));
                reference.remove(e.start);
            }
        }
        _ => {
            let Some(e) = reference.find(start) else { return };
            let below = reference.prev(e.start).map_or(0, |p| p.end);
            let above = reference.find(e.end).map_or(e.end + 300, |n| n.start);
            let start = below + (above - below) * (len.min(part)) / 256;
            let end = (below + (above - below) * (len.max(part) + 1) / 256).max(start + 1);
            writer.resize(e.start, start, end);
            reference.resize(e.start, start, end);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let tree = RangeTree::new();
    let mut reference = Reference::default();
    for (i, step) in bytes.chunks_exact(5).take(200).enumerate() {
        let Ok(step) = step.try_into() else { continue };
        change(&tree, &mut reference, step, i as u64);
        let addr = u64::from(step[1]) << 8 | u64::from(step[3]);
        assert_eq!(tree.find(addr), reference.find(addr));
        assert_eq!(tree.prev(addr), reference.prev(addr));
        let (high, len) = (addr + 0x1000, u64::from(step[4]));
        assert_eq!(tree.gap_lowest(addr, high, len), reference.gap_lowest(addr, high, len));
        assert_eq!(tree.gap_highest(addr, high, len), reference.gap_highest(addr, high, len));
    }
    tree.validate().expect("valid");
    assert_eq!(tree.len(), reference.len());
    assert!(tree.ranges(0, u64::MAX).eq(reference.entries()));
});
