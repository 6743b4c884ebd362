//! The graph of VMAs, anon_vmas and the chains between them, for a family of processes.
//!
//! A VMA has its own anon_vma, and its chain also links it to the anon_vmas of its ancestors. An
//! anon_vma has a set of linked VMAs, a parent and a root. All sources and outputs share one model:
//! the core shows the whole graph ([`core`]) and a running kernel shows a part ([`kernel`]). The
//! outputs ([`text`], [`dot`], [`svg`]) do not depend on the source.
//!
//! # Picture
//! ```text
//! core::graph ──┐
//! kernel::graph ┴─▶ Graph ── select ──▶ text, dot, svg, JSON
//! ```
//!
//! # Linux
//! `struct anon_vma`, `struct anon_vma_chain` (`include/linux/rmap.h`), 6.18.

pub mod core;
pub mod dot;
#[cfg(feature = "testing")]
pub mod family;
pub mod kernel;
pub mod recorded;
mod select;
mod signs;
pub mod svg;
pub mod text;

pub use select::{Extent, LeftOut, Unattached};

use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use vmarea::types::{PAGE_SHIFT, VmFlags};
use vmarea_explain::text::count;

/// Index of an anon_vma in [`Graph::anon_vmas`]; the first is printed as `A1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Av(
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", regex(pattern = "^A[1-9][0-9]*$"))
    )]
    pub usize,
);

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

/// Source of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The core: the graph is completely known.
    Core,
    /// The running kernel: only each VMA's own anon_vma and its root are known.
    Kernel,
}

/// The whole graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Graph {
    /// Heading of the graph.
    pub title: String,
    /// Source of the graph.
    pub source: Source,
    /// Processes, parents before their children.
    pub processes: Vec<Process>,
    /// Every anon_vma that is linked from a VMA of these processes or from another anon_vma.
    pub anon_vmas: Vec<AnonVma>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// An address space.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process {
    /// Display name of the process.
    pub name: String,
    /// Index of the parent process, if the parent is known and shown.
    pub parent: Option<usize>,
    /// VMAs by address.
    pub vmas: Vec<Vma>,
}

/// A VMA.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Vma {
    /// Address of the first byte.
    #[serde(serialize_with = "hexadecimal")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", regex(pattern = "^0x[0-9a-f]+$"))
    )]
    pub start: u64,
    /// Address after the last byte.
    #[serde(serialize_with = "hexadecimal")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", regex(pattern = "^0x[0-9a-f]+$"))
    )]
    pub end: u64,
    /// `vm_pgoff`, pages.
    #[serde(serialize_with = "hexadecimal")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", regex(pattern = "^0x[0-9a-f]+$"))
    )]
    pub pgoff: u64,
    /// `vm_flags`.
    #[serde(serialize_with = "super::flags::serialize")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub flags: VmFlags,
    /// `[heap]`, the name of a file, or empty.
    pub name: String,
    /// The VMA's own anon_vma, to which new anonymous pages belong.
    pub own: Option<Av>,
    /// The known anon_vmas in the VMA's chain, oldest first.
    pub chain: Vec<Av>,
    /// Whether all links of the chain are known.
    pub links: Links,
}

/// Completeness of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Links {
    /// The whole chain is known.
    All,
    /// The chain may have more links.
    Some,
}

/// An anon_vma.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AnonVma {
    /// Index of the anon_vma.
    pub id: Av,
    /// Root of the family: its first anon_vma. A root is its own root.
    pub root: Av,
    /// Parent anon_vma; `None` if not visible. A root is its own parent.
    pub parent: Option<Av>,
    /// `num_children`: number of anon_vmas with this parent; a root counts itself.
    pub num_children: Option<u64>,
    /// `num_active_vmas`: number of VMAs whose own anon_vma this is.
    pub num_active_vmas: Option<u64>,
}

impl Graph {
    /// Returns the families by root, each with its anon_vmas in order.
    pub fn families(&self) -> BTreeMap<Av, Vec<&AnonVma>> {
        let mut families: BTreeMap<Av, Vec<&AnonVma>> = BTreeMap::new();
        for anon_vma in &self.anon_vmas {
            families.entry(anon_vma.root).or_default().push(anon_vma);
        }
        families
    }

    /// Returns the root of the family that a VMA belongs to.
    pub fn family(&self, vma: &Vma) -> Option<Av> {
        let any = vma.own.or(vma.chain.first().copied())?;
        Some(self.anon_vmas[any.0].root)
    }

    /// Returns the number of VMAs in all processes.
    pub fn vma_count(&self) -> usize {
        self.processes.iter().map(|p| p.vmas.len()).sum()
    }
}

impl Vma {
    /// Returns the size in pages.
    pub fn pages(&self) -> u64 {
        (self.end - self.start) >> PAGE_SHIFT
    }

    /// Formats the permissions as `rwxp`, as in `/proc/PID/maps`.
    pub fn letters(&self) -> String {
        super::flags::letters(self.flags)
    }

    /// Formats the address range as `1000-3000`.
    pub fn range(&self) -> String {
        format!("{:x}-{:x}", self.start, self.end)
    }
}

/// Assigns numbers to keys in order of first occurrence.
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

/// Formats a count with its noun: `1 process`, `2 processes`.
fn counted(n: usize, one: &str, more: &str) -> String {
    format!("{} {}", count(n as u64), if n == 1 { one } else { more })
}

/// Formats a number of pages.
fn pages(n: u64) -> String {
    counted(n as usize, "page", "pages")
}

fn hexadecimal<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:#x}"))
}
