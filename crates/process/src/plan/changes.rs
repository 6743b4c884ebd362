//! The places that a repair without moving pages changes: guards, flags, empty reservations.

use crate::boundary::{Boundary, boundaries};
use crate::mapping::Mapping;
use crate::pages::Pages;
use crate::reason::Reason;
use crate::remedy::{REVERSIBLE, Remedy};
use vmarea_merge::policy::Policy;
use vmarea_merge::types::{VmFlags, VmRange};
use vmarea_trace::event::Perms;

/// Change of one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The guard becomes accessible like the mapping below it, and is marked with
    /// `MADV_GUARD_INSTALL`.
    Mark {
        /// The guard.
        range: VmRange,
        /// Permissions of the mapping below the guard.
        perms: Perms,
    },
    /// Flags of a mapping are cleared.
    Clear {
        /// The mapping.
        range: VmRange,
        /// The flags to clear.
        flags: VmFlags,
    },
    /// One new reservation replaces several empty ones.
    Reserve {
        /// The empty mappings, without gaps.
        range: VmRange,
        /// True if at least one of them is mapped with `MAP_NORESERVE`.
        noreserve: bool,
    },
}

impl Change {
    /// Returns the range that the change affects.
    pub fn range(&self) -> VmRange {
        match *self {
            Change::Mark { range, .. }
            | Change::Clear { range, .. }
            | Change::Reserve { range, .. } => range,
        }
    }
}

/// The changes of one repair, by address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// The changes.
    pub list: Vec<Change>,
    /// Number of guards left unchanged because they would remain separate mappings even if they
    /// were accessible. Such guards were used as memory earlier, and so have an anon_vma.
    pub apart: u64,
    /// Number of changes that depend on ranges being empty, which is unknown.
    pub uncertain: u64,
}

/// Returns the changes that `remedy` makes; none if the remedy moves pages.
pub fn changes(
    remedy: Remedy,
    policy: &Policy,
    mappings: &[Mapping],
    pages: &dyn Pages,
) -> Changes {
    let mut found = Changes::default();
    let boundaries = boundaries(policy, mappings);
    match remedy {
        Remedy::Guards => guards(mappings, &boundaries, pages, &mut found),
        Remedy::Flags => flags(mappings, &boundaries, &mut found),
        Remedy::Empties => empties(mappings, &boundaries, pages, &mut found),
        Remedy::Merge | Remedy::Copy => {}
    }
    found
}

impl Changes {
    /// Returns true if the range has no pages, and counts an unknown answer.
    fn may_be_empty(&mut self, pages: &dyn Pages, range: VmRange) -> bool {
        let empty = pages.is_empty(range);
        self.uncertain += u64::from(empty.is_none());
        empty != Some(false)
    }
}

fn guards(mappings: &[Mapping], boundaries: &[Boundary], pages: &dyn Pages, found: &mut Changes) {
    for (around, three) in boundaries.windows(2).zip(mappings.windows(3)) {
        let [below, guard] = [&three[0], &three[1]];
        // Memory between two guards has the same reason on both sides.
        if guard.is_accessible() {
            continue;
        }
        if around.iter().any(|b| b.reason != Reason::Guard) {
            continue;
        }
        if around.iter().all(|b| b.remedy != Some(Remedy::Guards)) {
            let was_memory = guard.kernel.is_some_and(|vma| vma.anon_vma != 0);
            found.apart += u64::from(was_memory);
        } else if found.may_be_empty(pages, guard.range()) {
            found.list.push(Change::Mark {
                range: guard.range(),
                perms: below.entry.perms,
            });
        }
    }
}

/// True if boundary `number`, counted from the lowest address, exists and `remedy` removes it.
fn removes(remedy: Remedy, boundaries: &[Boundary], number: usize) -> bool {
    let boundary = boundaries.get(number);
    boundary.is_some_and(|boundary| boundary.remedy == Some(remedy))
}

fn flags(mappings: &[Mapping], boundaries: &[Boundary], found: &mut Changes) {
    for (n, mapping) in mappings.iter().enumerate() {
        let around = [n.checked_sub(1), Some(n)].into_iter().flatten();
        let removable = around.filter(|&n| removes(Remedy::Flags, boundaries, n));
        let differ = removable.fold(VmFlags::empty(), |differ, n| {
            differ | (mappings[n].flags() ^ mappings[n + 1].flags())
        });
        let flags = mapping.flags() & differ & REVERSIBLE;
        if !flags.is_empty() {
            let range = mapping.range();
            found.list.push(Change::Clear { range, flags });
        }
    }
}

fn empties(mappings: &[Mapping], boundaries: &[Boundary], pages: &dyn Pages, found: &mut Changes) {
    let mut run: &[Mapping] = &[];
    for (n, mapping) in mappings.iter().enumerate() {
        let joins = n > 0 && removes(Remedy::Empties, boundaries, n - 1);
        let fits = (joins || removes(Remedy::Empties, boundaries, n))
            && found.may_be_empty(pages, mapping.range());
        if !(fits && joins) {
            found.list.extend(one_reservation(run));
            run = &[];
        }
        if fits {
            run = &mappings[n - run.len()..=n];
        }
    }
    found.list.extend(one_reservation(run));
}

fn one_reservation(run: &[Mapping]) -> Option<Change> {
    let [first, .., last] = run else { return None };
    Some(Change::Reserve {
        range: VmRange::new(first.entry.start, last.entry.end),
        // A commit charge that the program avoided in one of the mappings must not be required
        // later.
        noreserve: run.iter().any(|m| m.flags().contains(VmFlags::NORESERVE)),
    })
}
