//! Interval tree of VMAs by page offset: finds the VMAs that contain a given page of an anon_vma.
//!
//! The tree is a treap whose nodes are in one vector. Each node stores the highest last page in its
//! subtree. Several VMAs may have the same interval. A node's position in the vector never changes,
//! so that a chain link can refer to the node.
//!
//! # Invariants
//! T1  nodes are in order of (first page, position)
//! T2  `max_last` is the highest `last` of the node and all its descendants

use crate::types::{Errno, VmaId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use smallvec::SmallVec;

const NIL: u32 = u32::MAX;

/// The nodes on a path down from the root.
type Path = SmallVec<[u32; 48]>;

#[derive(Clone, Copy, Debug)]
struct Node {
    first: u64,
    last: u64,
    max_last: u64,
    vma: VmaId,
    left: u32,
    right: u32,
}

/// The interval tree of an anon_vma; a tree with only one VMA needs no heap memory.
#[derive(Debug, Default)]
pub struct IntervalTree(Form);

#[derive(Debug, Default)]
enum Form {
    #[default]
    Empty,
    /// A single VMA, at position 0.
    One { first: u64, last: u64, vma: VmaId },
    /// A treap, allocated separately to keep this type small.
    Many(Box<[Treap; 1]>),
}

#[derive(Debug)]
struct Treap {
    nodes: Vec<Node>,
    root: u32,
    /// Head of the list of free positions, linked by `left`.
    free: u32,
    len: u32,
}

/// Returns a position's priority in the treap: a fixed hash that also scatters adjacent positions.
fn priority(at: u32) -> u32 {
    let x = (at ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b1);
    (x ^ (x >> 15)).wrapping_mul(0x85eb_ca6b)
}

impl IntervalTree {
    /// Returns the number of VMAs in the tree.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Empty => 0,
            Form::One { .. } => 1,
            Form::Many(treap) => treap[0].len as usize,
        }
    }

    /// True if the tree contains no VMA.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes of heap memory that the tree uses.
    pub(crate) fn bytes(&self) -> usize {
        match &self.0 {
            Form::Empty | Form::One { .. } => 0,
            Form::Many(treap) => size_of::<Treap>() + treap[0].nodes.capacity() * size_of::<Node>(),
        }
    }

    /// Reserves space for one more VMA, so that inserting it cannot fail.
    pub fn reserve(&mut self) -> Result<(), Errno> {
        match &mut self.0 {
            Form::Empty => Ok(()),
            Form::Many(treap) => treap[0].reserve(),
            Form::One { first, last, vma } => {
                let mut treap = Treap::new();
                treap
                    .nodes
                    .try_reserve_exact(2)
                    .map_err(|_| Errno::ENOMEM)?;
                treap.insert(*first, *last, *vma);
                // `Box::new` cannot report an allocation failure, so the box is made from a vector.
                let mut boxed = Vec::new();
                boxed.try_reserve_exact(1).map_err(|_| Errno::ENOMEM)?;
                boxed.push(treap);
                if let Ok(boxed) = boxed.into_boxed_slice().try_into() {
                    self.0 = Form::Many(boxed);
                }
                Ok(())
            }
        }
    }

    /// Inserts a VMA that contains the pages `first..=last`; returns its position in the tree.
    pub fn insert(&mut self, first: u64, last: u64, vma: VmaId) -> u32 {
        if matches!(self.0, Form::Empty) {
            self.0 = Form::One { first, last, vma };
            return 0;
        }
        if let Form::One { first, last, vma } = self.0 {
            let mut treap = Treap::new();
            treap.insert(first, last, vma);
            self.0 = Form::Many(Box::new([treap]));
        }
        let Form::Many(treap) = &mut self.0 else {
            unreachable!("it is not empty and has more than one")
        };
        treap[0].insert(first, last, vma)
    }

    /// Removes the VMA at position `at`.
    pub fn remove(&mut self, at: u32) {
        match &mut self.0 {
            Form::Many(treap) if treap[0].len > 1 => treap[0].remove(at),
            _ => self.0 = Form::Empty,
        }
    }

    /// Sets the interval of the VMA at position `at`.
    pub fn update(&mut self, at: u32, first: u64, last: u64) {
        match &mut self.0 {
            Form::Empty => {}
            Form::One { vma, .. } => {
                let vma = *vma;
                self.0 = Form::One { first, last, vma };
            }
            Form::Many(treap) => treap[0].update(at, first, last),
        }
    }

    /// Calls `f` with every VMA that contains a page in `first..=last`, in order of first page.
    pub fn for_each_overlapping(&self, first: u64, last: u64, mut f: impl FnMut(VmaId)) {
        match &self.0 {
            Form::Empty => {}
            Form::One {
                first: own,
                last: end,
                vma,
            } => {
                if *own <= last && first <= *end {
                    f(*vma);
                }
            }
            Form::Many(treap) => treap[0].visit(treap[0].root, first, last, &mut f),
        }
    }

    /// Returns the interval and the VMA at a position, for validation.
    pub fn at(&self, at: u32) -> Option<(u64, u64, VmaId)> {
        match &self.0 {
            Form::Empty => None,
            Form::One { first, last, vma } => (at == 0).then_some((*first, *last, *vma)),
            Form::Many(treap) => {
                let node = treap[0].nodes.get(at as usize)?;
                Some((node.first, node.last, node.vma))
            }
        }
    }

    /// Checks the invariants T1 and T2.
    pub fn validate(&self) -> Result<(), &'static str> {
        let Form::Many(treap) = &self.0 else {
            return Ok(());
        };
        let mut last_key = None;
        let mut count = 0;
        treap[0].check(treap[0].root, &mut last_key, &mut count)?;
        if count == treap[0].len {
            Ok(())
        } else {
            Err("T1: interval tree counts wrong")
        }
    }
}

