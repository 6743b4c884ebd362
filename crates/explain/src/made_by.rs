//! Which calls made the boundaries of each reason, and from where in the program.

use super::origins::Origin;
use super::recorded::Recorded;
use serde::Serialize;
use std::collections::HashMap;
use vmarea_process::{Boundary, Reason};

/// Stacks that are shown.
const STACKS: usize = 5;

/// A call and the boundaries that it made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MadeBy {
    /// The call.
    pub call: String,
    /// Boundaries that it made and that were there at the moment.
    pub mappings: u64,
}

/// A place in the program and the boundaries that calls from there made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MadeFrom {
    /// Why the mappings stay apart.
    pub reason: &'static str,
    /// The call.
    pub call: String,
    /// Boundaries that it made from there.
    pub mappings: u64,
    /// Frames, the innermost first.
    pub stack: Vec<String>,
}

/// The boundaries of a recorded program, each with where it comes from.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// The boundaries.
    pub boundaries: &'a [Boundary],
    /// The recording that they are of.
    pub recorded: &'a Recorded,
    /// Stacks by their numbers.
    pub stacks: &'a [Vec<String>],
}

impl Traced<'_> {
    fn each(&self) -> impl Iterator<Item = (Reason, &Origin)> {
        let origins = self.recorded.origins.iter().skip(1);
        let each = self.boundaries.iter().zip(origins);
        each.filter_map(|(boundary, origin)| Some((boundary.reason, origin.as_ref()?)))
    }

    /// The calls that made the boundaries of one reason, those that made most first.
    pub fn calls(&self, reason: Reason) -> Vec<MadeBy> {
        let of_reason = self.each().filter(|(r, _)| *r == reason);
        let counted = most(of_reason.map(|(_, origin)| &origin.call));
        let made = counted.into_iter().map(|(call, mappings)| MadeBy {
            call: call.clone(),
            mappings,
        });
        made.collect()
    }

    /// The places in the program from where most boundaries were made.
    pub fn places(&self) -> Vec<MadeFrom> {
        let stacked = self.each().filter(|(_, origin)| origin.stack.is_some());
        let counted = most(stacked);
        let shown = counted.into_iter().take(STACKS);
        let made = shown.map(|((reason, origin), mappings)| MadeFrom {
            reason: reason.name(),
            call: origin.call.clone(),
            mappings,
            stack: origin
                .stack
                .and_then(|number| self.stacks.get(number as usize).cloned())
                .unwrap_or_default(),
        });
        made.collect()
    }
}

/// How often each thing is there, the most frequent first; of equal ones the one that came first.
fn most<T: std::hash::Hash + Eq + Copy>(things: impl Iterator<Item = T>) -> Vec<(T, u64)> {
    let mut counts: HashMap<T, (usize, u64)> = HashMap::new();
    for (n, thing) in things.enumerate() {
        counts.entry(thing).or_insert((n, 0)).1 += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, (first, count))| (std::cmp::Reverse(*count), *first));
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
