//! Compares the mappings of the core with the known bands after an event.
//!
//! Only the addresses that the event may have changed are compared. A band that is no longer there
//! as it was ends; a new one begins. The call that is named as the maker of a mapping is the one
//! that created the boundary below it, as in `explain`.

use super::tables::{FIRST, Look, Tables, reason_number};
use super::{Anon, Band, NONE};
use std::collections::BTreeMap;
use vmarea::Space;
use vmarea::policy::Policy;
use vmarea::types::{AnonVmaId, MmId};
use vmarea::vma::VmaView;
use vmarea_explain::origins::Show;
use vmarea_process::{Boundary, Mapping};

/// A band that still exists, with the end of the mapping below it.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// The band; its end in time is not set.
    pub band: Band,
    /// End of the mapping below it.
    pub below: Option<u64>,
}

/// The bands of an address space that exist now, by address.
pub type Bands = BTreeMap<u64, Live>;

/// The core's side of a comparison.
pub struct Core<'a> {
    /// The core.
    pub space: &'a Space,
    /// The address space.
    pub mm: MmId,
    /// Rules of the recorded kernel.
    pub policy: &'a Policy,
    /// Converts VMAs to mappings.
    pub show: &'a dyn Show,
}

/// The event after which the mappings are compared.
#[derive(Clone, Copy, Debug)]
pub struct Cause {
    /// Number of the step.
    pub step: u32,
    /// The call that made what is new; `None` if no call did, such as after a page fault.
    pub site: Option<u32>,
    /// Index of the address space.
    pub space: u32,
}

impl Core<'_> {
    /// Compares the mappings between two addresses; passes each band that ended to `ended`.
    ///
    /// Returns true if anything changed.
    pub fn compare(
        &self,
        bands: &mut Bands,
        tables: &mut Tables,
        (low, high): (u64, u64),
        cause: Cause,
        ended: &mut dyn FnMut(Band),
    ) -> bool {
        let Some(guard) = self.space.mmap_read_lock(self.mm) else {
            return false;
        };
        let found = found(|addr| guard.find_vma(addr), low, high);
        let mut changed = end_missing(bands, low, &found, cause.step, ended);
        let below = found.first().and_then(|first| {
            let known = bands.range(..first.range.start).next_back()?;
            guard.vma_lookup(*known.0)
        });
        let mut below = below.map(|view| self.show.mapping(&view));
        for view in &found {
            let mapping = self.show.mapping(view);
            let chain = guard.chain(view.id);
            let new = self.band(tables, view, &chain, below.as_ref(), &mapping, cause);
            changed |= replace(bands, new, cause, ended);
            below = Some(mapping);
        }
        changed
    }

    fn band(
        &self,
        tables: &mut Tables,
        view: &VmaView,
        chain: &[AnonVmaId],
        below: Option<&Mapping>,
        mapping: &Mapping,
        cause: Cause,
    ) -> Live {
        let boundary = below.map(|below| Boundary::between(self.policy, below, mapping));
        let anon = view.anon_vma.map_or(NONE, |id| self.anon(tables, id));
        let links: Vec<u32> = chain.iter().map(|id| self.anon(tables, *id)).collect();
        let chain = match links.as_slice() {
            [] => NONE,
            [only] if *only == anon => NONE,
            _ => tables.chains.number(links),
        };
        let band = Band {
            space: cause.space,
            start: view.range.start,
            end: view.range.end,
            from: cause.step,
            to: cause.step,
            look: tables.looks.number(Look::of(mapping)),
            site: cause.site.unwrap_or(0),
            reason: boundary.as_ref().map_or(FIRST, |b| reason_number(b.reason)),
            joinable: boundary.is_some_and(|b| b.remedy.is_some()),
            anon,
            chain,
        };
        Live {
            band,
            below: below.map(|below| below.entry.end),
        }
    }

    /// Returns the number of an anon_vma; adds it with its ancestors if it is new.
    fn anon(&self, tables: &mut Tables, id: AnonVmaId) -> u32 {
        if let Some(&number) = tables.anon_numbers.get(&id.to_bits()) {
            return number;
        }
        let number = tables.anons.len() as u32;
        tables.anon_numbers.insert(id.to_bits(), number);
        tables.anons.push(Anon {
            parent: number,
            root: number,
        });
        let root = self.space.anon_vma_view(id).root;
        let parent = self.space.anon_vma_parent(id).unwrap_or(id);
        let (parent, root) = (self.anon(tables, parent), self.anon(tables, root));
        tables.anons[number as usize] = Anon { parent, root };
        number
    }
}

/// Returns the mappings from the one that ends at `low` to the first one after `high`.
fn found(find: impl Fn(u64) -> Option<VmaView>, low: u64, high: u64) -> Vec<VmaView> {
    let mut found = Vec::new();
    let mut at = find(low.saturating_sub(1));
    while let Some(view) = at {
        let (start, end) = (view.range.start, view.range.end);
        found.push(view);
        if start >= high {
            break;
        }
        at = find(end);
    }
    found
}

/// Ends the bands from `low` to the last mapping in `found` that are no longer the start of one.
fn end_missing(
    bands: &mut Bands,
    low: u64,
    found: &[VmaView],
    step: u32,
    ended: &mut dyn FnMut(Band),
) -> bool {
    let last = found.last().map_or(u64::MAX, |view| view.range.start);
    let begins = |start: &u64| {
        let at = found.binary_search_by_key(start, |view| view.range.start);
        at.is_ok()
    };
    let known = bands.range(low.min(last)..=last).map(|(start, _)| *start);
    let gone: Vec<u64> = known.filter(|start| !begins(start)).collect();
    for start in &gone {
        if let Some(live) = bands.remove(start) {
            end(live.band, step, ended);
        }
    }
    !gone.is_empty()
}

/// Enters a mapping; returns false if its band is the same as before.
fn replace(bands: &mut Bands, mut new: Live, cause: Cause, ended: &mut dyn FnMut(Band)) -> bool {
    if let Some(old) = bands.get(&new.band.start) {
        let same_boundary = old.below == new.below && old.band.reason == new.band.reason;
        if cause.site.is_none() || same_boundary {
            new.band.site = old.band.site;
        }
        let same = Band {
            from: new.band.from,
            to: new.band.to,
            ..old.band
        };
        if same == new.band {
            return false;
        }
        end(old.band, cause.step, ended);
    }
    bands.insert(new.band.start, new);
    true
}

/// Passes a band on, unless it lasted for no step.
pub fn end(band: Band, step: u32, ended: &mut dyn FnMut(Band)) {
    if band.from < step {
        ended(Band { to: step, ..band });
    }
}