impl Treap {
    fn new() -> Self {
        Self {
            nodes: Vec::new(),
            root: NIL,
            free: NIL,
            len: 0,
        }
    }

    fn reserve(&mut self) -> Result<(), Errno> {
        if self.free == NIL {
            self.nodes.try_reserve(1).map_err(|_| Errno::ENOMEM)
        } else {
            Ok(())
        }
    }

    fn insert(&mut self, first: u64, last: u64, vma: VmaId) -> u32 {
        let node = Node {
            first,
            last,
            max_last: last,
            vma,
            left: NIL,
            right: NIL,
        };
        let at = if self.free == NIL {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let at = self.free;
            self.free = self.nodes[at as usize].left;
            self.nodes[at as usize] = node;
            at
        };
        self.link(at);
        self.len += 1;
        at
    }

    fn remove(&mut self, at: u32) {
        self.unlink(at);
        self.nodes[at as usize].left = self.free;
        self.free = at;
        self.len -= 1;
    }

    fn update(&mut self, at: u32, first: u64, last: u64) {
        if self.nodes[at as usize].first == first {
            let path = self.path_to(at);
            self.nodes[at as usize].last = last;
            self.refresh(at);
            self.refresh_up(&path);
            return;
        }
        self.unlink(at);
        let node = &mut self.nodes[at as usize];
        *node = Node {
            first,
            last,
            max_last: last,
            vma: node.vma,
            left: NIL,
            right: NIL,
        };
        self.link(at);
    }

    fn visit(&self, at: u32, first: u64, last: u64, f: &mut impl FnMut(VmaId)) {
        let Some(node) = self.nodes.get(at as usize) else {
            return;
        };
        if node.max_last < first {
            return;
        }
        self.visit(node.left, first, last, f);
        if node.first <= last {
            if node.last >= first {
                f(node.vma);
            }
            self.visit(node.right, first, last, f);
        }
    }

    fn key(&self, at: u32) -> (u64, u32) {
        (self.nodes[at as usize].first, at)
    }

    fn link(&mut self, at: u32) {
        let (key, rank) = (self.key(at), priority(at));
        let last = self.nodes[at as usize].last;
        let (mut parent, mut below) = (NIL, self.root);
        while below != NIL && priority(below) > rank {
            let before = key < self.key(below);
            let node = &mut self.nodes[below as usize];
            node.max_last = node.max_last.max(last);
            parent = below;
            below = if before { node.left } else { node.right };
        }
        let (left, right) = self.split(below, key);
        let node = &mut self.nodes[at as usize];
        (node.left, node.right) = (left, right);
        self.refresh(at);
        self.replace(parent, below, at);
    }

    fn unlink(&mut self, at: u32) {
        let path = self.path_to(at);
        let node = self.nodes[at as usize];
        let rest = self.join(node.left, node.right);
        self.replace(path.last().copied().unwrap_or(NIL), at, rest);
        self.refresh_up(&path);
    }

    /// Replaces the child `was` of `parent` by `now`; replaces the root if there is no parent.
    fn replace(&mut self, parent: u32, was: u32, now: u32) {
        let Some(node) = self.nodes.get_mut(parent as usize) else {
            self.root = now;
            return;
        };
        // If the replaced child is empty, the key determines the side.
        let left = if was == NIL {
            self.key(now) < self.key(parent)
        } else {
            node.left == was
        };
        let node = &mut self.nodes[parent as usize];
        *(if left {
            &mut node.left
        } else {
            &mut node.right
        }) = now;
    }

