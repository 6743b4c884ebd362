//! Builds the graph of running processes from the kernel's data about them.
//!
//! The kernel's data contains each VMA's own anon_vma, the root and two counters of that anon_vma,
//! and whether the VMA's chain has more than one link. Parents, and the ancestors between a VMA's
//! own anon_vma and the root, are not visible. The root itself is always in the chain: a child
//! copies its parent's chain, and a chain begins with the first anon_vma of its family.

use super::{AnonVma, Av, Graph, Links, Numbering, Process, Source, Vma};
use vmarea::types::VmFlags;
use vmarea_process::view::ViewVma;

/// A VMA in the kernel's data, with a display name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NamedVma {
    /// Display name of the VMA.
    pub name: String,
    /// Fields of the VMA in the kernel's data.
    pub vma: ViewVma,
}

/// Builds the graph of processes. Each process is given by its name, the index of its parent, and
/// its VMAs by address.
pub fn graph(title: &str, all: Vec<(String, Option<usize>, Vec<NamedVma>)>) -> Graph {
    let mut anon_vmas = Met::default();
    let processes = all.into_iter().map(|(name, parent, vmas)| Process {
        name,
        parent,
        vmas: vmas.into_iter().map(|vma| anon_vmas.vma(vma)).collect(),
    });
    let processes = processes.collect();
    let mut graph = Graph {
        title: title.to_owned(),
        source: Source::Kernel,
        processes,
        anon_vmas: anon_vmas.anon_vmas,
        notes: Vec::new(),
    };
    if !graph.anon_vmas.is_empty() {
        graph.notes.push(NOT_SEEN.to_owned());
    }
    graph
}

/// Note for the reader of a live graph: some links are not visible.
pub const NOT_SEEN: &str = "the kernel shows each VMA's own anon_vma and its root; parents and the \
                            links to ancestors between the two are not visible (marked ?)";

#[derive(Default)]
struct Met {
    numbers: Numbering<u64>,
    anon_vmas: Vec<AnonVma>,
}

impl Met {
    fn vma(&mut self, NamedVma { name, vma }: NamedVma) -> Vma {
        let own = (vma.anon_vma != 0).then(|| {
            let root = self.anon_vma(vma.root, vma.root);
            let own = self.anon_vma(vma.anon_vma, vma.root);
            let known = &mut self.anon_vmas[own.0];
            known.num_children = vma.num_children;
            known.num_active_vmas = vma.num_active_vmas;
            (root, own)
        });
        let chain = match own {
            None => Vec::new(),
            Some((root, own)) if root == own || vma.chain_singular => vec![own],
            Some((root, own)) => vec![root, own],
        };
        Vma {
            start: vma.start,
            end: vma.end,
            pgoff: vma.pgoff,
            flags: VmFlags::from_bits_retain(vma.flags),
            name,
            own: own.map(|(_, own)| own),
            links: if vma.chain_singular || own.is_none() {
                Links::All
            } else {
                Links::Some
            },
            chain,
        }
    }

    fn anon_vma(&mut self, id: u64, root: u64) -> Av {
        let av = self.numbers.number(id);
        if av.0 == self.anon_vmas.len() {
            let root = self.numbers.number(root);
            self.anon_vmas.push(AnonVma {
                id: av,
                root,
                parent: (root == av).then_some(av),
                num_children: None,
                num_active_vmas: None,
            });
        }
        av
    }
}
