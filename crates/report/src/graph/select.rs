//! What of a graph fits into a drawing.
//!
//! A drawing with hundreds of boxes tells nothing. Families of anon_vmas that reach over several
//! processes come first, then those of more anon_vmas, then by address; a family is drawn whole or
//! not at all, unless the very first is already too large. What is left out is counted and said.

use super::{Av, Graph, counted};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// How much is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Processes, at most.
    pub processes: usize,
    /// VMAs of each, at most.
    pub vmas: usize,
    /// VMAs that hang on nothing.
    pub unattached: Unattached,
}

/// Whether VMAs without an anon_vma are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unattached {
    /// After the others, as far as there is room.
    Show,
    /// Not.
    Hide,
}

/// What a drawing does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LeftOut {
    /// Processes, with all their VMAs.
    pub processes: usize,
    /// VMAs with an anon_vma, of processes that are drawn.
    pub vmas: usize,
    /// VMAs without an anon_vma, of processes that are drawn.
    pub vmas_without: usize,
    /// anon_vmas on which no VMA hangs that is drawn.
    pub anon_vmas: usize,
}

impl LeftOut {
    /// One line, or none where everything is there.
    pub fn text(&self) -> Option<String> {
        let parts = [
            (self.processes, "process", "processes"),
            (self.vmas, "VMA with an anon_vma", "VMAs with an anon_vma"),
            (self.vmas_without, "VMA without one", "VMAs without one"),
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
    /// The part of it within `extent`, and what that leaves out. The numbers of anon_vmas stay as
    /// they are.
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
            ..LeftOut::default()
        };
        for (at, process) in part.processes.iter_mut().enumerate() {
            let mut index = 0;
            process.vmas.retain(|vma| {
                let keep = taken.contains(&(at, index));
                index += 1;
                match (keep, vma.own) {
                    (true, _) => {}
                    (false, Some(_)) => left.vmas += 1,
                    (false, None) => left.vmas_without += 1,
                }
                keep
            });
        }
        left.anon_vmas = self.reached().len() - part.reached().len();
        (part, left)
    }

    /// anon_vmas that are worth drawing: a VMA hangs on them, or they are root or parent of such.
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

    /// VMAs by family, the most telling first; each without an anon_vma is one of its own.
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
        let ranked = families.into_iter().map(|((family, _), vmas)| {
            let processes: BTreeSet<_> = vmas.iter().map(|(process, _)| *process).collect();
            let first = vmas
                .iter()
                .map(|&(p, v)| self.processes[p].vmas[v].start)
                .min();
            let rank = Rank {
                without: family.is_none(),
                processes: Reverse(processes.len()),
                start: first.unwrap_or(0),
            };
            (rank, vmas)
        });
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort();
        ranked
    }
}

/// What is drawn first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    without: bool,
    processes: Reverse<usize>,
    start: u64,
}
