//! The graph of VMAs, anon_vmas and the chains between them, for a family of processes.
//!
//! A VMA has an anon_vma of its own and hangs, by its chain, on those of its ancestors as well; an
//! anon_vma knows the VMAs that hang on it, its parent and its root. One model of that serves
//! everything: our own core shows all of it ([`core`]), a running kernel a part ([`kernel`]), and
//! what draws it ([`text`], [`dot`], [`svg`]) does not ask where it came from.
//!
//! # Picture
//! ```text
//! core::graph ──┐                    ┌─▶ text, dot, svg, JSON
//! kernel::graph ┴─▶ Graph ── select ─┤
//!                                    └─▶ isomorphism (two graphs, VMA by VMA)
//! ```
//!
//! # Linux
//! `struct anon_vma`, `struct anon_vma_chain` (`include/linux/rmap.h`), 6.18.

pub mod core;
pub mod demo;
pub mod dot;
pub mod isomorphism;
pub mod kernel;
pub mod recorded;
mod select;
pub mod svg;
pub mod text;

pub use select::{Extent, LeftOut, Unattached};

use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use vmarea::types::{PAGE_SHIFT, VmFlags};

/// An anon_vma of a graph: its place in [`Graph::anon_vmas`]. Printed as `A1` for the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Av(pub usize);

impl fmt::Display for Av {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("A{}", self.0 + 1))
    }
}

impl Serialize for Av {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where a graph was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Our own core: everything is known.
    Core,
    /// The running kernel: of each VMA the own anon_vma and the root.
    Kernel,
}

/// The whole graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Graph {
    /// What is shown, for a heading.
    pub title: String,
    /// Where it was seen.
    pub source: Source,
    /// Processes, parents before their children.
    pub processes: Vec<Process>,
    /// Every anon_vma that one of their VMAs, or another anon_vma, leads to.
    pub anon_vmas: Vec<AnonVma>,
    /// What to know when reading it.
    pub notes: Vec<String>,
}

/// An address space.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Process {
    /// What people call it.
    pub name: String,
    /// Place of the process that it was forked from, where that is known and shown.
    pub parent: Option<usize>,
    /// Its VMAs by address.
    pub vmas: Vec<Vma>,
}

/// A VMA.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Vma {
    /// First address.
    #[serde(serialize_with = "hexadecimal")]
    pub start: u64,
    /// First address after it.
    #[serde(serialize_with = "hexadecimal")]
    pub end: u64,
    /// `vm_pgoff`, pages.
    #[serde(serialize_with = "hexadecimal")]
    pub pgoff: u64,
    /// `vm_flags`.
    #[serde(serialize_with = "super::flags::serialize")]
    pub flags: VmFlags,
    /// `[heap]`, the name of a file, or nothing.
    pub name: String,
    /// Its own anon_vma: new anonymous pages belong to it.
    pub own: Option<Av>,
    /// The anon_vmas on which it hangs, oldest first, as far as they are known.
    pub chain: Vec<Av>,
    /// Whether there are links that cannot be seen.
    pub links: Links,
}

/// How much of a chain is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Links {
    /// All of it.
    All,
    /// There may be more.
    Some,
}

/// An anon_vma.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AnonVma {
    /// Its number.
    pub id: Av,
    /// The first of its family, itself for a root.
    pub root: Av,
    /// The one it was forked from, itself for a root; none where it cannot be seen.
    pub parent: Option<Av>,
    /// `num_children`: anon_vmas whose parent it is, itself included for a root.
    pub num_children: Option<u64>,
    /// `num_active_vmas`: VMAs whose own it is.
    pub num_active_vmas: Option<u64>,
}

impl Graph {
    /// Families by their root, each with its anon_vmas in order.
    pub fn families(&self) -> BTreeMap<Av, Vec<&AnonVma>> {
        let mut families: BTreeMap<Av, Vec<&AnonVma>> = BTreeMap::new();
        for anon_vma in &self.anon_vmas {
            families.entry(anon_vma.root).or_default().push(anon_vma);
        }
        families
    }

    /// The root of the family that a VMA is of.
    pub fn family(&self, vma: &Vma) -> Option<Av> {
        let any = vma.own.or(vma.chain.first().copied())?;
        Some(self.anon_vmas[any.0].root)
    }

    /// VMAs of all processes.
    pub fn vma_count(&self) -> usize {
        self.processes.iter().map(|p| p.vmas.len()).sum()
    }

    /// True where a chain is not wholly known.
    pub fn has_hidden_links(&self) -> bool {
        let mut vmas = self.processes.iter().flat_map(|p| &p.vmas);
        vmas.any(|vma| vma.links == Links::Some)
    }
}

impl Vma {
    /// Its pages.
    pub fn pages(&self) -> u64 {
        (self.end - self.start) >> PAGE_SHIFT
    }

    /// `rwxp` as in `/proc/PID/maps`.
    pub fn letters(&self) -> String {
        super::flags::letters(self.flags)
    }

    /// `1000-3000`.
    pub fn range(&self) -> String {
        format!("{:x}-{:x}", self.start, self.end)
    }
}

/// Numbers things in the order in which they are met.
#[derive(Debug)]
struct Numbering<K> {
    numbers: BTreeMap<K, Av>,
}

impl<K: Ord> Default for Numbering<K> {
    fn default() -> Self {
        Numbering {
            numbers: BTreeMap::new(),
        }
    }
}

impl<K: Ord> Numbering<K> {
    fn number(&mut self, key: K) -> Av {
        let next = Av(self.numbers.len());
        *self.numbers.entry(key).or_insert(next)
    }
}

/// `1 process`, `2 processes`.
fn counted(n: usize, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

fn hexadecimal<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:#x}"))
}
