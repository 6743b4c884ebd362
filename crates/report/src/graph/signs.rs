//! The signs that a drawing of a graph needs: a legend explains only what appears.

use super::{AnonVma, Graph, Links};

/// Which signs a drawing of the graph contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Signs {
    /// A VMA has an anon_vma of its own.
    pub own: bool,
    /// A VMA is linked to another anon_vma.
    pub links: bool,
    /// A VMA has links that are not visible.
    pub hidden: bool,
    /// An anon_vma has a parent.
    pub parents: bool,
    /// An anon_vma has a root that is not its parent, or its parent is not visible.
    pub roots: bool,
}

impl Graph {
    /// Returns the signs in a drawing of all VMAs, and of the anon_vmas that they reach.
    pub(super) fn signs(&self) -> Signs {
        let mut signs = Signs::default();
        for (_, vma) in self.vmas() {
            signs.own |= vma.own.is_some();
            signs.links |= vma.chain.iter().any(|link| vma.own != Some(*link));
            signs.hidden |= vma.links == Links::Some;
        }
        let reached = self.reached();
        for anon_vma in self.anon_vmas.iter().filter(|a| reached.contains(&a.id)) {
            signs.parents |= anon_vma.parent.is_some_and(|parent| parent != anon_vma.id);
            signs.roots |= anon_vma.has_root_arrow();
        }
        signs
    }
}

impl AnonVma {
    /// True if an arrow to the root says more than the arrow to the parent.
    pub(super) fn has_root_arrow(&self) -> bool {
        self.root != self.id && self.parent != Some(self.root)
    }

    /// Describes parent and root in a few words.
    pub(super) fn ancestry(&self) -> String {
        match self.parent {
            _ if self.root == self.id => "a root".to_owned(),
            Some(parent) => format!("parent {parent}, root {}", self.root),
            None => format!("parent ?, root {}", self.root),
        }
    }
}
