//! Builds the complete graph of address spaces in the core.

use super::{AnonVma, Graph, Links, Numbering, Process, Source, Vma};
use vmarea::Space;
use vmarea::mm::Layout;
use vmarea::types::{AnonVmaId, MmId, VmRange};
use vmarea::vma::VmaView;

/// A process to show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Display name of the process.
    pub name: String,
    /// Address space of the process.
    pub mm: MmId,
    /// Index of the member from which the process was forked.
    pub parent: Option<usize>,
}

/// Builds the graph of `members`, parents before children, for the VMAs that overlap `window`.
///
/// `name_of` returns each VMA's display name, which may be empty. An address space that no longer
/// exists is shown without VMAs.
pub fn graph(
    space: &Space,
    title: &str,
    members: &[Member],
    window: VmRange,
    name_of: &dyn Fn(&Layout, &VmaView) -> String,
) -> Graph {
    let mut met = Met::default();
    let processes = members.iter().map(|member| Process {
        name: member.name.clone(),
        parent: member.parent,
        vmas: vmas(space, member.mm, window, name_of, &mut met),
    });
    let processes = processes.collect();
    Graph {
        title: title.to_owned(),
        source: Source::Core,
        processes,
        anon_vmas: met.anon_vmas(space),
        notes: Vec::new(),
    }
}

fn vmas(
    space: &Space,
    mm: MmId,
    window: VmRange,
    name_of: &dyn Fn(&Layout, &VmaView) -> String,
    met: &mut Met,
) -> Vec<Vma> {
    let Some(r) = space.mmap_read_lock(mm) else {
        return Vec::new();
    };
    let layout = &r.state().layout;
    let shown = r.vmas().filter(|view| view.range.overlaps(window));
    let vmas = shown.map(|view| {
        let chain = r.chain(view.id);
        Vma {
            start: view.range.start,
            end: view.range.end,
            pgoff: view.pgoff().0,
            flags: view.body.flags,
            name: name_of(layout, &view),
            // Number the chain first: it begins with the root.
            chain: chain.into_iter().map(|id| met.number(id)).collect(),
            own: view.anon_vma.map(|id| met.number(id)),
            links: Links::All,
        }
    });
    vmas.collect()
}

/// Table of the anon_vmas that have been found so far, with their numbers.
#[derive(Default)]
struct Met {
    numbers: Numbering<AnonVmaId>,
    ids: Vec<AnonVmaId>,
}

impl Met {
    fn number(&mut self, id: AnonVmaId) -> super::Av {
        let av = self.numbers.number(id);
        if av.0 == self.ids.len() {
            self.ids.push(id);
        }
        av
    }

    /// Returns all anon_vmas found so far, and their ancestors.
    fn anon_vmas(mut self, space: &Space) -> Vec<AnonVma> {
        let mut anon_vmas = Vec::new();
        while let Some(&id) = self.ids.get(anon_vmas.len()) {
            let view = space.anon_vma_view(id);
            anon_vmas.push(AnonVma {
                id: self.number(id),
                root: self.number(view.root),
                parent: space.anon_vma_parent(id).map(|parent| self.number(parent)),
                num_children: Some(view.num_children.into()),
                num_active_vmas: Some(view.num_active_vmas.into()),
            });
        }
        anon_vmas
    }
}
