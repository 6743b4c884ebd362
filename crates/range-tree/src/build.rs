//! Building a whole tree at once, from ranges in ascending order.
//!
//! All nodes are full, except for the last one on each level. They are written before the root
//! pointer makes them visible, so nothing is shifted, split or written twice.

use crate::leaf::LEAF;
use crate::node::{INNER, Row, Versioned};
use crate::pool::NodeRef;
use crate::write::{Writer, change_leaf};
use crate::{Entry, OutOfMemory};

/// Returns the number of ranges for which a tree with `height` levels of inner nodes has room.
fn room(height: usize) -> usize {
    (0..height).fold(LEAF, |room, _| room.saturating_mul(INNER))
}

impl Writer<'_> {
    /// Reserves the nodes with which [`build`](Self::build) makes a map of `ranges` ranges, in place
    /// of the nodes that [`reserve`](Self::reserve) has reserved.
    ///
    /// # Errors
    /// If the allocator has no memory; the map is unchanged.
    ///
    /// [`build`](Self::build) has an example.
    pub fn reserve_build(&mut self, ranges: usize) -> Result<(), OutOfMemory> {
        let leaves = ranges.div_ceil(LEAF);
        let (mut level, mut inners) = (leaves, 0);
        while level > 1 {
            level = level.div_ceil(INNER);
            inners += level;
        }
        self.pool.reserve_nodes(leaves, inners)
    }

    /// Fills the empty map with ranges in ascending order, for which
    /// [`reserve_build`](Self::reserve_build) has reserved nodes.
    ///
    /// # Panics
    /// If the map is not empty, if a range is empty or begins below the end of the one before it,
    /// or if too few nodes are reserved.
    ///
    /// ```
    /// use vmarea_range_tree::{Entry, RangeTree};
    ///
    /// let tree = RangeTree::new();
    /// let ranges = [1, 2, 3].map(|n| Entry { start: n << 12, end: (n + 1) << 12, value: n });
    /// let mut writer = tree.write();
    /// writer.reserve_build(ranges.len())?;
    /// writer.build(&ranges);
    /// assert!(tree.ranges(0, u64::MAX).eq(ranges));
    /// # Ok::<(), vmarea_range_tree::OutOfMemory>(())
    /// ```
    pub fn build(&mut self, ranges: &[Entry]) {
        assert!(self.tree.is_empty(), "the map is not empty");
        let ordered = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
        let filled = ranges.iter().all(|range| range.start < range.end);
        assert!(ordered && filled, "the ranges are not in order");
        if ranges.is_empty() {
            return;
        }
        let mut height = 0;
        while room(height) < ranges.len() {
            height += 1;
        }
        self.with_change(|w| {
            let root = w.subtree(ranges, height, 0);
            w.tree.set_root(root.child);
            w.pool.height = height;
        });
        self.count(ranges.len() as isize);
    }

    /// Makes a node for ranges, and all nodes below it; returns the node's row for its parent.
    /// `floor` is the end of the range before the first one.
    fn subtree(&mut self, ranges: &[Entry], height: usize, mut floor: u64) -> Row {
        let tree = self.tree;
        let child = match height {
            0 => self.pool.take_leaf(),
            _ => self.pool.take_inner(),
        };
        let node = tree.node(child).expect("a node from the pool");
        let room = match node {
            NodeRef::Leaf(leaf) => {
                change_leaf(leaf, |leaf| ranges.iter().for_each(|e| leaf.push(*e)));
                leaf.largest_gap(0..ranges.len(), floor)
            }
            NodeRef::Inner(inner) => {
                inner.begin_write();
                for part in ranges.chunks(room(height - 1)) {
                    let row = self.subtree(part, height - 1, floor);
                    floor = row.end;
                    inner.push(row);
                }
                inner.end_write();
                inner.largest_room()
            }
        };
        let end = node.last_end();
        Row { end, child, room }
    }
}
