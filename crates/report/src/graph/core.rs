//! The graph of address spaces of our own core, where nothing is hidden.

use super::{AnonVma, Graph, Links, Numbering, Process, Source, Vma};
use vmarea::Space;
use vmarea::mm::Layout;
use vmarea::types::{AnonVmaId, MmId, VmRange};
use vmarea::vma::VmaView;

/// A process to show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// What people call it.
    pub name: String,
    /// Its address space.
    pub mm: MmId,
    /// Place among the members of the one that it was forked from.
    pub parent: Option<usize>,
}

/// The graph of `members`, parents before their children, as far as they lie in `window`.
/// `name_of` gives each VMA a name, which may be empty. An address space that has ended is shown
/// without VMAs.
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
            pgoff: view.pgoff.0,
            flags: view.body.flags,
            name: name_of(layout, &view),
            // The chain is numbered first: it begins with the root.
            chain: chain.into_iter().map(|id| met.number(id)).collect(),
            own: view.anon_vma.map(|id| met.number(id)),
            links: Links::All,
        }
    });
    vmas.collect()
}

/// anon_vmas by their numbers.
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

    /// All that were met, and their ancestors.
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
