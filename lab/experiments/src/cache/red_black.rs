//! The red-black tree that indexed the VMAs of an address space in 2014.
//!
//! A node represents a VMA: it contains the bounds, two children, a parent and a colour. VMAs do
//! not overlap, so a change of bounds preserves the order of the nodes and moves none of them.
//!
//! # Invariants
//! - B1  the nodes are ordered by their starts
//! - B2  a red node has no red child
//! - B3  every path from the root to a leaf has the same number of black nodes
//!
//! # Linux
//! `find_vma` of 3.14 without its cache; `lib/rbtree.c`. The nodes are in one array per address
//! space instead of a slab. Each node has a generation, so a cache that checks its entries can
//! detect that a VMA was removed.

use vmarea::types::{VmRange, VmaId};

/// Node 0 represents every leaf and the root's parent; it is black.
const LEAF: u32 = 0;

/// A VMA in the tree, aligned so that it occupies as much memory as a VMA did in 2014.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Node {
    start: u64,
    end: u64,
    child: [u32; 2],
    parent: u32,
    is_red: bool,
    generation: u32,
}

/// The tree of one address space.
#[derive(Debug)]
pub(super) struct RedBlackTree {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
}

impl Default for RedBlackTree {
    fn default() -> Self {
        RedBlackTree {
            nodes: vec![Node::default()],
            free: Vec::new(),
            root: LEAF,
        }
    }
}

impl RedBlackTree {
    /// Finds the first VMA that ends after `addr`.
    #[inline]
    pub(super) fn find(&self, addr: u64) -> Option<VmaId> {
        let (mut at, mut found) = (self.root, LEAF);
        while at != LEAF {
            let node = &self.nodes[at as usize];
            if node.end > addr {
                found = at;
                if node.start <= addr {
                    break;
                }
                at = node.child[0];
            } else {
                at = node.child[1];
            }
        }
        self.id(found)
    }

    /// Returns the bounds of a VMA; `None` if the VMA was removed.
    #[inline]
    pub(super) fn range(&self, vma: VmaId) -> Option<VmRange> {
        let node = self.nodes.get(number(vma) as usize)?;
        let lives = node.generation == (vma.to_bits() >> 32) as u32;
        lives.then_some(VmRange {
            start: node.start,
            end: node.end,
        })
    }

    /// Adds a VMA.
    pub(super) fn insert(&mut self, range: VmRange) -> Option<VmaId> {
        let at = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            (self.nodes.len() - 1) as u32
        });
        let (mut parent, mut next, mut side) = (LEAF, self.root, 0);
        while next != LEAF {
            parent = next;
            side = usize::from(self.nodes[next as usize].start < range.start);
            next = self.nodes[next as usize].child[side];
        }
        let generation = self.nodes[at as usize].generation + 1;
        self.nodes[at as usize] = Node {
            start: range.start,
            end: range.end,
            child: [LEAF; 2],
            parent,
            is_red: true,
            generation,
        };
        if parent == LEAF {
            self.root = at;
        } else {
            self.nodes[parent as usize].child[side] = at;
        }
        self.mend_insert(at);
        self.id(at)
    }

    /// Changes the bounds of a VMA.
    pub(super) fn resize(&mut self, vma: VmaId, range: VmRange) {
        if self.range(vma).is_some() {
            let node = &mut self.nodes[number(vma) as usize];
            (node.start, node.end) = (range.start, range.end);
        }
    }

    /// Removes a VMA.
    pub(super) fn remove(&mut self, vma: VmaId) {
        if self.range(vma).is_none() {
            return;
        }
        let at = number(vma);
        let [left, right] = self.nodes[at as usize].child;
        let (mut lost_black, up);
        if left == LEAF || right == LEAF {
            up = if left == LEAF { right } else { left };
            lost_black = !self.nodes[at as usize].is_red;
            self.replace(at, up);
        } else {
            let mut next = right;
            while self.nodes[next as usize].child[0] != LEAF {
                next = self.nodes[next as usize].child[0];
            }
            up = self.nodes[next as usize].child[1];
            lost_black = !self.nodes[next as usize].is_red;
            if self.nodes[next as usize].parent == at {
                self.nodes[up as usize].parent = next;
            } else {
                self.replace(next, up);
                self.adopt(next, 1, right);
            }
            self.replace(at, next);
            self.adopt(next, 0, left);
            self.nodes[next as usize].is_red = self.nodes[at as usize].is_red;
        }
        if self.root == LEAF {
            lost_black = false;
        }
        if lost_black {
            self.mend_remove(up);
        }
        self.nodes[at as usize].generation += 1;
        self.free.push(at);
    }

    fn id(&self, at: u32) -> Option<VmaId> {
        let generation = u64::from(self.nodes[at as usize].generation);
        (at != LEAF)
            .then(|| VmaId::from_bits(generation << 32 | u64::from(at)))
            .flatten()
    }

    fn is_red(&self, at: u32) -> bool {
        self.nodes[at as usize].is_red
    }

    fn paint(&mut self, at: u32, red: bool) {
        self.nodes[at as usize].is_red = red;
    }

    fn parent(&self, at: u32) -> u32 {
        self.nodes[at as usize].parent
    }

    fn child(&self, at: u32, side: usize) -> u32 {
        self.nodes[at as usize].child[side]
    }

    fn side(&self, at: u32) -> usize {
        usize::from(self.child(self.parent(at), 1) == at)
    }

    fn adopt(&mut self, parent: u32, side: usize, child: u32) {
        self.nodes[parent as usize].child[side] = child;
        self.nodes[child as usize].parent = parent;
    }

    /// Makes `new` a child of the parent of `old`, in place of `old`.
    fn replace(&mut self, old: u32, new: u32) {
        let parent = self.parent(old);
        if parent == LEAF {
            self.root = new;
            self.nodes[new as usize].parent = LEAF;
        } else {
            let side = self.side(old);
            self.adopt(parent, side, new);
        }
    }

    /// Moves a node down to `side`; the node's child on the other side takes the node's place.
    fn rotate(&mut self, at: u32, side: usize) {
        let up = self.child(at, 1 - side);
        let inner = self.child(up, side);
        self.replace(at, up);
        self.nodes[at as usize].child[1 - side] = inner;
        if inner != LEAF {
            self.nodes[inner as usize].parent = at;
        }
        self.adopt(up, side, at);
    }

    /// Restores invariant B2 for a new red node and its ancestors.
    fn mend_insert(&mut self, mut at: u32) {
        while self.is_red(self.parent(at)) {
            let parent = self.parent(at);
            let above = self.parent(parent);
            let side = self.side(parent);
            let uncle = self.child(above, 1 - side);
            if self.is_red(uncle) {
                self.paint(parent, false);
                self.paint(uncle, false);
                self.paint(above, true);
                at = above;
                continue;
            }
            if self.side(at) != side {
                self.rotate(parent, side);
                at = parent;
            }
            let parent = self.parent(at);
            self.paint(parent, false);
            self.paint(above, true);
            self.rotate(above, 1 - side);
        }
        let root = self.root;
        self.paint(root, false);
    }

    /// Restores invariant B3 if the paths through `at` contain one black node too few.
    fn mend_remove(&mut self, mut at: u32) {
        while at != self.root && !self.is_red(at) {
            let parent = self.parent(at);
            let side = self.side(at);
            let mut other = self.child(parent, 1 - side);
            if self.is_red(other) {
                self.paint(other, false);
                self.paint(parent, true);
                self.rotate(parent, side);
                other = self.child(parent, 1 - side);
            }
            let (near, far) = (self.child(other, side), self.child(other, 1 - side));
            if !self.is_red(near) && !self.is_red(far) {
                self.paint(other, true);
                at = parent;
                continue;
            }
            if !self.is_red(far) {
                self.paint(near, false);
                self.paint(other, true);
                self.rotate(other, 1 - side);
                other = near;
            }
            let colour = self.is_red(parent);
            self.paint(other, colour);
            self.paint(parent, false);
            let far = self.child(other, 1 - side);
            self.paint(far, false);
            self.rotate(parent, side);
            at = self.root;
        }
        self.paint(at, false);
    }
}

