//! A run over time: which mappings each address space had, and what happened to them.
//!
//! A mapping is a [`Band`]: a range of addresses that looks the same from one step to another. A
//! step is an event other than a page fault. [`Collector`] fills the model while a recording is
//! replayed, in bounded memory ([`thin`]); [`still`] makes it of one list of mappings. The page
//! ([`crate::page`]) reads it.
//!
//! # Picture
//! ```text
//! address ▲   ┌────────────┐        ┌────────────
//!         │   │ band 1     │        │ band 4: 1 and 2 merged
//!         │   ├───────┬────┴────────┤
//!         │   │ band 2│ band 3      │
//!         └───┴───────┴─────────────┴──────────▶ step
//! ```
//! # Invariants
//! T1  the bands of one address space that exist at one step do not overlap

mod collect;
mod follow;
mod select;
mod series;
pub mod still;
mod tables;
pub mod thin;

pub use collect::Collector;
pub use series::Series;
pub use tables::{Anon, FIRST, Kind, Look, Site, Tables, reasons};

/// Stands for "no anon_vma" and "a chain with only the band's own anon_vma".
pub const NONE: u32 = u32::MAX;

/// A mapping, as long as its range, look, neighbour below and anon_vma stay the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Band {
    /// Index of the address space in [`Timeline::spaces`].
    pub space: u32,
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Step at which the band begins.
    pub from: u32,
    /// Step at which the band no longer exists.
    pub to: u32,
    /// Number of its [`Look`].
    pub look: u32,
    /// Number of the [`Site`] that made it.
    pub site: u32,
    /// Number of the reason why it is apart from the mapping below it.
    pub reason: u8,
    /// True if a remedy could merge it with the mapping below it.
    pub joinable: bool,
    /// Number of its own anon_vma, or [`NONE`].
    pub anon: u32,
    /// Number of its chain, or [`NONE`].
    pub chain: u32,
}

/// What a mark shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum What {
    /// Mappings merged.
    Merge,
    /// A mapping was split.
    Split,
    /// Neighbours did not merge.
    Refusal,
    /// A call failed.
    Failure,
}

impl What {
    /// Returns the word for a mark.
    pub fn name(self) -> &'static str {
        match self {
            What::Merge => "merge",
            What::Split => "split",
            What::Refusal => "refusal",
            What::Failure => "failed call",
        }
    }
}

/// Something that happened to mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Index of the address space.
    pub space: u32,
    /// Step at which it happened.
    pub step: u32,
    /// What happened.
    pub what: What,
    /// Number of the label with the kind of merge, the reason of a refusal, or the error.
    pub detail: u32,
    /// How many times.
    pub count: u64,
    /// Address at which the call worked.
    pub addr: u64,
}

/// A step at which a band begins or ends, or a mark stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// Number of the step.
    pub step: u32,
    /// Number of the event in the recording, counted from 1.
    pub event: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub t: u64,
    /// Number of the label with the call.
    pub label: u32,
}

/// An address space.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Number of the address space in the recording.
    pub mm: u32,
    /// Process, if known.
    pub pid: Option<i32>,
    /// File name of the program.
    pub name: String,
    /// Index of the address space from which it was forked.
    pub parent: Option<u32>,
    /// First step.
    pub from: u32,
    /// Step at which it ended, or the last step.
    pub to: u32,
    /// Largest number of mappings under the kernel's rules.
    pub peak: u64,
    /// Last step at which it had that many.
    pub peak_step: u32,
    /// Number of calls that acted on it.
    pub calls: u64,
    /// Number of page faults.
    pub faults: u64,
    /// Numbers of mappings over time, one series for each policy.
    pub counts: Vec<Series>,
    /// False if its mappings were left out.
    pub drawn: bool,
}

/// What was left out because the page would be too large.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// Number of mappings that are not drawn, in address spaces that are.
    pub bands: u64,
    /// The longest of these lasted this number of steps.
    pub steps: u32,
    /// Number of marks that were joined with others.
    pub marks: u64,
    /// Number of address spaces whose mappings are not drawn.
    pub spaces: u64,
}

/// A run over time.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Names of the policies; the first is that of the kernel.
    pub policies: Vec<String>,
    /// Address spaces, by number.
    pub spaces: Vec<Space>,
    /// Bands by address space, address and step.
    pub bands: Vec<Band>,
    /// Marks by step.
    pub marks: Vec<Mark>,
    /// Steps that bands and marks refer to.
    pub steps: Vec<Step>,
    /// Number of the last step.
    pub last: u32,
    /// Shared values.
    pub tables: Tables,
    /// What was left out.
    pub left_out: LeftOut,
}

impl Timeline {
    /// Returns the index of the address space that had the most mappings.
    pub fn largest(&self) -> Option<u32> {
        let spaces = self.spaces.iter().enumerate();
        let largest = spaces.max_by_key(|(n, space)| (space.peak, std::cmp::Reverse(*n)));
        largest.map(|(n, _)| n as u32)
    }

    /// Returns the bands of an address space that exist at a step.
    pub fn at(&self, space: u32, step: u32) -> impl Iterator<Item = &Band> {
        let there = move |band: &&Band| band.from <= step && step < band.to;
        self.bands
            .iter()
            .filter(move |band| band.space == space)
            .filter(there)
    }

    /// Returns the step with this number.
    pub fn step(&self, step: u32) -> Option<&Step> {
        let at = self.steps.binary_search_by_key(&step, |step| step.step);
        self.steps.get(at.ok()?)
    }
}
