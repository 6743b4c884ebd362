//! Calls that created the boundaries, by reason.

use super::origins::Origin;
use super::recorded::Recorded;
use super::stacks::Stacks;
use serde::Serialize;
use std::collections::HashMap;
use vmarea_process::{Boundary, Reason};

/// A call and the number of boundaries that it created.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MadeBy {
    /// Name of the call.
    pub call: String,
    /// Number of boundaries created by the call that still exist at the examined moment.
    pub mappings: u64,
}

/// Boundaries in a recorded program, with their origins.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// The boundaries.
    pub boundaries: &'a [Boundary],
    /// Recording to which the boundaries belong.
    pub recorded: &'a Recorded,
    /// Stacks, by stack number.
    pub stacks: &'a Stacks,
}

/// A boundary whose origin is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made<'a> {
    /// Start of the mapping above the boundary.
    pub start: u64,
    /// The boundary.
    pub boundary: &'a Boundary,
    /// The call that created the boundary.
    pub origin: &'a Origin,
}

impl Traced<'_> {
    /// Returns the boundaries whose origins are known.
    pub(super) fn each(&self) -> impl Iterator<Item = Made<'_>> {
        // The first mapping has no boundary below it.
        let mappings = self.recorded.process.mappings.iter().skip(1);
        let origins = self.recorded.origins.iter().skip(1);
        let each = self.boundaries.iter().zip(mappings).zip(origins);
        each.filter_map(|((boundary, mapping), origin)| {
            Some(Made {
                start: mapping.entry.start,
                boundary,
                origin: origin.as_ref()?,
            })
        })
    }

    /// Returns the calls that created the boundaries with one reason, most boundaries first.
    pub fn calls(&self, reason: Reason) -> Vec<MadeBy> {
        let of_reason = self.each().filter(|made| made.boundary.reason == reason);
        let counted = most(of_reason.map(|made| &made.origin.call));
        let made = counted.into_iter().map(|(call, mappings)| MadeBy {
            call: call.clone(),
            mappings,
        });
        made.collect()
    }
}

/// Counts equal items; sorts them by count, largest first, then by first occurrence.
pub(super) fn most<T: std::hash::Hash + Eq + Copy>(
    things: impl Iterator<Item = T>,
) -> Vec<(T, u64)> {
    let mut counts: HashMap<T, (usize, u64)> = HashMap::new();
    for (n, thing) in things.enumerate() {
        counts.entry(thing).or_insert((n, 0)).1 += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_unstable_by_key(|(_, (first, count))| (std::cmp::Reverse(*count), *first));
    let plain = counts.into_iter().map(|(thing, (_, count))| (thing, count));
    plain.collect()
}

#[cfg(test)]
mod tests {
    use super::most;

    #[test]
    fn the_most_frequent_comes_first() {
        let counted = most("b a c a c a".split(' '));
        assert_eq!(counted, [("a", 3), ("c", 2), ("b", 1)]);
    }
}
