//! Interval tree of VMAs by page offset: finds the VMAs that contain a given page of an anon_vma.
//!
//! Several VMAs may have the same interval. A tree with several VMAs is a treap (see `treap`), whose
//! module lists the invariants.

use super::treap::Treap;
use crate::types::{Errno, VmaId};
use alloc::boxed::Box;
use alloc::vec::Vec;

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
            Form::Many(treap) => size_of::<Treap>() + treap[0].bytes(),
        }
    }

    /// Reserves space for one more VMA, so that inserting it cannot fail.
    pub fn reserve(&mut self) -> Result<(), Errno> {
        match &mut self.0 {
            Form::Empty => Ok(()),
            Form::Many(treap) => treap[0].reserve(),
            Form::One { first, last, vma } => {
                let mut treap = Treap::new();
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
            Form::Many(treap) => treap[0].for_each_overlapping(first, last, &mut f),
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

    /// Checks the invariants of the treap.
    pub fn validate(&self) -> Result<(), &'static str> {
        match &self.0 {
            Form::Many(treap) => treap[0].validate(),
            Form::Empty | Form::One { .. } => Ok(()),
        }
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