    /// Returns the ancestors of `at`, from the root down.
    fn path_to(&self, at: u32) -> Path {
        let key = self.key(at);
        let mut path = Path::new();
        let mut above = self.root;
        while above != at {
            path.push(above);
            let node = &self.nodes[above as usize];
            above = if key < (node.first, above) {
                node.left
            } else {
                node.right
            };
        }
        path
    }

    /// Recomputes `max_last` from a path's end towards the root, until a node does not change.
    fn refresh_up(&mut self, path: &Path) {
        for &at in path.iter().rev() {
            let was = self.nodes[at as usize].max_last;
            self.refresh(at);
            if self.nodes[at as usize].max_last == was {
                return;
            }
        }
    }

    /// Splits a subtree into the nodes with keys below `key` and the remaining nodes.
    fn split(&mut self, at: u32, key: (u64, u32)) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        let node = self.nodes[at as usize];
        if self.key(at) < key {
            let (mid, above) = self.split(node.right, key);
            self.nodes[at as usize].right = mid;
            self.refresh(at);
            (at, above)
        } else {
            let (below, mid) = self.split(node.left, key);
            self.nodes[at as usize].left = mid;
            self.refresh(at);
            (below, at)
        }
    }

    /// Joins two trees; every key in `a` must be less than every key in `b`.
    fn join(&mut self, a: u32, b: u32) -> u32 {
        if a == NIL {
            return b;
        }
        if b == NIL {
            return a;
        }
        if priority(a) > priority(b) {
            let right = self.nodes[a as usize].right;
            self.nodes[a as usize].right = self.join(right, b);
            self.refresh(a);
            a
        } else {
            let left = self.nodes[b as usize].left;
            self.nodes[b as usize].left = self.join(a, left);
            self.refresh(b);
            b
        }
    }

    fn refresh(&mut self, at: u32) {
        let node = self.nodes[at as usize];
        let below = |i: u32| self.nodes.get(i as usize).map_or(0, |n| n.max_last);
        self.nodes[at as usize].max_last = node.last.max(below(node.left)).max(below(node.right));
    }

    fn check(
        &self,
        at: u32,
        last: &mut Option<(u64, u32)>,
        count: &mut u32,
    ) -> Result<u64, &'static str> {
        let Some(node) = self.nodes.get(at as usize) else {
            return Ok(0);
        };
        let left = self.check(node.left, last, count)?;
        if last.is_some_and(|k| k >= self.key(at)) {
            return Err("T1: interval tree out of order");
        }
        *last = Some(self.key(at));
        *count += 1;
        let right = self.check(node.right, last, count)?;
        if node.max_last != node.last.max(left).max(right) {
            return Err("T2: interval tree maximum wrong");
        }
        Ok(node.max_last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> VmaId {
        VmaId::from_bits(1 << 32 | n).unwrap()
    }

    #[test]
    fn finds_what_a_list_finds() {
        let mut tree = IntervalTree::default();
        let mut list: Vec<(u32, u64, u64, VmaId)> = Vec::new();
        let mut seed = 7u64;
        let mut next = |n: u64| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for round in 0..4000 {
            match next(3) {
                0 if !list.is_empty() => {
                    let (at, ..) = list.swap_remove(next(list.len() as u64) as usize);
                    tree.remove(at);
                }
                1 if !list.is_empty() => {
                    let i = next(list.len() as u64) as usize;
                    let first = next(500);
                    let first = if next(2) == 0 { list[i].1 } else { first };
                    list[i].1 = first;
                    list[i].2 = first + next(20);
                    tree.update(list[i].0, list[i].1, list[i].2);
                }
                _ => {
                    let first = next(500);
                    let last = first + next(20);
                    let at = tree.insert(first, last, id(round));
                    list.push((at, first, last, id(round)));
                }
            }
            tree.validate().unwrap();
            let (first, last) = (next(500), 0);
            let last = first + last + next(10);
            let mut found = Vec::new();
            tree.for_each_overlapping(first, last, |v| found.push(v));
            let mut want: Vec<VmaId> = list
                .iter()
                .filter(|e| e.1 <= last && e.2 >= first)
                .map(|e| e.3)
                .collect();
            found.sort();
            want.sort();
            assert_eq!(found, want);
        }
    }
}
