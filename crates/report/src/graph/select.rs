//! Selection of the part of a graph that fits into a drawing.
//!
//! A drawing with hundreds of boxes is not readable. Families of anon_vmas that span the most
//! processes are selected first; among those, families whose VMAs belong to the longest run of
//! equal neighbours, because such neighbours are what a reader wants to see explained; then those
//! at lower addresses. A family is drawn completely or not at all, except that the first family is
//! cut if it is too large. The drawing states the number of omitted elements.

use super::kernel::NOT_SEEN;
use super::{Av, Graph, Process, Vma, counted};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Maximum size of the selected part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Maximum number of processes.
    pub processes: usize,
    /// Maximum number of VMAs per process.
    pub vmas: usize,
    /// Whether to show VMAs without an anon_vma.
    pub unattached: Unattached,
}

/// Whether VMAs without an anon_vma are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unattached {
    /// Show VMAs without an anon_vma after the other VMAs, as many as fit.
    Show,
    /// Hide VMAs without an anon_vma.
    Hide,
}

/// Numbers of elements that a drawing omits.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LeftOut {
    /// Number of omitted processes, with all their VMAs.
    pub processes: usize,
    /// Number of omitted VMAs with an anon_vma, in processes that are drawn.
    pub vmas: usize,
    /// Number of omitted VMAs without an anon_vma, in processes that are drawn.
    pub vmas_without: usize,
    /// Number of omitted anon_vmas: those that cannot be reached from any drawn VMA.
    pub anon_vmas: usize,
    /// Number of omitted VMAs of each process that is drawn.
    pub by_process: Vec<usize>,
}

impl LeftOut {
    /// Formats the number of VMAs of process `at`, of which `shown` are drawn.
    pub(super) fn vmas_of(&self, at: usize, shown: usize) -> String {
        match self.by_process.get(at) {
            None | Some(0) => counted(shown, "VMA", "VMAs"),
            Some(omitted) => {
                format!("{shown} of {}", counted(shown + omitted, "VMA", "VMAs"))
            }
        }
    }

    /// Returns one line, or `None` if nothing is omitted.
    pub fn text(&self) -> Option<String> {
        let parts = [
            (self.processes, "process", "processes"),
            (self.vmas, "VMA with an anon_vma", "VMAs with an anon_vma"),
            (
                self.vmas_without,
                "VMA without an anon_vma",
                "VMAs without an anon_vma",
            ),
            (self.anon_vmas, "anon_vma", "anon_vmas"),
        ];
        let said: Vec<_> = parts
            .iter()
            .filter(|(n, ..)| *n > 0)
            .map(|(n, one, more)| counted(*n, one, more))
            .collect();
        (!said.is_empty()).then(|| format!("left out: {}", said.join(", ")))
    }
}

impl Graph {
    /// Returns the part of the graph within `extent`, and the numbers of omitted elements.
    ///
    /// The anon_vmas keep their numbers.
    pub fn select(&self, extent: Extent) -> (Graph, LeftOut) {
        let mut part = self.clone();
        part.processes.truncate(extent.processes);
        for process in &mut part.processes {
            process.parent = process.parent.filter(|&parent| parent < extent.processes);
        }
        let mut taken: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut room = vec![extent.vmas; part.processes.len()];
        for (rank, family) in part.ranked() {
            if rank.without && extent.unattached == Unattached::Hide {
                break;
            }
            let mut need = vec![0; room.len()];
            family.iter().for_each(|&(process, _)| need[process] += 1);
            let fits = need.iter().zip(&room).all(|(need, room)| need <= room);
            if fits || taken.is_empty() {
                for (process, vma) in family {
                    if room[process] > 0 {
                        room[process] -= 1;
                        taken.insert((process, vma));
                    }
                }
            }
        }
        let mut left = LeftOut {
            processes: self.processes.len() - part.processes.len(),
            by_process: vec![0; part.processes.len()],
            ..LeftOut::default()
        };
        for (at, process) in part.processes.iter_mut().enumerate() {
            let mut index = 0;
            process.vmas.retain(|vma| {
                let keep = taken.contains(&(at, index));
                index += 1;
                left.by_process[at] += usize::from(!keep);
                match (keep, vma.own) {
                    (true, _) => {}
                    (false, Some(_)) => left.vmas += 1,
                    (false, None) => left.vmas_without += 1,
                }
                keep
            });
        }
        left.anon_vmas = self.reached().len() - part.reached().len();
        let signs = part.signs();
        if !signs.hidden && !signs.roots {
            part.notes.retain(|note| note != NOT_SEEN);
        }
        (part, left)
    }

    /// Returns the anon_vmas to draw: those in the chain of any VMA, with their parents and roots.
    pub(super) fn reached(&self) -> BTreeSet<Av> {
        let vmas = self.processes.iter().flat_map(|p| &p.vmas);
        let mut reached: BTreeSet<Av> = vmas.flat_map(|v| v.chain.iter().copied()).collect();
        let mut next: Vec<Av> = reached.iter().copied().collect();
        while let Some(at) = next.pop() {
            let anon_vma = &self.anon_vmas[at.0];
            for above in anon_vma.parent.into_iter().chain([anon_vma.root]) {
                if reached.insert(above) {
                    next.push(above);
                }
            }
        }
        reached
    }

    /// Returns VMAs by family, best rank first; a VMA without an anon_vma is a family by itself.
    fn ranked(&self) -> Vec<(Rank, Vec<(usize, usize)>)> {
        type Family = (Option<Av>, u64);
        let mut families: std::collections::BTreeMap<Family, Vec<(usize, usize)>> =
            std::collections::BTreeMap::new();
        for (at, process) in self.processes.iter().enumerate() {
            for (index, vma) in process.vmas.iter().enumerate() {
                let family = self.family(vma);
                let alone = if family.is_none() { vma.start } else { 0 };
                families
                    .entry((family, alone))
                    .or_default()
                    .push((at, index));
            }
        }
        let runs: Vec<_> = self.processes.iter().map(runs).collect();
        let ranked = families.into_iter().map(|((family, _), vmas)| {
            let processes: BTreeSet<_> = vmas.iter().map(|(process, _)| *process).collect();
            let first = vmas
                .iter()
                .map(|&(p, v)| self.processes[p].vmas[v].start)
                .min();
            let rank = Rank {
                without: family.is_none(),
                processes: Reverse(processes.len()),
                run: Reverse(vmas.iter().map(|&(p, v)| runs[p][v]).max()),
                start: first.unwrap_or(0),
            };
            (rank, vmas)
        });
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_unstable();
        ranked
    }
}

/// Sort key of a family: the lowest is drawn first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    without: bool,
    processes: Reverse<usize>,
    run: Reverse<Option<usize>>,
    start: u64,
}

/// Returns for each VMA the length of the run of equal neighbours that it belongs to.
fn runs(process: &Process) -> Vec<usize> {
    let are_equal = |a: &Vma, b: &Vma| a.end == b.start && a.flags == b.flags && a.name == b.name;
    let runs = process.vmas.chunk_by(are_equal);
    runs.flat_map(|run| std::iter::repeat_n(run.len(), run.len()))
        .collect()
}
