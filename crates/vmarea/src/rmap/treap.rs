//! `Treap`: the nodes of an interval tree with several VMAs.
//!
//! Each node stores the highest last page in its subtree. A node's position in the vector never
//! changes, so that a chain link can refer to the node. As long as there are few nodes, they are
//! not linked at all, and searched one by one.
//!
//! # Invariants
//! T1  nodes are in order of (first page, position)
//! T2  `max_last` is the highest `last` of the node and all its descendants
//! T3  unless the nodes are linked, a free position has an empty interval, and no more than
//!     [`FEW`] positions exist

use crate::types::{Errno, VmaId};
use smallvec::SmallVec;

const NIL: u32 = u32::MAX;
/// Maximum number of nodes that are not linked.
const FEW: usize = 8;

/// The nodes on a path down from the root.
type Path = SmallVec<[u32; 48]>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) first: u64,
    pub(super) last: u64,
    max_last: u64,
    pub(super) vma: VmaId,
    left: u32,
    right: u32,
}

#[derive(Debug)]
pub(super) struct Treap {
    /// Most trees have two nodes: the VMA of a process and that of its child.
    pub(super) nodes: SmallVec<[Node; 2]>,
    root: u32,
    /// Head of the list of free positions, linked by `left`.
    free: u32,
    pub(super) len: u32,
    /// False while there are few nodes, none of which is linked.
    linked: bool,
}

/// Returns a position's priority in the treap: a fixed hash that also scatters adjacent positions.
fn priority(at: u32) -> u32 {
    let x = (at ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b1);
    (x ^ (x >> 15)).wrapping_mul(0x85eb_ca6b)
}

impl Treap {
    pub(super) fn new() -> Self {
        Self {
            nodes: SmallVec::new(),
            root: NIL,
            free: NIL,
            len: 0,
            linked: false,
        }
    }

    /// Returns the number of bytes of heap memory that the nodes use.
    pub(super) fn bytes(&self) -> usize {
        match self.nodes.spilled() {
            true => self.nodes.capacity() * size_of::<Node>(),
            false => 0,
        }
    }

    pub(super) fn reserve(&mut self) -> Result<(), Errno> {
        if self.free == NIL {
            self.nodes.try_reserve(1).map_err(|_| Errno::ENOMEM)
        } else {
            Ok(())
        }
    }

    pub(super) fn insert(&mut self, first: u64, last: u64, vma: VmaId) -> u32 {
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
        self.len += 1;
        if self.linked {
            self.links().link(at);
        } else if self.nodes.len() > FEW {
            // The vector grows only if no position is free.
            self.linked = true;
            let positions = 0..self.nodes.len() as u32;
            let mut links = self.links();
            positions.for_each(|at| links.link(at));
        }
        at
    }

    pub(super) fn remove(&mut self, at: u32) {
        if self.linked {
            self.links().unlink(at);
        }
        let node = &mut self.nodes[at as usize];
        (node.first, node.last) = (1, 0);
        node.left = self.free;
        self.free = at;
        self.len -= 1;
    }

    pub(super) fn update(&mut self, at: u32, first: u64, last: u64) {
        if !self.linked {
            let node = &mut self.nodes[at as usize];
            (node.first, node.last) = (first, last);
            return;
        }
        let mut links = self.links();
        if links.nodes[at as usize].first == first {
            let path = links.path_to(at);
            links.nodes[at as usize].last = last;
            links.refresh(at);
            links.refresh_up(&path);
            return;
        }
        links.unlink(at);
        let node = &mut links.nodes[at as usize];
        *node = Node {
            first,
            last,
            max_last: last,
            vma: node.vma,
            left: NIL,
            right: NIL,
        };
        links.link(at);
    }

    /// Returns the nodes, of which some are linked or are about to be.
    fn links(&mut self) -> Links<'_> {
        Links {
            nodes: &mut self.nodes,
            root: &mut self.root,
        }
    }

    /// Calls `f` with every VMA that contains a page in `first..=last`, in order of first page.
    pub(super) fn for_each_overlapping(&self, first: u64, last: u64, f: &mut impl FnMut(VmaId)) {
        if self.linked {
            return visit(&self.nodes, self.root, (first, last), f);
        }
        let nodes = self.nodes.iter().enumerate();
        let overlaps =
            |node: &Node| node.first <= node.last && node.first <= last && node.last >= first;
        let mut found: SmallVec<[(u64, usize); FEW]> = nodes
            .filter(|(_, node)| overlaps(node))
            .map(|(at, node)| (node.first, at))
            .collect();
        found.sort_unstable();
        found.iter().for_each(|&(_, at)| f(self.nodes[at].vma));
    }

    /// Checks T1, T2 and T3.
    pub(super) fn validate(&self) -> Result<(), &'static str> {
        let mut count = 0;
        if self.linked {
            check(&self.nodes, self.root, &mut None, &mut count)?;
        } else {
            let used = self.nodes.iter().filter(|node| node.first <= node.last);
            count = used.count() as u32;
            if self.nodes.len() > FEW || self.root != NIL {
                return Err("T3: interval tree not linked");
            }
        }
        match count == self.len {
            true => Ok(()),
            false => Err("T1: interval tree counts wrong"),
        }
    }
}

/// The nodes of a treap that is linked, or is being linked.
///
/// A slice is found once; each access to the vector would ask again where the vector's nodes are.
struct Links<'t> {
    nodes: &'t mut [Node],
    root: &'t mut u32,
}

impl Links<'_> {
    fn key(&self, at: u32) -> (u64, u32) {
        (self.nodes[at as usize].first, at)
    }

    fn link(&mut self, at: u32) {
        let (key, rank) = (self.key(at), priority(at));
        let last = self.nodes[at as usize].last;
        let (mut parent, mut below) = (NIL, *self.root);
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
            *self.root = now;
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
        let mut above = *self.root;
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
}

/// Visits a subtree; see [`Treap::for_each_overlapping`].
fn visit(nodes: &[Node], at: u32, (first, last): (u64, u64), f: &mut impl FnMut(VmaId)) {
    let Some(node) = nodes.get(at as usize) else {
        return;
    };
    if node.max_last < first {
        return;
    }
    visit(nodes, node.left, (first, last), f);
    if node.first <= last {
        if node.last >= first {
            f(node.vma);
        }
        visit(nodes, node.right, (first, last), f);
    }
}

/// Checks a subtree, and returns the highest `last` in it. `last` is the key of the node before it.
fn check(
    nodes: &[Node],
    at: u32,
    last: &mut Option<(u64, u32)>,
    count: &mut u32,
) -> Result<u64, &'static str> {
    let Some(node) = nodes.get(at as usize) else {
        return Ok(0);
    };
    let left = check(nodes, node.left, last, count)?;
    let key = (node.first, at);
    if last.is_some_and(|before| before >= key) {
        return Err("T1: interval tree out of order");
    }
    *last = Some(key);
    *count += 1;
    let right = check(nodes, node.right, last, count)?;
    if node.max_last != node.last.max(left).max(right) {
        return Err("T2: interval tree maximum wrong");
    }
    Ok(node.max_last)
}