fn number(vma: VmaId) -> u32 {
    vma.to_bits() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    impl RedBlackTree {
        /// Checks invariants B1 to B3 below a node; returns the VMAs in order, and the black nodes
        /// per path.
        fn check(&self, at: u32, vmas: &mut Vec<(u64, u64)>) -> usize {
            if at == LEAF {
                assert!(!self.is_red(LEAF), "the leaf is black");
                return 0;
            }
            let [left, right] = self.nodes[at as usize].child;
            for child in [left, right] {
                assert!(child == LEAF || self.parent(child) == at);
                assert!(!(self.is_red(at) && self.is_red(child)), "B2");
            }
            let black = self.check(left, vmas);
            vmas.push((self.nodes[at as usize].start, self.nodes[at as usize].end));
            assert_eq!(black, self.check(right, vmas), "B3");
            black + usize::from(!self.is_red(at))
        }
    }

    #[test]
    fn the_tree_is_a_map_of_ranges() {
        let mut tree = RedBlackTree::default();
        let mut model: BTreeMap<u64, (u64, VmaId)> = BTreeMap::new();
        let mut gone = Vec::new();
        let mut dice = 7u64;
        for step in 0..20_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = (dice >> 40) % 300 * 10;
            // The tree grows and shrinks in turn.
            let grows = step / 500 % 2 == 0;
            match model.remove(&start) {
                Some((end, vma)) if grows => {
                    let end = if end == start + 5 {
                        start + 9
                    } else {
                        start + 5
                    };
                    tree.resize(vma, VmRange::new(start, end));
                    model.insert(start, (end, vma));
                }
                Some((_, vma)) => {
                    tree.remove(vma);
                    gone.push(vma);
                }
                None if grows => {
                    let vma = tree.insert(VmRange::new(start, start + 5)).unwrap();
                    model.insert(start, (start + 5, vma));
                }
                None => {}
            }
            let addr = (dice >> 20) % 3010;
            let expected = model.values().find(|(end, _)| *end > addr);
            assert_eq!(tree.find(addr), expected.map(|(_, vma)| *vma));
            if step % 100 == 0 {
                let mut vmas = Vec::new();
                tree.check(tree.root, &mut vmas);
                let expected: Vec<_> = model.iter().map(|(s, (e, _))| (*s, *e)).collect();
                assert_eq!(vmas, expected, "B1");
            }
        }
        assert!(gone.len() > 1000);
        assert!(gone.iter().all(|vma| tree.range(*vma).is_none()));
    }
}
